"""Request bodies on a real socket: limits, malformed JSON, and concurrent requests."""

import http.client
import json
import resource
import select
import socket
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request

from automation_pipeline.api import bodies
from automation_pipeline.api.app import MAX_HEADER_BYTES
from automation_pipeline.api.errors import refusal, v1_error_format
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline_tests.api.conftest import MACHINE
from automation_pipeline_tests.api.served import served
from automation_pipeline_tests.cases import every_case

SCHEDULES, IMPORT = "/api/automation/schedules", "/api/audit-configs/import"
MEGABYTE = 1_000_000
ANSWER_BYTES = 100_000


@pytest.fixture
def address(api: FastAPI) -> Generator[str]:
    with served(api) as url:
        yield url


@pytest.fixture
def remote(address: str) -> Generator[httpx.Client]:
    with httpx.Client(
        base_url=address, headers={"Authorization": f"Bearer {MACHINE}"}, timeout=60
    ) as client:
        yield client


def padded(size: int) -> bytes:
    """A JSON object of exactly `size` bytes that no route accepts."""
    return b'{"unknown": "' + b"x" * (size - 15) + b'"}'


def test_an_oversized_body_is_413_with_or_without_a_length(remote: httpx.Client) -> None:
    wrong: list[object] = []
    for path, most in ((SCHEDULES, MEGABYTE), (IMPORT, 2 * MEGABYTE)):
        pieces = (padded(most + 1)[start : start + 50_000] for start in range(0, most + 1, 50_000))
        expected = {
            "fits": (padded(most), 400),
            "too big": (padded(most + 1), 413),
            "in chunks": (pieces, 413),
        }
        for how, (content, status) in expected.items():
            answered = remote.post(path, content=content)
            is_plain = status == 400 or (
                answered.json().get("code") == "BODY_TOO_LARGE" and f"{most} " in answered.text
            )
            if (
                answered.status_code != status
                or len(answered.content) > ANSWER_BYTES
                or not is_plain
            ):
                wrong.append((path, how, answered.status_code, answered.text[:200]))
    assert wrong == []


