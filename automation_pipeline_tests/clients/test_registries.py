"""Behaviour shared by all registry clients: calls, errors, lenient parsing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.clients.registries import (
    MAX_BYTES,
    USER_AGENT,
    AnswerObject,
    RegistryFormatError,
    call_error,
    check_error,
    parse_answer,
    without_entries,
)
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.logs import correlated
from automation_pipeline.core.metrics import Meter
from automation_pipeline.enrichment.models import ErrorCode, SourceError, SourceRecord
from automation_pipeline_tests.clients.mock_answers import failing_answer, json_answer
from automation_pipeline_tests.clients.registry_clients import (
    PASSWORD,
    ROOT,
    TOKEN,
    entreprise,
    extract,
    fetch,
    formality,
    found,
    inpi,
    logged_in,
    search,
    unit,
)

REGISTRIES = {
    "company_search": (search, found(unit())),
    "inpi": (lambda answer, **more: inpi(logged_in(answer), **more), formality()),
    "api_entreprise": (entreprise, extract()),
}


# Per provider: its name, its address setting and its access settings in messages.
NAMES = {
    "company_search": ("the Recherche d'entreprises", *["RECHERCHE_ENTREPRISES_BASE_URL"] * 2),
    "inpi": ("INPI's register", "INPI_RNE_BASE_URL", "INPI_RNE_USERNAME and INPI_RNE_PASSWORD"),
    "api_entreprise": ("API Entreprise", "API_ENTREPRISE_BASE_URL", "API_ENTREPRISE_TOKEN"),
}


@pytest.fixture(params=REGISTRIES)
def registry(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return REGISTRIES[request.param]


@pytest.mark.parametrize(
    ("status", "code", "retryable", "problem"),
    [
        (301, "INTERNAL_ERROR", False, "gave an unexpected answer"),
        (400, "INTERNAL_ERROR", False, "refuses the request"),
        (403, "FORBIDDEN", False, "does not permit the request"),
        (404, "NOT_FOUND", False, "does not know the company"),
        (405, "INTERNAL_ERROR", False, "gave an unexpected answer"),
        (408, "SOURCE_UNAVAILABLE", True, "gave up waiting for the request"),
        (409, "SOURCE_UNAVAILABLE", True, "is still busy with the same request"),
        (422, "INTERNAL_ERROR", False, "refuses the request"),
        (429, "RATE_LIMIT", True, "was called too often"),
        (451, "FORBIDDEN", False, "must not answer for legal reasons"),
        (499, "INTERNAL_ERROR", False, "gave an unexpected answer"),
        (500, "UPSTREAM_5XX", True, "reports a server error"),
        (502, "UPSTREAM_5XX", True, "reports a server error"),
        (504, "UPSTREAM_5XX", True, "reports a server error"),
    ],
)
def test_each_status_has_its_error_code(
    registry: tuple[Any, Any],
    status: int,
    code: str,
    retryable: bool,
    problem: str,
    request: pytest.FixtureRequest,
) -> None:
    make, _ = registry
    error = fetch(make(json_answer({}, status, Location="https://elsewhere.test/")))
    assert isinstance(error, SourceError)
    assert (error.error_code, error.http_status, error.retryable) == (code, status, retryable)
    name, setting, _ = NAMES[request.node.callspec.params["registry"]]
    hint = f"; check {setting}" if problem == "gave an unexpected answer" else ""
    assert error.message == f"{name} {problem} (status {status}{hint})."


def test_401_names_the_setting_to_check(
    registry: tuple[Any, Any], request: pytest.FixtureRequest
) -> None:
    error = fetch(registry[0](json_answer({}, 401)))
    assert (error.error_code, error.http_status, error.retryable) == ("AUTH_ERROR", 401, False)
    name, _, settings = NAMES[request.node.callspec.params["registry"]]
    problem = f"does not accept the credentials (status 401; check {settings})."
    assert error.message == f"{name} {problem}"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx.ConnectTimeout("x"), "TIMEOUT"),
        (httpx.ReadTimeout("x"), "TIMEOUT"),
        (httpx.ConnectError(TOKEN), "SOURCE_UNAVAILABLE"),
        (httpx.ReadError("x"), "SOURCE_UNAVAILABLE"),
        (httpx.RemoteProtocolError(ROOT), "SOURCE_UNAVAILABLE"),
        (httpx.DecodingError("x"), "SOURCE_UNAVAILABLE"),
        (UnicodeError("label too long"), "SOURCE_UNAVAILABLE"),
    ],
)
def test_a_missing_response_has_no_status_and_is_retryable(
    registry: tuple[Any, Any], error: Exception, code: str
) -> None:
    message = fetch(registry[0](failing_answer(error)))
    assert (message.error_code, message.http_status, message.retryable) == (code, None, True)
    assert TOKEN not in message.message
    assert ROOT not in message.message


@pytest.mark.parametrize(
    ("header", "wait"), [("7", 7.0), ("Mon, 04 May 2026 10:00:30 GMT", 30.0), ("soon", None)]
)
def test_the_retry_after_of_a_registry_is_returned(
    registry: tuple[Any, Any], header: str, wait: float | None
) -> None:
    assert fetch(registry[0](json_answer({}, 429, Retry_After=header))).retry_after_seconds == wait


class Endless(httpx.AsyncByteStream):
    """An endless body. `read` counts the bytes read."""

    def __init__(self, piece: bytes = b" " * 100_000, pause: float = 0.0) -> None:
        self._piece, self._pause, self.read = piece, pause, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(self._pause)
            self.read += len(self._piece)
            yield self._piece


def test_reading_an_endless_response_stops_at_the_maximum_size(registry: tuple[Any, Any]) -> None:
    stream = Endless()
    error = fetch(registry[0](lambda _: httpx.Response(200, stream=stream)))
    assert (error.error_code, error.retryable) == ("INTERNAL_ERROR", False)
    assert "larger than 1 MB" in error.message
    assert stream.read <= MAX_BYTES + 100_000


def test_a_slow_response_times_out(
    registry: tuple[Any, Any],
) -> None:
    stream = Endless(b" ", pause=0.01)
    error = fetch(registry[0](lambda _: httpx.Response(200, stream=stream), timeout_seconds=0.1))
    assert (error.error_code, error.http_status) == ("TIMEOUT", None)
    assert error.message.endswith("did not answer within 0.1 s.")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b"{}",
        b"<html>Welcome</html>",
        b'{"results": [',
        b'{"a": NaN}',
        b"[" * 1000,
        b"\xff",
    ],
)
def test_an_unusable_body_is_an_internal_error(registry: tuple[Any, Any], body: bytes) -> None:
    error = fetch(registry[0](lambda _: httpx.Response(200, content=body)))
    assert (error.error_code, error.http_status, error.retryable) == ("INTERNAL_ERROR", 200, False)
    assert "is not understood" in error.message


def test_every_call_has_a_user_agent_and_is_counted(
    registry: tuple[Any, Any], request: pytest.FixtureRequest
) -> None:
    make, document = registry
    requests: list[httpx.Request] = []

    def answer(received: httpx.Request) -> httpx.Response:
        requests.append(received)
        return httpx.Response(200, json=document)

    meter = Meter()
    with correlated("request-7"):
        assert isinstance(fetch(make(answer, meter=meter)), SourceRecord)
    headers = requests[0].headers
    assert (headers["User-Agent"], headers["Accept"]) == (USER_AGENT, "application/json")
    assert headers["X-Request-Id"] == "request-7"
    assert requests[0].extensions["timeout"] == {
        "connect": 60,
        "read": 60,
        "write": 60,
        "pool": None,
    }
    assert str(requests[0].url).startswith(f"{ROOT}/")
    provider = request.node.callspec.params["registry"]
    assert meter.drain()["provider_calls_total", f'provider="{provider}",status="200"'] >= 1


def test_a_client_works_in_successive_event_loops(
    registry: tuple[Any, Any],
) -> None:
    make, document = registry
    closed: list[bool] = []

    class Transport(httpx.MockTransport):
        async def aclose(self) -> None:
            closed.append(True)

    answer = json_answer(document)
    one = make(answer, transport=Transport(logged_in(answer)))
    assert [isinstance(fetch(one), SourceRecord) for _ in range(2)] == [True, True]
    assert closed == [True, True]


def test_no_error_contains_a_secret(registry: tuple[Any, Any]) -> None:
    make, _ = registry
    for answer in (
        json_answer({"message": f"{TOKEN} {PASSWORD}"}, 400),
        json_answer({"errors": [{"code": TOKEN}]}, 422),
    ):
        result = repr(fetch(make(answer)))
        assert TOKEN not in result
        assert PASSWORD not in result


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (call_error(ErrorCode.RATE_LIMIT, "Too often.", 429, 7.0).error, TransientError),
        (call_error(ErrorCode.AUTH_ERROR, "Who are you?", 401).error, PermanentError),
    ],
)
def test_check_errors_are_transient_or_permanent(
    error: SourceError, raised: type[Exception]
) -> None:
    failure = check_error(error)
    assert (type(failure), str(failure)) == (raised, error.message)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abcd"), inner),
)


def read(body: bytes | None) -> AnswerObject:
    """Reads a name, and the names of a list of objects."""
    answer = parse_answer(body)[0]
    for section in (answer, *answer.objects("inner", 2, default=[])):
        section.value("name")
    return answer


def test_a_response_is_parsed_and_kept_unchanged() -> None:
    answer, document = parse_answer(b'{"name": 7, "more": {"x": [1]}, "none": []}')
    assert (answer.value("name"), answer.text("name")) == (7, "7")
    assert (answer.value("other"), answer.at("other", "deeper").text("x")) == (None, None)
    assert (answer.has("more"), answer.has("none"), answer.has("other")) == (True, False, False)
    assert document == {"name": 7, "more": {"x": [1]}, "none": []}


def test_nul_characters_are_removed_from_responses() -> None:
    assert parse_answer(b'{"name": "a\\u0000b"}')[1] == {"name": "ab"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "it is larger than 1 MB, or compressed"),
        (b"", "it is not JSON"),
        (b'{"a": NaN}', "it is not JSON"),
        (b'{"a": 1e999}', "it is not JSON"),
        (b'{"a": "\\ud800"}', "it is not JSON"),
        (b"[" * 1000, "it is not JSON"),
        (b"[]", "unexpected value at its top level"),
        (b'{"name": ["s3cret"]}', "unexpected value at name"),
        (b'{"inner": [{"name": {}}]}', "unexpected value at inner.0.name"),
        (b'{"inner": [1, 2, 3]}', "unexpected value at inner"),
        (b'{"inner": ["s3cret"]}', "unexpected value at inner.0"),
    ],
)
def test_an_unusable_response_is_refused_without_being_quoted(
    body: bytes | None, message: str
) -> None:
    with pytest.raises(RegistryFormatError) as caught:
        read(body)
    assert str(caught.value) == message
    assert "s3cret" not in str(caught.value)


@given(st.binary(max_size=40))
def test_any_bytes_parse_or_raise_a_format_error(body: bytes) -> None:
    with suppress(RegistryFormatError):
        read(body)


@pytest.mark.parametrize(
    ("body", "is_masked"),
    [
        (b'{"name": "DANONE", "unread": "[NON-DIFFUSIBLE]"}', False),
        (b'{"name": "[NON-DIFFUSIBLE]"}', True),
        (b'{"inner": [{}, {"name": "[non-diffusible]"}]}', True),
    ],
)
def test_a_masked_value_is_detected_only_if_read_at_any_depth(body: bytes, is_masked: bool) -> None:
    assert read(body).is_masked is is_masked


@given(JSON)
def test_removing_entries_is_idempotent_and_keeps_other_values(value: object) -> None:
    kept = without_entries(("a", "b"), value)
    assert without_entries(("a", "b"), kept) == kept
    assert without_entries((), value) == value
    if not isinstance(value, dict | list):
        assert kept == value
