"""The client of an OpenAI-compatible server. It implements `audits.models.chat.LanguageModel`."""

import asyncio
import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, TypeAlias, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from automation_pipeline.audits.models.chat import (
    AnswerSchema,
    Message,
    Question,
    Reply,
    Role,
    ToolCall,
    ToolChoice,
    Usage,
)
from automation_pipeline.clients.http import (
    MEGABYTE,
    BodyRefusedError,
    HttpAnswer,
    HttpClient,
    Observation,
    Payload,
    ProviderRefusal,
    bare_key,
    first_fault,
    parse_refusal,
    usable_key,
    web_address,
    without_nul,
)
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds

FILTERED = "The provider's content filter stopped the answer"
MAX_TOKENS = 1_000_000_000


def question_json(question: Question, model: str, temperature: float | None) -> bytes:
    """A lone surrogate, which UTF-8 cannot represent, becomes a question mark."""
    document: dict[str, object] = {
        "model": model,
        "messages": [_message(message) for message in question.messages],
    }
    schema = question.schema
    if temperature is not None:
        document["temperature"] = temperature
    if question.tools:
        document["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                    "strict": True,
                },
            }
            for tool in question.tools
        ]
        document["tool_choice"] = question.tool_choice.value
    # A forced tool call contains no answer, and some servers refuse a request with both.
    if not (question.tools and question.tool_choice is ToolChoice.REQUIRED):
        document["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": schema.name, "strict": True, "schema": dict(schema.schema)},
        }
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


def _clean(text: str) -> str:
    """Removes NUL, also where the text is itself JSON with an escaped NUL."""
    text = text.replace("\0", "")
    return without_nul(text.encode()).decode() if r"\u0000" in text else text