def test_an_endless_body_is_413_before_it_is_read_completely(address: str) -> None:
    piece, sent, answer = b"x" * 100_000, 0, b""
    url_parts = urlsplit(address)
    connection = http.client.HTTPConnection(url_parts.hostname or "", url_parts.port, timeout=60)
    connection.putrequest("POST", SCHEDULES)
    connection.putheader("Authorization", f"Bearer {MACHINE}")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    assert connection.sock is not None
    while not answer and sent < 100 * MEGABYTE:
        connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        sent += len(piece)
        is_there, _, _ = select.select([connection.sock], [], [], 0.05)
        answer = connection.sock.recv(1000) if is_there else b""
    connection.close()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert sent <= 10 * MEGABYTE


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_other_requests_are_served_while_a_body_is_parsed(
    remote: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    parsing, answered = Event(), Event()
    read = bodies.read_object

    def slow(raw: bytes) -> Any:
        parsing.set()
        assert answered.wait(60), "nothing else was answered while the body was parsed"
        return read(raw)

    monkeypatch.setattr(bodies, "read_object", slow)
    with ThreadPoolExecutor() as background:
        posted = background.submit(remote.post, SCHEDULES, content=padded(MEGABYTE))
        assert parsing.wait(60)
        assert remote.get(path).status_code == 200
        answered.set()
        assert posted.result(60).status_code == 400


def test_credentials_are_checked_before_a_body_is_parsed_or_awaited(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bodies, "read_object", lambda _raw: pytest.fail("a stranger's body was parsed")
    )
    for content in (b"[" * 1000, padded(MEGABYTE)):
        assert httpx.post(address + SCHEDULES, content=content).status_code == 401
    url_parts = urlsplit(address)
    with socket.create_connection((url_parts.hostname, url_parts.port), timeout=60) as connection:
        connection.sendall(
            f"POST {SCHEDULES} HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n".encode()
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")


def test_malformed_json_is_400_with_bounded_memory(remote: httpx.Client) -> None:
    deep = 200_000
    cases = {
        "lists without an end": b"[" * deep,
        "lists that end": b"[" * deep + b"]" * deep,
        "objects": b'{"a":' * deep,
        "not too deep for Python": b'{"a":' * 500 + b"1" + b"}" * 500,
        "the same key twice": b'{"name": "a", "name": "b"}',
        "the same key twice inside": b'{"ficheSelection": {"mode": "manual", "mode": "api"}}',
        "a long number": b'{"name": ' + b"9" * 900_000 + b"}",
        "a number of a thousand digits": b'{"name": ' + b"9" * 1000 + b"}",
        "no finite number": b'{"name": 1e999}',
        "NaN": b'{"name": NaN}',
        "Infinity": b'{"name": -Infinity}',
        "not UTF-8": b'{"name": "\xff"}',
        "UTF-16": '{"name": "a"}'.encode("utf-16"),
        "half a character": b'{"name": "\\ud800"}',
        "NUL": b'{"name": "a\\u0000"}',
        "nothing": b"",
        "a list": b"[1]",
        "two documents": b"{}{}",
        "a million zeros": b'{"specificAuditConfigs": [' + b"0," * 480_000 + b"0]}",
        "many keys": b"{" + b",".join(b'"k%d": 1' % number for number in range(70_000)) + b"}",
    }
    wrong: list[object] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, content in cases.items():
        answered = remote.post(SCHEDULES, content=content)
        is_plain = answered.status_code == 400 and answered.json()["code"] in {
            "INVALID_JSON",
            "VALIDATION_ERROR",
        }
        if not is_plain or len(answered.content) > ANSWER_BYTES:
            wrong.append((name, answered.status_code, len(answered.content), answered.text[:200]))
    assert wrong == []
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / (
        1 if sys.platform == "darwin" else 1024
    )
    assert used < 300, f"{used} MB were used to refuse a few bodies"


def test_at_most_fifty_validation_errors_are_listed(remote: httpx.Client) -> None:
    wanted = {
        "name": "n",
        "scheduleType": "MANUAL",
        "ficheSelection": {"mode": "manual", "ficheIds": [1.5] * 5000},
    }
    answered = remote.post(SCHEDULES, json=wanted)
    document = answered.json()
    assert (answered.status_code, len(document["details"])) == (400, 50)
    assert "and 4950 more" in document["error"]
    assert len(answered.content) < ANSWER_BYTES
    with v1_error_format("/v1/requests", "r-1"):
        at_v1 = json.loads(
            bytes(refusal(400, "VALIDATION_ERROR", "Invalid request.", [("a", "b")] * 51).body)
        )
    assert (len(at_v1["details"]), at_v1["message"]) == (50, "Invalid request (and 1 more)")
    query = "&".join(["key="] * 150)
    asked = remote.get(f"/api/requests/audits?{query}")
    assert (asked.status_code, len(asked.json()["details"])) == (400, 50)


def test_long_input_is_truncated_in_error_messages(remote: httpx.Client) -> None:
    for body in (
        {"k" * 900_000: 1},
        {"name": "n", "scheduleType": "x" * 900_000},
        {"timezone": "x" * 900_000},
    ):
        answered = remote.post(SCHEDULES, json=body)
        assert answered.status_code == 400
        assert len(answered.content) < ANSWER_BYTES


def test_a_form_with_too_many_fields_is_400(remote: httpx.Client) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answered = remote.post("/api/realtime/pusher/auth", content=b"a&" * 400_000, headers=kind)
    assert (answered.status_code, answered.json()["error"]) == (
        400,
        "The form has more than 100 fields",
    )


def test_conflicting_length_headers_are_400_and_end_the_connection(address: str) -> None:
    url_parts = urlsplit(address)
    hidden = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"
    chunked, length = b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n"
    for framing in (
        chunked + length,
        length + chunked,
        length + b"Transfer-Encoding: identity\r\n",
    ):
        with socket.create_connection(
            (url_parts.hostname, url_parts.port), timeout=60
        ) as connection:
            connection.sendall(
                b"POST /health HTTP/1.1\r\nHost: here\r\n" + framing + b"\r\n0\r\n\r\n" + hidden
            )
            answers = b"".join(iter(lambda: connection.recv(10_000), b""))
        assert answers.startswith(b"HTTP/1.1 400 "), framing
        assert answers.count(b"HTTP/1.1 ") == 1, framing


def test_endless_headers_are_400(address: str) -> None:
    url_parts = urlsplit(address)
    for line in (b"X-Long: " + b"x" * 1000, b"X-Many: x\r\n" * 100):
        with socket.create_connection(
            (url_parts.hostname, url_parts.port), timeout=60
        ) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n")
            try:
                for _ in range(20 * MAX_HEADER_BYTES // len(line)):
                    connection.sendall(line)
                answer = connection.recv(1000)
            except ConnectionError:
                answer = b"HTTP/1.1 400 "  # the server closed the connection
        assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_large_valid_body_is_accepted(remote: httpx.Client) -> None:
    selection = {"mode": "manual", "ficheIds": [str(number) for number in range(1, 10_001)]}
    schedule = {"name": "Été", "scheduleType": "MANUAL", "ficheSelection": selection}
    assert (
        remote.post(SCHEDULES, content=b"\xef\xbb\xbf" + json.dumps(schedule).encode()).status_code
        == 201
    )


def nested(levels: int) -> bytes:
    """An object of which the innermost value is `levels` levels deep."""
    return b'{"a":' * levels + b"1" + b"}" * levels


def many_values(count: int, padding: int = 0) -> bytes:
    """An object of `count` values; `padding` spaces follow it."""
    return b'{"a":[' + b",".join([b"0"] * (count - 1)) + b"]}" + b" " * padding


@every_case(
    ("raw", "error"),
    [
        (b"{}", None),
        (b'\xef\xbb\xbf{"a": 1}', None),
        (b'{"a": 1e308}', None),
        (b'{"a": ' + b"9" * 100 + b"}", None),
        (b'{"a": ' + b"9" * 101 + b"}", "Invalid JSON body: a number is too large"),
        (b'{"a": -1e309}', "Invalid JSON body: a number is too large"),
        (b'{"a": NaN}', "Invalid JSON body: NaN is not a number of JSON"),
        (b'{"a": 1, "a": 1}', "Invalid JSON body: an object has the same key twice"),
        (b"\xff", "Invalid JSON body: it is not UTF-8"),
        (b"{", "Invalid JSON body"),
        (b"[]", "The body must be a JSON object"),
        (nested(399), None),
        (nested(400), "The body is nested more than 400 levels deep"),
        (many_values(25_000), None),
        (many_values(25_001), "The body contains more than 25000 values"),
        (many_values(50_000, MEGABYTE), None),
        (many_values(50_001, MEGABYTE), "The body contains more than 50000 values"),
        (many_values(25_001, MEGABYTE - len(many_values(25_001))), "The body contains more than 25000 values"),
    ],
)  # fmt: skip
def test_bodies_up_to_the_limits_are_parsed(raw: bytes, error: str | None) -> None:
    if error is None:
        assert bodies.read_object(raw) == json.loads(raw)
        return
    with pytest.raises(AutomationError) as refused:
        bodies.read_object(raw)
    assert str(refused.value) == error


@every_case(
    ("content", "kind", "given"),
    [
        (b"a=1&b=&c=%C3%A9", "application/x-www-form-urlencoded", {"a": "1", "b": "", "c": "é"}),
        (b"a=1", "application/x-www-form-urlencoded; charset=utf-8", {"a": "1"}),
        (b'{"a": "1"}', "application/json", {"a": "1"}),
        (b'{"a": "1"}', "", {"a": "1"}),
        (b"&".join([b"a=1"] * 100), "application/x-www-form-urlencoded", {"a": "1"}),
    ],
)
def test_a_form_or_json_is_read(content: bytes, kind: str, given: dict[str, str]) -> None:
    request = Request({"type": "http", "headers": [(b"content-type", kind.encode())]})
    body = bodies.FormOrJson(JsonModel, None, {}, required=True)
    assert body(request, content) == given


def test_a_body_that_is_not_required_may_be_empty() -> None:
    request = Request({"type": "http", "headers": []})
    assert bodies.JsonBody(JsonModel, None, {}, required=False)(request, b"") == {}
    with pytest.raises(AutomationError, match=r"^Invalid JSON body$"):
        bodies.JsonBody(JsonModel, None, {}, required=True)(request, b"")
