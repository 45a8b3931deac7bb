"""HTTPS calls of organisations over real sockets: requests, address checks, and masked secrets."""

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from automation_pipeline.clients.webhooks import HttpsCallClient, HttpsGuard
from automation_pipeline.core.errors import AutomationError, InvalidInputError, TransientError
from automation_pipeline.org_jobs.ports import HttpsAnswer, HttpsRequest
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.certificates import Certificate, certificate_for
from automation_pipeline_tests.clients.broken_streams import result_after_timeout
from automation_pipeline_tests.clients.receiver import (
    Receiver,
    hang_up,
    receiver,
    respond,
    respond_without_end,
)
from automation_pipeline_tests.simulator_control import NO_CERTIFICATES
from automation_pipeline_tests.waiting import pause

SECRET = 'hunter2/hunter"2'
TIMEOUT_SECONDS = 60.0


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


@pytest.fixture
def other() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def request(url: str, **more: Any) -> HttpsRequest:
    values = {
        "method": "POST",
        "headers": {"X-Key": SECRET},
        "body": b"{}",
        "timeout_seconds": TIMEOUT_SECONDS,
    }
    return HttpsRequest(url=url, **(values | {"secrets": (SECRET,)} | more))


def call(
    *listed: str, url: str | None = None, guard: HttpsGuard | None = None, **more: Any
) -> HttpsAnswer:
    client = HttpsCallClient(guard or HttpsGuard(exceptions=listed), verify=NO_CERTIFICATES)
    return asyncio.run(client.call(request(url or f"{listed[0]}/hook", **more)))


def refusal(*listed: str, **more: Any) -> AutomationError:
    with pytest.raises(AutomationError) as caught:
        call(*listed, **more)
    assert SECRET not in str(caught.value)
    return caught.value


def resolving_to(*addresses: str) -> HttpsGuard:
    async def resolve(_host: str, _port: int) -> list[str]:
        return list(addresses)

    return HttpsGuard(resolve=resolve)


def test_the_request_is_sent_unchanged_and_the_response_is_returned(hook: Receiver) -> None:
    headers = {"X-Key": SECRET, "Idempotency-Key": "12:1", "Content-Type": "application/json"}
    assert call(hook.url, headers=headers, body=b'{"a":1}') == HttpsAnswer(200, "thanks")
    [arrived] = hook.calls
    assert (arrived.method, arrived.path, arrived.body) == ("POST", "/hook", b'{"a":1}')
    assert {name: arrived.headers[name] for name in headers} == headers


@pytest.mark.parametrize("status", [201, 204, 302, 400, 404, 429, 500, 503])
def test_every_status_is_returned(hook: Receiver, status: int) -> None:
    hook.answer(respond(status))
    assert call(hook.url).status == status


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"you said {SECRET}!", "you said [masked]!"),
        ('{"echo": "hunter2/hunter\\"2"}', '{"echo": "[masked]"}'),
        ("?q=hunter2%2Fhunter%222&a", "?q=[masked]&a"),
        ("a\0b", "ab"),
        ("é" * 5000, "é" * 999 + "…"),
    ],
)
def test_the_response_text_is_truncated_and_echoed_secrets_are_masked(
    hook: Receiver, text: str, kept: str
) -> None:
    hook.answer(respond(200, text))
    assert call(hook.url).text == kept


@pytest.mark.parametrize("before", [0, 900, 990, 1000, 4000])
@pytest.mark.parametrize("times", [1, 400])
def test_truncation_never_leaves_part_of_a_secret(hook: Receiver, before: int, times: int) -> None:
    hook.answer(respond(200, "." * before + SECRET * times + "." * 5000))
    assert "hunt" not in call(hook.url).text


def test_a_bearer_token_is_masked_without_its_prefix(hook: Receiver) -> None:
    hook.answer(respond(401, "unknown: abcdef123"))
    assert call(hook.url, secrets=("Bearer abcdef123",)).text == "unknown: [masked]"


def test_a_redirect_is_followed_only_within_its_origin(hook: Receiver, other: Receiver) -> None:
    hook.answer(respond(307, Location="/moved"), respond(200, "there"))
    assert call(hook.url) == HttpsAnswer(200, "there")
    assert [arrived.path for arrived in hook.calls] == ["/hook", "/moved"]
    hook.answer(respond(308, Location=f"{other.url}/moved"))
    assert call(hook.url, other.url).status == 308
    assert other.calls == []


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_would_change_the_method_is_returned_as_the_response(
    hook: Receiver, status: int
) -> None:
    hook.answer(respond(status, Location="/moved"))
    assert call(hook.url).status == status
    assert len(hook.calls) == 1


def test_at_most_three_redirects_are_followed(hook: Receiver) -> None:
    hook.answer(respond(307, Location="/again"))
    assert call(hook.url).status == 307
    assert len(hook.calls) == 4


