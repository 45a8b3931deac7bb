"""Any OpenAI-compatible server over HTTP: `audits.ports.LanguageModel`."""

import asyncio
import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, TypeAlias, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from automation_pipeline.audits.models.chat import (
    AnswerSchema,
    Message,
    Question,
    Reply,
    Role,
    Tool,
    ToolCall,
    ToolChoice,
    Usage,
)
from automation_pipeline.clients.crm import without_nul
from automation_pipeline.clients.elevenlabs import ProviderRefusal, refusal_of
from automation_pipeline.clients.http import (
    MEGABYTE,
    BodyRefusedError,
    HttpAnswer,
    HttpClient,
    Observation,
    bare_key,
    usable_key,
)
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds

FILTERED = "The provider's content filter stopped the answer"
MOST_TOKENS = 1_000_000_000


def question_json(question: Question, model: str, temperature: float | None) -> bytes:
    """Half a character, which no UTF-8 can hold, is sent as a question mark."""
    document: dict[str, object] = {
        "model": model,
        "messages": [_message(message) for message in question.messages],
    }
    if temperature is not None:
        document["temperature"] = temperature
    if question.tools:
        document["tools"] = [_tool(tool) for tool in question.tools]
        document["tool_choice"] = question.tool_choice.value
    # A call that must be of a tool holds no answer, and some servers refuse to be asked for both.
    if not (question.tools and question.tool_choice is ToolChoice.REQUIRED):
        document["response_format"] = _response_format(question.schema)
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", errors="replace"
        )


