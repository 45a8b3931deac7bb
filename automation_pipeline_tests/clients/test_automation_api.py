"""The client of the Automation API: error mapping and idempotent retries."""

from collections.abc import Iterator

import httpx
import pytest

from automation_pipeline.clients import automation_api
from automation_pipeline.clients.automation_api import AutomationApi
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    TransientError,
    UpstreamError,
)
from automation_pipeline.core.logs import correlated
from automation_pipeline_tests.cases import every_case

URL, TOKEN = "https://api.example.test:8443/deep/", "s3cret-api-token"
DONE = {"success": True, "data": {}}


class ScriptedApi:
    """A transport that returns the answers in turn and stores the requests. The last answer repeats."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def api(self) -> AutomationApi:
        return AutomationApi(URL, TOKEN, transport=httpx.MockTransport(self))


def refused(
    status: int, code: str, sentence: str = "It cannot be", **more: object
) -> httpx.Response:
    return httpx.Response(status, json={"success": False, "error": sentence, "code": code, **more})


@every_case(
    ("status", "code", "kind", "sentence"),
    [
        (400, "VALIDATION_ERROR", InvalidInputError, "It cannot be"),
        (400, "INVALID_JSON", InvalidInputError, "It cannot be"),
        (401, "AUTHENTICATION_ERROR", PermanentError,
         "The API at https://api.example.test:8443 refuses the token: It cannot be."),
        (403, "AUTHORIZATION_ERROR", PermanentError,
         "The API at https://api.example.test:8443 refuses the token: It cannot be."),
        (404, "NOT_FOUND", NotFoundError, "It cannot be"),
        (409, "CONFLICT", ConflictError, "It cannot be"),
        (413, "BODY_TOO_LARGE", InvalidInputError, "It cannot be"),
        (422, "VALIDATION_ERROR", InvalidInputError, "It cannot be"),
        (418, "TEAPOT", TransientError, "It cannot be"),
        (500, "INTERNAL_ERROR", TransientError, "It cannot be (request 7f)"),
        (502, "EXTERNAL_API_ERROR", UpstreamError, "It cannot be"),
        (503, "DATABASE_ERROR", TransientError, "It cannot be"),
        (503, "CONFIGURATION_ERROR", PermanentError, "It cannot be"),
        (504, "TIMEOUT", TransientError, "It cannot be"),
    ],
)  # fmt: skip
def test_an_error_response_becomes_the_matching_exception(
    status: int, code: str, kind: type[AutomationError], sentence: str
) -> None:
    scripted = ScriptedApi(refused(status, code, requestId="7f"))
    with pytest.raises(AutomationError) as error:
        scripted.api.call("PATCH", "/x", body={})
    assert (type(error.value), str(error.value)) == (kind, sentence)


def test_a_validation_error_contains_the_invalid_fields() -> None:
    details = [
        {"field": "timeOfDay", "message": "is required"},
        {"field": "", "message": "both at once"},
        {"reason": "of enrichment"},
    ]
    with pytest.raises(InvalidInputError) as error:
        ScriptedApi(refused(400, "VALIDATION_ERROR", details=details)).api.call(
            "POST", "/x", body={}
        )
    assert error.value.fields == (
        ("timeOfDay", "is required"),
        ("", "both at once"),
        ("", "of enrichment"),
    )


@every_case(
    "answer",
    [
        httpx.Response(200, text="<html>Welcome</html>"),
        httpx.Response(200, json=[1]),
        httpx.Response(404, text="nginx"),
        httpx.Response(404, json={"message": "no such page"}),
        httpx.Response(302, headers={"Location": "https://elsewhere.test"}),
    ],
)
def test_a_response_from_another_service_is_an_upstream_error(answer: httpx.Response) -> None:
    scripted = ScriptedApi(answer)
    with pytest.raises(
        UpstreamError,
        match=r"^What answers at https://api\.example\.test:8443 is not the API of this system",
    ):
        scripted.api.call("GET", "/x")
    assert [request.url.host for request in scripted.requests] == ["api.example.test"]


@every_case(
    "lost", [httpx.ReadError("reset"), httpx.RemoteProtocolError("gone"), httpx.ReadTimeout("slow")]
)
def test_a_post_with_a_lost_response_is_retried_once_with_the_same_idempotency_key(
    lost: Exception,
) -> None:
    scripted = ScriptedApi(lost, httpx.Response(201, json=DONE))
    assert scripted.api.call("POST", "/x", body={"a": 1}) == DONE
    first, second = scripted.requests
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert first.content == second.content == b'{"a":1}'
    scripted = ScriptedApi(lost)
    with pytest.raises(TransientError):
        scripted.api.call("GET", "/x")
    assert len(scripted.requests) == 2


def test_a_compressed_or_too_large_response_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Body(httpx.SyncByteStream):
        sent = 0

        def __iter__(self) -> Iterator[bytes]:
            for _ in range(100):
                self.sent += 600_000
                yield bytes(600_000)

    monkeypatch.setattr(automation_api, "MAX_BYTES", 1_000_000)
    body = Body()
    for answer, reason in (
        (
            httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=body),
            "it is compressed (gzip)",
        ),
        (httpx.Response(200, stream=body), "it is larger than 1 MB"),
    ):
        with pytest.raises(UpstreamError) as error:
            ScriptedApi(answer).api.call("GET", "/x")
        assert str(error.value) == (
            f"The answer of the API at https://api.example.test:8443 cannot be read: {reason}."
        )
    assert body.sent == 1_200_000


def test_an_empty_204_response_is_a_success() -> None:
    assert ScriptedApi(httpx.Response(204)).api.call("DELETE", "/api/things/1") == {}


def test_each_request_has_its_own_idempotency_key() -> None:
    scripted = ScriptedApi(httpx.Response(200, json=DONE))
    api = scripted.api
    api.call("POST", "/x")
    api.call("POST", "/x")
    assert len({request.headers["Idempotency-Key"] for request in scripted.requests}) == 2


@every_case("ask", [
    lambda api: api.call("PUT", "/x", body={}), lambda api: api.call("PATCH", "/x", body={}),
    lambda api: api.call("DELETE", "/x"),
    lambda api: api.call("POST", "/x", repeatable=False),
])  # fmt: skip
def test_a_request_that_is_unsafe_to_repeat_is_sent_once(ask: object) -> None:
    scripted = ScriptedApi(httpx.ReadError("reset"))
    with pytest.raises(TransientError, match="could not be reached"):
        ask(scripted.api)  # type: ignore[operator]
    assert [request.headers.get("Idempotency-Key") for request in scripted.requests] == [None]


@every_case(
    ("failure", "message"),
    [
        (httpx.ConnectError("no route"), "could not be reached"),
        (httpx.ConnectTimeout("slow"), "did not answer in time"),
    ],
)
def test_a_connection_error_names_the_origin_without_secrets(
    failure: Exception, message: str
) -> None:
    with pytest.raises(TransientError) as error:
        ScriptedApi(failure).api.call("GET", "/x", query={"q": "private"})
    assert str(error.value).startswith(f"The API at https://api.example.test:8443 {message}")
    assert not {"s3cret", "private", "deep"} & set(str(error.value).replace("-", " ").split())


def test_a_request_has_encoded_query_token_and_request_id() -> None:
    scripted = ScriptedApi(httpx.Response(200, json=DONE))
    with correlated("seven"):
        scripted.api.call(
            "GET", "/api/x", query={"status": ["a", "b"], "all": True, "none": None, "limit": 5}
        )
    [request] = scripted.requests
    assert (
        str(request.url)
        == "https://api.example.test:8443/deep/api/x?status=a&status=b&all=true&limit=5"
    )
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"
    assert request.headers["X-Request-Id"] == "seven"
