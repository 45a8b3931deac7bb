"""The language model client: requests, errors per response, and cleanup."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automation_pipeline.audits.models.chat import AnswerSchema, Message, Question, Reply, Role
from automation_pipeline.clients.llm import (
    ChatCompletions,
    ModelAnswerError,
    ModelRefusedError,
    question_json,
)
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.logs import correlated
from automation_pipeline_tests.clients.mock_answers import json_answer, with_client

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
KEY = "sk-s3cret0123"
ROOT = "http://127.0.0.1:1234/v1"
FAILED = "LLM call failed"
SCHEMA = AnswerSchema(
    "audit_step",
    {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
)
QUESTION = Question((Message(Role.SYSTEM, "Tu audites."), Message(Role.USER, "Étape 1")), SCHEMA)


def client(
    answer: Any, key: str | None = KEY, base_url: str = ROOT, **options: Any
) -> ChatCompletions:
    options = {
        "model": "gpt-4.1",
        "now": lambda: NOW,
        "transport": httpx.MockTransport(answer),
    } | options
    return ChatCompletions(key, base_url, **options)


def ask(answer: Any, question: Question = QUESTION, **options: Any) -> Reply:
    return with_client(client(answer, **options), lambda model: model.ask(question))


def error(answer: Any, **options: Any) -> AutomationError:
    with pytest.raises(AutomationError) as caught:
        ask(answer, **options)
    return caught.value


def completion(
    finish_reason: str = "stop", usage: object = None, **message: object
) -> dict[str, Any]:
    values = {"role": "assistant", "content": "{}"} | message
    return {
        "id": "chatcmpl-1",
        "choices": [{"index": 0, "message": values, "finish_reason": finish_reason}],
    } | ({"usage": usage} if usage else {})


def refusing(message: object = None, code: object = None, kind: object = None) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def test_a_question_is_one_json_post() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=completion())

    with correlated("request-7"):
        ask(answer, temperature=0.5)
    ask(answer, timeout_seconds=6.0)
    request, shorter = requests
    assert (request.method, str(request.url)) == ("POST", f"{ROOT}/chat/completions")
    assert request.headers["X-Request-Id"] == "request-7"
    assert request.headers["Accept"] == "application/json"
    assert request.extensions["timeout"] == {"connect": 10, "read": 300, "write": 300, "pool": None}
    assert shorter.extensions["timeout"] == {"connect": 6, "read": 6, "write": 6, "pool": None}
    assert request.headers["Content-Type"] == "application/json"
    assert request.content == question_json(QUESTION, "gpt-4.1", 0.5)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"", "expected JSON object"),
        (b"<html>Welcome</html>", "expected JSON object"),
        (b"[]", "expected JSON object"),
        (b"[" * 100_000, "expected JSON object"),
        (b'{"choices": [{"mess', "expected JSON object"),
        (b'{"choices": [{"message": {"content": "\\ud800"}}]}', "expected JSON object"),
        (b'{"error": {"message": "overloaded", "code": 502}}', "choices"),
        (b'{"choices": []}', "choices"),
        (b'{"choices": null}', "choices"),
        (b'{"choices": [{}]}', "choices.0.message"),
        (b'{"choices": [{"message": {"content": 7}}]}', "choices.0.message.content"),
        (b'{"choices": [{"message": {"content": ["a"]}}]}', "choices.0.message.content"),
        (
            b'{"choices": [{"message": {"tool_calls": [{"id": "1"}]}}]}',
            "choices.0.message.tool_calls.0.function",
        ),
    ],
)
def test_a_malformed_completion_is_reported_with_the_path(body: bytes, where: str) -> None:
    raised = error(lambda _: httpx.Response(200, content=body))
    assert (type(raised), str(raised)) == (
        ModelAnswerError,
        f"{FAILED}: the provider answered something that is not a completion ({where}).",
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "x"]), inner)
    ),
    max_leaves=8,
)
ALMOST_ANSWERS = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries({"message": JSON | st.fixed_dictionaries({"content": JSON})})
        )
    },
    optional={"usage": JSON | st.fixed_dictionaries({"prompt_tokens": JSON}), "error": JSON},
)


@given(
    body=(JSON | ALMOST_ANSWERS).map(lambda document: json.dumps(document).encode()) | st.binary(),
    status=st.sampled_from([200, 200, 200, 204, 302, 400, 401, 404, 413, 429, 503]),
    wait=st.none() | st.text(st.characters(min_codepoint=32, max_codepoint=126)),
)
@example(b'{"error": ' * 500, 400, "1" * 5000)
@example(b"1" * 5000, 200, "Mon, 99 May 99999 10:01:30 GMT")
def test_any_response_becomes_a_reply_or_a_domain_error(
    body: bytes, status: int, wait: str | None
) -> None:
    headers = {"Retry-After": wait, "Retry-After-Ms": wait} if wait is not None else {}
    with suppress(TransientError, PermanentError):
        reply = ask(lambda _: httpx.Response(status, content=body, headers=headers))
        assert isinstance(reply, Reply)
        assert "\0" not in reply.content


ACCESS, BASE, MODEL = (f" (check LLM_{name})" for name in ("API_KEY", "BASE_URL", "MODEL"))


@pytest.mark.parametrize(
    ("status", "document", "kind", "message"),
    [
        (
            401,
            refusing("Wrong key.", "invalid_api_key"),
            ModelRefusedError,
            f"code=invalid_api_key {{Wrong key.}}{ACCESS}",
        ),
        (
            403,
            refusing("No.", None, "forbidden"),
            ModelRefusedError,
            f"code=forbidden {{No.}}{ACCESS}",
        ),
        (
            404,
            refusing("Unknown.", "model_not_found"),
            ModelRefusedError,
            f"code=model_not_found {{Unknown.}}{MODEL}",
        ),
        (
            404,
            refusing('model "gpt-4.1" not found'),
            ModelRefusedError,
            f'{{model "gpt-4.1" not found}}{MODEL}',
        ),
        (404, {"detail": "Not Found"}, ModelRefusedError, f"{{Not Found}}{BASE}"),
        (302, {}, ModelRefusedError, BASE.strip()),
        (
            400,
            refusing("Too long.", "context_length_exceeded"),
            ModelRefusedError,
            "code=context_length_exceeded {Too long.}",
        ),
        (
            400,
            {"message": "This model's maximum context length is 4096 tokens.", "code": 400},
            ModelRefusedError,
            "{This model's maximum context length is 4096 tokens.}",
        ),
        (
            400,
            refusing("Bad\n schema.", None, "invalid_request_error"),
            ModelRefusedError,
            "code=invalid_request_error {Bad schema.}",
        ),
        (413, refusing("Big."), ModelRefusedError, "{Big.}"),
        (422, refusing("x" * 900), ModelRefusedError, f"{{{'x' * 500}}}"),
        (
            429,
            refusing("Slow down.", "rate_limit_exceeded"),
            TransientError,
            "code=rate_limit_exceeded {Slow down.}",
        ),
        (
            429,
            refusing("Pay.", "insufficient_quota"),
            ModelRefusedError,
            "code=insufficient_quota {Pay.} (check the account behind LLM_API_KEY)",
        ),
        (408, {}, TransientError, ""),
        (409, {}, TransientError, ""),
        (500, refusing("Oops."), TransientError, "{Oops.}"),
        (502, "<html>", TransientError, ""),
        (503, None, TransientError, ""),
        (529, refusing("Overloaded."), TransientError, "{Overloaded.}"),
    ],
)
def test_each_status_has_its_error_type_and_message(
    status: int, document: object, kind: type[AutomationError], message: str
) -> None:
    paths: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        return httpx.Response(
            status, json=document, headers={"Location": "/elsewhere"} if status == 302 else {}
        )

    raised = error(answer)
    result = message.replace("{", "provider_message=").replace("}", "")
    assert (type(raised), str(raised)) == (kind, f"{FAILED} status={status} {result}".rstrip())
    assert paths == ["/v1/chat/completions"]


@pytest.mark.parametrize("status", [408, 409, 429, 503])
@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"Retry_After": "7"}, 7),
        ({"Retry_After": "Mon, 04 May 2026 10:01:30 GMT"}, 90),
        ({"Retry_After": "soon"}, None),
        ({"retry_after_ms": "2500"}, 2.5),
        ({"retry_after_ms": "2500", "Retry_After": "3"}, 2.5),
        ({"retry_after_ms": "20"}, 1),
        ({"retry_after_ms": "inf", "Retry_After": "3"}, 3),
    ],
)
def test_the_retry_after_of_the_provider_is_kept(
    status: int, headers: dict[str, str], wait: float | None
) -> None:
    raised = error(json_answer({}, status, **headers))
    assert isinstance(raised, TransientError)
    assert raised.retry_after_seconds == wait


@pytest.mark.parametrize("status", [302, 400, 401, 404, 429, 503])
def test_a_key_echoed_by_the_provider_is_masked(status: int) -> None:
    raised = error(json_answer(refusing(f"{'x' * 490} {KEY} is wrong", KEY), status))
    assert KEY[:8] not in f"{raised!s} {raised!r} {vars(raised)}"
    assert "*** is" in str(raised)


@pytest.mark.parametrize(
    ("raised", "how"),
    [
        (httpx.ConnectError(f"no {KEY}"), ": ConnectError (check LLM_BASE_URL)"),
        (httpx.ConnectTimeout(KEY), ": ConnectTimeout (check LLM_BASE_URL)"),
        (httpx.ReadError(KEY), " (ReadError)."),
        (httpx.RemoteProtocolError(KEY), " (RemoteProtocolError)."),
    ],
)
def test_an_unreachable_server_is_transient_and_the_request_is_not_quoted(
    raised: Exception, how: str
) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise raised

    raised = error(answer)
    assert str(raised) == f"{FAILED}: the provider could not be reached{how}"
    assert (type(raised), raised.__cause__, raised.__suppress_context__) == (
        TransientError,
        None,
        True,
    )


class Body(httpx.AsyncByteStream):
    """An endless body. It awaits `wait` between pieces and counts the bytes."""

    def __init__(
        self, piece: bytes, wait: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
    ) -> None:
        self.piece, self.wait = piece, wait
        self.sent = 0
        self.started = asyncio.Event()
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.sent += len(self.piece)
            self.started.set()
            yield self.piece
            await self.wait()

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (200, ModelAnswerError, f"{FAILED}: the answer cannot be read: it is larger than 8 MB."),
        (400, ModelRefusedError, f"{FAILED} status=400"),
        (503, TransientError, f"{FAILED} status=503"),
    ],
)
def test_reading_stops_at_the_maximum_body_size(
    status: int, kind: type[AutomationError], message: str
) -> None:
    body = Body(b" " * 100_000)
    raised = error(lambda _: httpx.Response(status, stream=body))
    assert (type(raised), str(raised)) == (kind, message)
    assert body.sent <= 8_200_000
    assert body.closed


@pytest.mark.parametrize("trickles", [False, True])
def test_an_unfinished_call_times_out(trickles: bool) -> None:
    body = Body(b" ", lambda: asyncio.sleep(0.01))

    async def answer(_: httpx.Request) -> httpx.Response:
        if not trickles:
            await asyncio.Event().wait()
        return httpx.Response(200, stream=body)

    started_at = perf_counter()
    raised = error(answer, timeout_seconds=0.1)
    assert perf_counter() - started_at < 20
    assert (type(raised), str(raised)) == (
        TransientError,
        f"{FAILED}: the provider did not answer in time.",
    )
    assert body.closed is trickles


def test_a_cancelled_call_ends_its_tasks_and_closes_its_response() -> None:
    body = Body(b" ", lambda: asyncio.Event().wait())

    async def cancelled(model: ChatCompletions) -> None:
        task = asyncio.create_task(model.ask(QUESTION))
        await body.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert body.closed
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with_client(client(lambda _: httpx.Response(200, stream=body)), cancelled)