@every_case(
    ("url", "addresses", "why"),
    [
        ("http://hooks.example.com/a", ["93.184.216.34"], "url must begin with https:// unless "),
        ("https://hooks.example.com/a", ["127.0.0.1"], "url IP not allowed"),
        ("https://hooks.example.com/a", ["93.184.216.34", "10.0.0.1"], "url IP not allowed"),
        ("https://169.254.169.254/meta", [], "url IP not allowed"),
        ("https://[::1]/a", [], "url IP not allowed"),
        ("https://localhost/a", [], "url hostname not allowed"),
        ("https://user:pw@hooks.example.com/a", [], "url must not include credentials"),
        ("ftp://hooks.example.com/a", [], "url must begin with https:// unless "),
    ],
)
def test_only_public_https_addresses_are_called(url: str, addresses: list[str], why: str) -> None:
    error = refusal(url=url, guard=resolving_to(*addresses))
    assert (isinstance(error, InvalidInputError), str(error).startswith(why)) == (True, True)


def test_an_allowed_origin_does_not_allow_other_origins(hook: Receiver, other: Receiver) -> None:
    error = refusal(hook.url, url=f"{other.url}/a")
    assert str(error) == (
        f"url must begin with https:// unless ORG_JOBS_HTTPS_ALLOWED_ORIGINS lists its origin. Got {other.url}"
    )
    assert other.calls == []


def test_proxies_from_the_environment_are_ignored(
    hook: Receiver, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", other.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert call(hook.url).status == 200
    assert other.calls == []


def test_a_missing_response_is_transient_and_shows_only_the_origin(hook: Receiver) -> None:
    def never(_exchange: BaseHTTPRequestHandler) -> None:
        pause(30.0)

    url = f"{hook.url}/s3cret?a=s3cret"
    hook.answer(never)
    error = refusal(hook.url, url=url, timeout_seconds=0.2)
    assert (isinstance(error, TransientError), str(error)) == (
        True,
        f"{hook.url} did not answer within 0.2 s.",
    )
    hook.answer(hang_up)
    error = refusal(hook.url, url=url)
    assert (
        isinstance(error, TransientError),
        str(error).startswith(f"{hook.url} could not be reached ("),
    ) == (
        True,
        True,
    )


@pytest.mark.parametrize(
    ("started", "kept"),
    [
        ("accepted", "accepted"),
        (f"{SECRET} is accepted", "[masked] is accepted"),
        (f"{SECRET} hunter2/hun", "[masked] "),
    ],
)
def test_a_body_that_times_out_keeps_the_status_and_shows_no_partial_secret(
    hook: Receiver, monkeypatch: pytest.MonkeyPatch, started: str, kept: str
) -> None:
    hook.answer(respond_without_end(202, started))
    client = HttpsCallClient(HttpsGuard(exceptions=(hook.url,)), verify=NO_CERTIFICATES)
    calling = client.call(request(f"{hook.url}/hook", timeout_seconds=3600.0))
    assert result_after_timeout(started, calling, 3600.0, monkeypatch) == HttpsAnswer(202, kept)


def test_an_unresolvable_name_is_a_transient_error() -> None:
    async def unknown(_host: str, _port: int) -> list[str]:
        raise OSError

    error = refusal(url="https://hooks.example.com/", guard=HttpsGuard(resolve=unknown))
    assert isinstance(error, TransientError)


@pytest.mark.parametrize("headers", [{"X-Key": "é"}, {"X-Kéy": "a"}, {"X-Key": "a\r\nX-Other: b"}])
def test_an_unsendable_header_is_refused_without_a_call(
    hook: Receiver, headers: dict[str, str]
) -> None:
    assert isinstance(refusal(hook.url, headers=headers), InvalidInputError | TransientError)
    assert hook.calls == []


def test_the_certificate_is_verified_against_the_host_name_and_not_the_pinned_address(
    tmp_path: Path,
) -> None:
    certificate = certificate_for("DNS:hooks.example.com", tmp_path)
    assert asyncio.run(_over_tls("hooks.example.com", certificate)) == HttpsAnswer(200, "")
    with pytest.raises(TransientError):
        asyncio.run(_over_tls("other.example.com", certificate))


async def _over_tls(name: str, certificate: Certificate) -> HttpsAnswer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    class Loopback(HttpsGuard):
        async def addresses(self, url: httpx.URL) -> list[str]:
            assert url.host == name
            return ["127.0.0.1"]

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=certificate.server)
    async with server:
        port = server.sockets[0].getsockname()[1]
        client = HttpsCallClient(Loopback(), verify=certificate.client)
        return await client.call(request(f"https://{name}:{port}/", headers={}))