def _tokens(value: object) -> int:
    """An invalid count becomes 0, because the reply is usable without its token counts."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value <= MAX_TOKENS else 0


Text: TypeAlias = Annotated[str, AfterValidator(_clean)]
Tokens: TypeAlias = Annotated[int, BeforeValidator(_tokens)]


class FunctionPayload(Payload):
    name: Text
    arguments: Text


class ToolCallPayload(Payload):
    id: Text
    function: FunctionPayload


class MessagePayload(Payload):
    content: Text | None = None
    tool_calls: list[ToolCallPayload] | None = None
    refusal: Text | None = None


class ChoicePayload(Payload):
    message: MessagePayload
    finish_reason: str | None = None


class UsagePayload(Payload):
    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0


class CompletionPayload(Payload):
    choices: list[ChoicePayload] = Field(min_length=1)
    # If the usage is missing or invalid, the reply counts no tokens.
    usage: Annotated[
        UsagePayload,
        BeforeValidator(
            lambda value: cast("object", value) if isinstance(value, dict) else UsagePayload()
        ),
    ] = UsagePayload()

    def to_reply(self) -> Reply:
        """Uses the first choice; the request asks for one."""
        message, finish_reason = self.choices[0].message, self.choices[0].finish_reason
        refusal = (message.refusal or "").strip() or (
            FILTERED if finish_reason == "content_filter" else None
        )
        return Reply(
            content=message.content or "",
            usage=Usage(self.usage.prompt_tokens, self.usage.completion_tokens),
            tool_calls=tuple(
                ToolCall(call.id, call.function.name, call.function.arguments)
                for call in message.tool_calls or ()
            ),
            refusal=refusal,
            is_cut=finish_reason == "length",
        )


class ModelPayload(Payload):
    id: str


class ModelsPayload(Payload):
    data: list[ModelPayload]


OPENAI_HOST = "api.openai.com"
CONNECT_SECONDS = 10.0
MAX_BYTES = 8 * MEGABYTE
FAILED = "LLM call failed"

_MILLISECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]+)?")
_WORD = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}
PROBE_QUESTION = Question(
    (Message(Role.USER, 'Answer with {"word": "oui"}.'),), AnswerSchema("one_word", _WORD)
)

Kind = TypeVar("Kind", bound=Payload)


class ModelAnswerError(TransientError):
    """The response is not a completion; another attempt may succeed."""


class ModelRefusedError(PermanentError):
    """The provider refuses the request. `status` and `code` come from its answer."""

    def __init__(self, message: str, *, refusal: ProviderRefusal) -> None:
        super().__init__(message)
        self.status, self.code = refusal.status, refusal.code


def chat_root(base_url: str) -> httpx.URL:
    """The base address of the routes, with `/v1` if it has no path. Raises PermanentError if it is not
    a web address."""
    url = web_address(base_url, "LLM address is not one of the web (set LLM_BASE_URL)")
    return url.copy_with(path=url.path.rstrip("/") or "/v1", fragment=None)


class ChatCompletions:
    """The constructor raises PermanentError if the address or the key is unusable."""

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
        # Self-hosted servers may need no key, but OpenAI's does.
        needs_key = bare_key(api_key) or self._root.host == OPENAI_HOST
        self._key = usable_key(api_key, "LLM", "LLM_API_KEY") if needs_key else None
        self._http = HttpClient(
            Observation("language-model", meter or Meter(), is_trusted=True),
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
        body = await self._call("POST", "/chat/completions", content)
        return _parse(CompletionPayload, body, "a completion").to_reply()

    async def check(self) -> None:
        """The list of models costs nothing. If it lacks the configured model, a one-word completion
        decides."""
        if not await self._is_known():
            await self.ask(PROBE_QUESTION)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _is_known(self) -> bool:
        try:
            listed = _parse(ModelsPayload, await self._call("GET", "/models"), "a list of models")
            if self._model in {model.id for model in listed.data}:
                return True
            path = f"/models/{quote(self._model, safe='')}"
            return bool(_parse(ModelPayload, await self._call("GET", path), "a model").id)
        except ModelAnswerError:
            return False
        except ModelRefusedError as error:
            # The route may be missing or closed to a key that can still request completions.
            if error.status in {403, 404, 405} and error.code != "model_not_found":
                return False
            raise

    async def _call(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """No error is chained: httpx's errors contain the headers with the key."""
        # The query of the base address, such as a version, stays. Raw, because the name of a model
        # may contain a quoted slash.
        base, mark, query = self._root.raw_path.partition(b"?")
        url = self._root.copy_with(raw_path=base + path.encode() + mark + query)
        headers = {"Content-Type": "application/json"} if content else {}
        try:
            async with asyncio.timeout(self._timeout_seconds):
                request = self._http.build_request(method, url, content=content, headers=headers)
                answer = await self._http.call(request, MAX_BYTES)
        except BodyRefusedError as error:
            raise ModelAnswerError(f"{FAILED}: the answer cannot be read: {error}.") from None
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            raise TransientError(f"{FAILED}: the provider did not answer in time.") from None
        except httpx.HTTPError as error:
            kind = type(error).__name__
            # Without any connection, the address may be wrong.
            is_connected = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            hint = f" ({kind})." if is_connected else f": {kind} (check LLM_BASE_URL)"
            raise TransientError(f"{FAILED}: the provider could not be reached{hint}") from None
        except UnicodeError:
            raise PermanentError(
                f"{FAILED}: its address cannot be looked up (check LLM_BASE_URL)"
            ) from None
        if answer.is_success:
            return answer.body
        raise self._refusal(answer)

    def _refusal(self, answer: HttpAnswer) -> Exception:
        # Without a key there is nothing to mask: the body contains no NUL.
        refusal = parse_refusal(answer.status, answer.body, self._key or "\0")
        status, sentence = refusal.status, refusal.sentence(FAILED)
        if status == 429 and refusal.code == "insufficient_quota":
            return ModelRefusedError(
                f"{sentence} (check the account behind LLM_API_KEY)", refusal=refusal
            )
        if status in {408, 409, 429} or status >= 500:
            return TransientError(sentence, retry_after_seconds=self._wait(answer.headers))
        if status in {401, 403}:
            return ModelRefusedError(f"{sentence} (check LLM_API_KEY)", refusal=refusal)
        return ModelRefusedError(sentence + self._advice(refusal), refusal=refusal)

    def _advice(self, refusal: ProviderRefusal) -> str:
        """Self-hosted servers answer 404 without a code for an unknown model, but name the model."""
        if refusal.code == "model_not_found" or (
            refusal.status == 404 and self._model in (refusal.message or "")
        ):
            return " (check LLM_MODEL)"
        return " (check LLM_BASE_URL)" if refusal.status == 404 or refusal.status < 400 else ""

    def _wait(self, headers: httpx.Headers) -> float | None:
        """`retry-after-ms` takes precedence, as in OpenAI's own client."""
        milliseconds = headers.get("retry-after-ms", "").strip()
        if _MILLISECONDS.fullmatch(milliseconds):
            return retry_after_seconds(f"{float(milliseconds) / 1000:.3f}", self._now())
        return retry_after_seconds(headers.get("Retry-After"), self._now())


def _parse(kind: type[Kind], body: bytes, what: str) -> Kind:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        where = first_fault(error, whole="expected JSON object")
        message = f"{FAILED}: the provider answered something that is not {what} ({where})."
        raise ModelAnswerError(message) from None
