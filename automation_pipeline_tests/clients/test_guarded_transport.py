"""The guarded transport resolves a name once, checks the addresses, and connects to a checked address."""

import asyncio
from collections.abc import Sequence

import httpx
import pytest

from automation_pipeline.clients import http as client
from automation_pipeline.clients.http import (
    AddressRefusedError,
    Guard,
    GuardedTransport,
    NameNotFoundError,
    addresses_of,
)
from automation_pipeline_tests.clients.keep_alive_server import running_keep_alive_server

PUBLIC, OTHER = "93.184.216.34", "2606:4700::1111"


class FakeResolver:
    """A resolver that returns the answers in turn. The last one repeats."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.lookups: list[tuple[str, int]] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append((host, port))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not answer:
            raise OSError("Name or service not known")
        return answer


class FakeNetwork(httpx.AsyncBaseTransport):
    """A mock network. Connections to the `dead` hosts fail."""

    def __init__(self, *answers: httpx.Response, dead: Sequence[str] = ()) -> None:
        self.answers, self.dead = list(answers), dead
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.host in self.dead:
            raise httpx.ConnectError("connection refused")
        return self.answers.pop(0) if self.answers else httpx.Response(200)


def fetch(
    url: str, names: FakeResolver, wire: FakeNetwork, *allowed: str, follow: bool = False
) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = GuardedTransport(Guard(allowed, resolve=names.resolve), inner=wire)
        async with httpx.AsyncClient(transport=transport, follow_redirects=follow) as http:
            return await http.get(url)

    return asyncio.run(go())


def test_the_connection_uses_the_checked_address_with_the_requested_host_name() -> None:
    names, wire = FakeResolver([PUBLIC]), FakeNetwork()
    assert fetch("https://hooks.example.com:8443/a?b=c", names, wire).status_code == 200
    [request] = wire.requests
    assert str(request.url) == f"https://{PUBLIC}:8443/a?b=c"
    assert request.headers["Host"] == "hooks.example.com:8443"
    assert request.extensions["sni_hostname"] == "hooks.example.com"
    assert names.lookups == [("hooks.example.com", 8443)]


def test_a_name_is_resolved_once_per_request() -> None:
    names, wire = FakeResolver([PUBLIC], ["127.0.0.1"]), FakeNetwork()
    fetch("http://rebinding.example.com/", names, wire)
    assert [request.url.host for request in wire.requests] == [PUBLIC]
    assert len(names.lookups) == 1
    with pytest.raises(AddressRefusedError, match="webhookUrl IP not allowed"):
        fetch("http://rebinding.example.com/", names, wire)
    assert len(wire.requests) == 1


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["100.64.0.1"], ["::1"], ["fd00::1"], ["fe80::1%eth0"],
        ["::ffff:127.0.0.1"], [PUBLIC, "10.0.0.1"], ["10.0.0.1", PUBLIC], [OTHER, "::1"],
    ],
)  # fmt: skip
def test_a_name_with_any_private_address_is_refused(found: list[str]) -> None:
    wire = FakeNetwork()
    with pytest.raises(AddressRefusedError, match="webhookUrl IP not allowed"):
        fetch("https://hooks.example.com/", FakeResolver(found), wire)
    assert wire.requests == []


@pytest.mark.parametrize(
    "url", ["http://localhost./", "http://[::1]/", "http://0x7f.1/", "http://metadata.internal/"]
)
def test_a_private_host_name_is_refused_without_a_lookup(url: str) -> None:
    names = FakeResolver([PUBLIC])
    with pytest.raises(AddressRefusedError):
        fetch(url, names, FakeNetwork())
    assert names.lookups == []


def test_a_redirect_to_a_private_name_or_address_is_refused() -> None:
    for target in (
        "http://169.254.169.254/latest/",
        "http://inside.example.com/",
        "http://localhost/",
    ):
        names, wire = (
            FakeResolver([PUBLIC], ["10.1.2.3"]),
            FakeNetwork(httpx.Response(302, headers={"Location": target})),
        )
        with pytest.raises(AddressRefusedError):
            fetch("http://hooks.example.com/", names, wire, follow=True)
        assert len(wire.requests) == 1


def test_the_next_address_is_tried_when_the_first_is_unreachable() -> None:
    wire = FakeNetwork(dead=[OTHER])
    assert (
        fetch("http://hooks.example.com/", FakeResolver([OTHER, PUBLIC]), wire).status_code == 200
    )
    assert [request.url.host for request in wire.requests] == [OTHER, PUBLIC]
    with pytest.raises(httpx.ConnectError):
        fetch("http://hooks.example.com/", FakeResolver([OTHER]), wire)


def test_a_name_without_addresses_is_reported_as_not_found() -> None:
    with pytest.raises(NameNotFoundError):
        fetch("http://nowhere.example.com/", FakeResolver([]), FakeNetwork())


def test_allowed_origins_skip_the_address_check_and_redirect_only_to_allowed_origins() -> None:
    names = FakeResolver([PUBLIC])
    wire = FakeNetwork(
        httpx.Response(200), httpx.Response(302, headers={"Location": "http://127.0.0.1:9001/"})
    )
    fetch("http://localhost:9000/", names, wire, "http://localhost:9000")
    assert (wire.requests[0].url.host, names.lookups) == ("localhost", [])
    with pytest.raises(AddressRefusedError, match="origin not allowed"):
        fetch("http://localhost:9000/", names, wire, "http://localhost:9000", follow=True)


def test_localhost_resolves_to_loopback_addresses() -> None:
    assert set(asyncio.run(addresses_of("localhost", 80))) <= {"127.0.0.1", "::1"}


def test_a_connection_is_reused_only_for_its_host_name_while_the_address_is_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "is_public", lambda place: str(place) in {"127.0.0.1", "127.0.0.2"})
    names = FakeResolver(["127.0.0.1"])

    async def go() -> None:
        async with running_keep_alive_server("0.0.0.0") as server:  # noqa: S104  all of loopback
            port = server.url.rpartition(":")[2]

            async def connections_after(name: str) -> int:
                await http.get(f"http://{name}:{port}/")
                return server.connections

            async with httpx.AsyncClient(
                transport=GuardedTransport(Guard(resolve=names.resolve))
            ) as http:
                assert [
                    await connections_after(name)
                    for name in ("a.test", "a.test", "b.test", "a.test")
                ] == [1, 1, 2, 2]
                names.answers = [["127.0.0.2"]]
                assert await connections_after("a.test") == 3
                names.answers = [["10.0.0.1"]]
                with pytest.raises(AddressRefusedError):
                    await connections_after("a.test")
            assert server.local_addresses == ["127.0.0.1", "127.0.0.1", "127.0.0.2"]

    asyncio.run(go())