def _message(message: Message) -> dict[str, object]:
    document: dict[str, object] = {"role": message.role.value, "content": message.content}
    if message.role is Role.TOOL:
        document["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        document["content"] = message.content or None
        document["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return document


def _tool(tool: Tool) -> dict[str, object]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": True,
    }
    return {"type": "function", "function": function}


def _response_format(schema: AnswerSchema) -> dict[str, object]:
    return {
        "type": "json_schema",
        "json_schema": {"name": schema.name, "strict": True, "schema": dict(schema.schema)},
    }


def _clean(text: str) -> str:
    """Also without the NUL that JSON inside the text would have."""
    text = text.replace("\0", "")
    return without_nul(text.encode()).decode() if r"\u0000" in text else text


def _tokens(value: object) -> int:
    """What is no number of tokens is as good as none: an answer is not lost for its bill."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value <= MOST_TOKENS else 0


def _usage(value: object) -> object:
    return cast("object", value) if isinstance(value, dict) else UsagePayload()


Text: TypeAlias = Annotated[str, AfterValidator(_clean)]
Tokens: TypeAlias = Annotated[int, BeforeValidator(_tokens)]


class _Payload(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class FunctionPayload(_Payload):
    name: Text
    arguments: Text


class ToolCallPayload(_Payload):
    id: Text
    function: FunctionPayload


class MessagePayload(_Payload):
    content: Text | None = None
    tool_calls: list[ToolCallPayload] | None = None
    refusal: Text | None = None


class ChoicePayload(_Payload):
    message: MessagePayload
    finish_reason: str | None = None


class UsagePayload(_Payload):
    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0


class CompletionPayload(_Payload):
    choices: list[ChoicePayload] = Field(min_length=1)
    usage: Annotated[UsagePayload, BeforeValidator(_usage)] = UsagePayload()

    def to_reply(self) -> Reply:
        """Of several choices the first: more were not asked for."""
        choice = self.choices[0]
        message, ended = choice.message, choice.finish_reason
        refusal = (message.refusal or "").strip() or (
            FILTERED if ended == "content_filter" else None
        )
        return Reply(
            content=message.content or "",
            usage=Usage(self.usage.prompt_tokens, self.usage.completion_tokens),
            tool_calls=tuple(
                ToolCall(call.id, call.function.name, call.function.arguments)
                for call in message.tool_calls or ()
            ),
            refusal=refusal,
            is_cut=ended == "length",
        )


class ModelPayload(_Payload):
    id: str


class ModelsPayload(_Payload):
    data: list[ModelPayload]

    @property
    def names(self) -> set[str]:
        return {model.id for model in self.data}


OPENAI_HOST = "api.openai.com"
CONNECT_SECONDS = 10.0
MOST_BYTES = 8 * MEGABYTE
FAILED = "LLM call failed"

_MILLISECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]+)?")
_TOO_LONG_CODES = {"context_length_exceeded", "exceed_context_size_error"}
_WORD = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}
PROBE_QUESTION = Question(
    (Message(Role.USER, 'Answer with {"word": "oui"}.'),), AnswerSchema("one_word", _WORD)
)

Payload = TypeVar("Payload", bound=BaseModel)


class ModelUnavailableError(TransientError):
    """The model gave no usable answer this time."""


class ModelAnswerError(ModelUnavailableError):
    """What came is not a completion. Another attempt may bring one."""


class ModelRefusedError(PermanentError):
    """The provider refuses our request; `status` and `code` are what it said."""

    def __init__(self, message: str, *, refusal: ProviderRefusal) -> None:
        super().__init__(message)
        self.status, self.code = refusal.status, refusal.code


class ModelAccessError(ModelRefusedError):
    """The provider does not accept our key for this."""


class PromptTooLongError(ModelRefusedError):
    """The model cannot read so much at once."""


def chat_root(base_url: str) -> httpx.URL:
    """The address below which the routes are: `/v1` where it names no path. PermanentError: it is
    no web address."""
    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL:
        url = httpx.URL()
    # A port that no socket knows would end in a group of errors.
    if url.scheme not in {"http", "https"} or not url.host or not 0 < (url.port or 80) < 65_536:
        raise PermanentError("LLM address is not one of the web (set LLM_BASE_URL)")
    return url.copy_with(path=url.path.rstrip("/") or "/v1", fragment=None)


def key_for(root: httpx.URL, key: str | None) -> str | None:
    """None where there is no key and the server may do without: only OpenAI's own surely does
    not."""
    return (
        usable_key(key, "LLM", "LLM_API_KEY") if bare_key(key) or root.host == OPENAI_HOST else None
    )


class ChatCompletions:
    """PermanentError already when it is made without a usable address or key."""

    def __init__(  # noqa: PLR0913  what a connection needs, by name
        self,
        api_key: str | None,
        base_url: str,
        *,
        model: str,
        temperature: float | None = None,
        now: Callable[[], datetime],
        timeout_seconds: float = 300.0,
        connections: int = 10,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._model = model.strip()
        self._temperature = temperature
        self._now = now
        self._timeout_seconds = timeout_seconds
        self._root = chat_root(base_url)
        self._key = key_for(self._root, api_key)
        self._chat = self._route("/chat/completions")
        self._http = HttpClient(
            Observation("language-model", meter or Meter(), tells_id=True),
            headers={"Accept": "application/json"}
            | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            timeout=httpx.Timeout(
                timeout_seconds, connect=min(timeout_seconds, CONNECT_SECONDS), pool=None
            ),
            transport=transport,
            connections=connections,
        )

    @property
    def name(self) -> str:
        return self._model

    async def ask(self, question: Question) -> Reply:
        content = question_json(question, self._model, self._temperature)
        body = await self._said("POST", self._chat, content)
        return _understood(CompletionPayload, body, "a completion").to_reply()

    async def check(self) -> None:
        """The list of models costs nothing. Where it does not name ours, a completion of one word
        decides."""
        if not await self._is_known():
            await self.ask(PROBE_QUESTION)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _is_known(self) -> bool:
        try:
            listed = _understood(
                ModelsPayload, await self._said("GET", self._route("/models")), "a list of models"
            )
            if self._model in listed.names:
                return True
            its_own = self._route(f"/models/{quote(self._model, safe='')}")
            return bool(_understood(ModelPayload, await self._said("GET", its_own), "a model").id)
        except ModelAnswerError:
            return False
        except ModelRefusedError as error:
            # The route may be lacking, or closed to a key that may ask questions all the same.
            if error.status in {403, 404, 405} and error.code != "model_not_found":
                return False
            raise

    def _route(self, path: str) -> httpx.URL:
        return self._root.copy_with(raw_path=_below(self._root, path))

    async def _said(self, method: str, url: httpx.URL, content: bytes | None = None) -> bytes:
        """No error is chained: httpx's own carry the headers, and the key with them."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._called(method, url, content)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            raise ModelUnavailableError(f"{FAILED}: the provider did not answer in time.") from None
        except httpx.HTTPError as error:
            raise ModelUnavailableError(
                f"{FAILED}: the provider could not be reached{_how(error)}"
            ) from None
        except UnicodeError:
            raise PermanentError(
                f"{FAILED}: its address cannot be looked up (check LLM_BASE_URL)"
            ) from None

    async def _called(self, method: str, url: httpx.URL, content: bytes | None) -> bytes:
        headers = {"Content-Type": "application/json"} if content else {}
        request = self._http.build_request(method, url, content=content, headers=headers)
        try:
            answer = await self._http.call(request, MOST_BYTES)
        except BodyRefusedError as error:
            raise ModelAnswerError(f"{FAILED}: the answer cannot be read: {error}.") from None
        if not answer.is_success:
            raise self._refused(answer)
        return answer.body

    def _refused(self, answer: HttpAnswer) -> Exception:
        # NUL is never found in what is masked: it stands for "no key".
        refusal = refusal_of(answer.status, answer.body, self._key or "\0")
        status, said = refusal.status, _sentence(refusal)
        if status == 429 and refusal.code == "insufficient_quota":
            return ModelRefusedError(
                f"{said} (check the account behind LLM_API_KEY)", refusal=refusal
            )
        if status in {408, 409, 429} or status >= 500:
            return ModelUnavailableError(said, retry_after_seconds=self._wait(answer.headers))
        if status in {401, 403}:
            return ModelAccessError(f"{said} (check LLM_API_KEY)", refusal=refusal)
        if _is_too_long(refusal):
            return PromptTooLongError(said, refusal=refusal)
        return ModelRefusedError(said + self._advice(refusal), refusal=refusal)

    def _advice(self, refusal: ProviderRefusal) -> str:
        """Servers of models at home answer 404 for an unknown model without a code, but name it."""
        if refusal.code == "model_not_found" or (
            refusal.status == 404 and self._model in (refusal.message or "")
        ):
            return " (check LLM_MODEL)"
        return " (check LLM_BASE_URL)" if refusal.status == 404 or refusal.status < 400 else ""

    def _wait(self, headers: httpx.Headers) -> float | None:
        """The finer of the two headers wins, as with OpenAI's own client."""
        milliseconds = headers.get("retry-after-ms", "").strip()
        if _MILLISECONDS.fullmatch(milliseconds):
            return retry_after_seconds(f"{float(milliseconds) / 1000:.3f}", self._now())
        return retry_after_seconds(headers.get("Retry-After"), self._now())


def _how(error: httpx.HTTPError) -> str:
    """Where there was no connection at all, the address may be wrong."""
    kind = type(error).__name__
    no_connection = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    return f": {kind} (check LLM_BASE_URL)" if no_connection else f" ({kind})."


def _below(root: httpx.URL, path: str) -> bytes:
    """The route's path and the address's own query, such as a version. Raw: a model's name may hold
    a quoted slash."""
    base, mark, query = root.raw_path.partition(b"?")
    return base + path.encode() + mark + query


def _sentence(refusal: ProviderRefusal) -> str:
    parts = [f"{FAILED} status={refusal.status}"]
    parts += [f"code={refusal.code}"] if refusal.code else []
    parts += [f"provider_message={refusal.message}"] if refusal.message else []
    return " ".join(parts)


def _is_too_long(refusal: ProviderRefusal) -> bool:
    """By code, or by the words that servers without codes have taken over from OpenAI."""
    said = (refusal.message or "").lower()
    return refusal.status in {400, 413} and (
        refusal.code in _TOO_LONG_CODES or "maximum context length" in said
    )


def _understood(kind: type[Payload], body: bytes, what: str) -> Payload:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        where = ".".join(
            str(part) for part in error.errors(include_url=False, include_input=False)[0]["loc"]
        )
        message = f"{FAILED}: the provider answered something that is not {what} ({where or 'expected JSON object'})."
        raise ModelAnswerError(message) from None
