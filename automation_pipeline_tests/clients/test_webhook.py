"""The webhook client over real sockets: requests, responses and redirects."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from automation_pipeline.clients.http import AddressRefusedError, Guard, HttpClient
from automation_pipeline.clients.webhooks import WebhookClient
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.webhooks import WebhookAnswer
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

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
BODY = '{"name":"Élodie"}'.encode()


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


@pytest.fixture
def other() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def send(
    *allowed: str, path: str = "/hook?key=s3cret", seconds: float = 5.0, guard: Guard | None = None
) -> WebhookAnswer:
    client = WebhookClient(
        now=lambda: NOW,
        allowed_origins=allowed,
        timeout_seconds=seconds,
        guard=guard,
        verify=NO_CERTIFICATES,
    )
    return asyncio.run(
        client.send(
            f"{allowed[0]}{path}", BODY, {"Content-Type": "application/json", "X-Extra": "1"}
        )
    )


def refusal(*allowed: str, **more: float) -> AutomationError:
    with pytest.raises(AutomationError) as caught:
        send(*allowed, **more)  # type: ignore[arg-type]
    return caught.value


def test_the_body_is_sent_unchanged_and_the_response_is_returned(hook: Receiver) -> None:
    assert send(hook.url) == WebhookAnswer(200, "thanks")
    [call] = hook.calls
    assert (call.method, call.path, call.body) == ("POST", "/hook?key=s3cret", BODY)
    assert (call.headers["Content-Type"], call.headers["X-Extra"]) == ("application/json", "1")
    assert call.headers["Host"] == hook.url.removeprefix("http://")


@pytest.mark.parametrize("status", [201, 204, 302, 400, 404, 410, 429, 500, 503])
def test_every_status_is_returned(hook: Receiver, status: int) -> None:
    hook.answer(respond(status))
    assert send(hook.url).status == status


def test_the_retry_after_of_a_receiver_is_returned(hook: Receiver) -> None:
    hook.answer(respond(503, Retry_After="120"))
    assert send(hook.url).retry_after_seconds == 120


def test_a_long_response_is_truncated_and_nul_characters_are_removed(
    hook: Receiver,
) -> None:
    hook.answer(respond(200, "a\0b"))
    assert send(hook.url).text == "ab"
    hook.answer(respond(200, "é" * 50_000))
    assert send(hook.url).text == "é" * 1000


def test_redirects_that_keep_the_method_are_followed(hook: Receiver, other: Receiver) -> None:
    for status in (307, 308):
        hook.answer(respond(status, Location=f"{other.url}/moved"))
        assert send(hook.url, other.url) == WebhookAnswer(200, "thanks")
        call = other.calls.pop()
        assert (call.method, call.path, call.body, call.headers["X-Extra"]) == (
            "POST",
            "/moved",
            BODY,
            "1",
        )


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_would_drop_the_body_is_returned_as_the_response(
    hook: Receiver, other: Receiver, status: int
) -> None:
    hook.answer(respond(status, Location=f"{other.url}/moved"))
    assert send(hook.url, other.url).status == status
    assert other.calls == []


def test_every_redirect_response_is_closed(hook: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    responses: list[httpx.Response] = []
    send_request = HttpClient.send

    async def recorded(*given: Any, **options: Any) -> httpx.Response:
        responses.append(await send_request(*given, **options))
        return responses[-1]

    monkeypatch.setattr(HttpClient, "send", recorded)
    hook.answer(respond(307, "x" * 100, Location="/hook"))
    send(hook.url)
    assert [response.is_closed for response in responses] == [True] * 4


def test_at_most_three_redirects_are_followed(hook: Receiver) -> None:
    hook.answer(respond(307, Location="/again"))
    assert send(hook.url).status == 307
    assert len(hook.calls) == 4


def test_a_redirect_to_an_origin_not_allowed_is_a_permanent_error(
    hook: Receiver, other: Receiver
) -> None:
    hook.answer(respond(307, Location=f"{other.url}/inside"))
    error = refusal(hook.url)
    assert isinstance(error, AddressRefusedError)
    assert (
        str(error)
        == f"webhookUrl origin not allowed (set WEBHOOK_ALLOWED_ORIGINS). Got {other.url}"
    )
    assert other.calls == []


def test_a_loopback_receiver_is_called_only_if_allowed(hook: Receiver) -> None:
    async def loopback(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    for url, guard in ((hook.url, None), ("http://hooks.example.com", Guard(resolve=loopback))):
        client = WebhookClient(now=lambda: NOW, guard=guard or Guard(), verify=NO_CERTIFICATES)
        with pytest.raises(PermanentError, match=r"^webhookUrl IP not allowed$"):
            asyncio.run(client.send(f"{url}/hook", BODY, {}))
    assert hook.calls == []


def test_a_url_that_cannot_be_parsed_is_a_permanent_error() -> None:
    client = WebhookClient(now=lambda: NOW, verify=NO_CERTIFICATES)
    with pytest.raises(AddressRefusedError, match=r"^Invalid webhookUrl format$"):
        asyncio.run(client.send("http://hooks.example.com:port/", BODY, {}))


def test_webhooks_ignore_proxies_from_the_environment(
    hook: Receiver, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", other.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert send(hook.url) == WebhookAnswer(200, "thanks")
    assert other.calls == []


def test_a_missing_response_is_transient_and_its_error_hides_the_query(hook: Receiver) -> None:
    def never(_exchange: BaseHTTPRequestHandler) -> None:
        pause(30.0)

    hook.answer(never)
    assert str(refusal(hook.url, seconds=0.2)) == f"{hook.url} did not answer within 0.2 s."
    hook.answer(hang_up)
    error = refusal(hook.url)
    assert isinstance(error, TransientError)
    assert str(error).startswith(f"{hook.url} could not be reached (")
    assert "could not be reached (ConnectError)" in str(refusal("http://127.0.0.1:9"))


def test_a_body_that_times_out_keeps_the_status_and_text(
    hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.answer(respond_without_end(202, "accepted"))
    client = WebhookClient(
        now=lambda: NOW, allowed_origins=[hook.url], timeout_seconds=3600.0, verify=NO_CERTIFICATES
    )
    sending = client.send(f"{hook.url}/hook", BODY, {})
    assert result_after_timeout("accepted", sending, 3600.0, monkeypatch) == WebhookAnswer(
        202, "accepted"
    )


def test_the_certificate_is_verified_against_the_host_name_and_not_the_pinned_address(
    tmp_path: Path,
) -> None:
    certificate = certificate_for("DNS:hooks.example.com", tmp_path)
    assert asyncio.run(_over_tls("hooks.example.com", certificate)) == WebhookAnswer(200, "")
    with pytest.raises(TransientError):
        asyncio.run(_over_tls("other.example.com", certificate))


async def _over_tls(name: str, certificate: Certificate) -> WebhookAnswer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    class Loopback(Guard):
        async def addresses(self, url: httpx.URL) -> list[str]:
            assert url.host == name
            return ["127.0.0.1"]

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=certificate.server)
    async with server:
        port = server.sockets[0].getsockname()[1]
        client = WebhookClient(now=lambda: NOW, guard=Loopback(), verify=certificate.client)
        return await client.send(f"https://{name}:{port}/", BODY, {})
