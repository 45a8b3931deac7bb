"""SSRF tests of webhooks and recordings, down to the opened sockets.

Every name resolves to a public address unless a test passes other addresses.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import anyio
import pytest

from automation_pipeline.clients.audio import AudioDownloader, audio_guard
from automation_pipeline.clients.http import Guard, SlotTransport
from automation_pipeline.clients.webhooks import WebhookClient
from automation_pipeline.core.errors import AutomationError, PermanentError
from automation_pipeline_tests.clients.speech_server import NOW
from automation_pipeline_tests.simulator_control import NO_CERTIFICATES

PUBLIC = "93.184.216.34"
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Call = Callable[[str, Resolve], None]


class LocalServer:
    """A local HTTP server. `moved_to` is the target of its redirects."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.calls: list[str] = []
        self.moved_to: str | None = None


@contextmanager
def local_server() -> Iterator[LocalServer]:
    class Exchange(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.calls.append(self.path)
            self.send_response(307 if here.moved_to else 200)
            if here.moved_to:
                self.send_header("Location", here.moved_to)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Exchange)
    here = LocalServer(server.server_port)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def inside() -> Iterator[LocalServer]:
    with local_server() as inside:
        yield inside


@pytest.fixture
def outside() -> Iterator[LocalServer]:
    with local_server() as outside:
        yield outside


@pytest.fixture
def opened(outside: LocalServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts of opened sockets. Connections to the public address go to `outside`."""
    hosts: list[str] = []

    connect = anyio.connect_tcp

    async def connecting(remote_host: str, remote_port: int, **options: Any) -> Any:
        hosts.append(remote_host)
        there = ("127.0.0.1", outside.port) if remote_host == PUBLIC else (remote_host, remote_port)
        return await connect(*there, **options)

    monkeypatch.setattr(anyio, "connect_tcp", connecting)
    return hosts


def by_webhook(url: str, resolve: Resolve) -> None:
    client = WebhookClient(now=lambda: NOW, guard=Guard(resolve=resolve), verify=NO_CERTIFICATES)
    asyncio.run(client.send(url, b"{}", {}))


def by_recording(url: str, resolve: Resolve) -> None:
    async def go() -> None:
        guard = Guard(name=audio_guard().name, resolve=resolve)
        plain = SlotTransport(1, verify=lambda: NO_CERTIFICATES)
        hosts = AudioDownloader(now=lambda: NOW, guard=guard, connections=1, transport=plain)
        try:
            async with hosts.recording(url):
                return
        finally:
            await hosts.aclose()

    asyncio.run(go())


@pytest.fixture(params=[by_webhook, by_recording])
def call(request: pytest.FixtureRequest) -> Call:
    return request.param


def resolving_to(*answers: Sequence[str]) -> Resolve:
    """Returns the answers in turn. The last one repeats."""
    left = list(answers)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


HOSTS = [
    # loopback, in the notations that resolvers accept
    "127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "2130706433", "017700000001", "0177.0.0.1", "0x7f000001", "0x7f.1",
    "0x7f.0x0.0x0.0x1", "0X7F.0.0.1", "127.255.255.254", "0", "0.0.0.0", "00000000", "0x0", "localhost", "LOCALHOST",  # noqa: S104  called, not listened on
    "localhost.", "foo.localhost", "foo.localhost.", "ip6-localhost", "１２７.０.０.１", "127。0。0。1", "①②⑦.0.0.1",
    "ｌｏｃａｌｈｏｓｔ", "%31%32%37.0.0.1", "127.0.0.1%00.example.com",
    "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]",
    "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[::1%25lo]",
    # private networks and cloud metadata services
    "10.0.0.1", "167772161", "172.16.0.1", "172.31.255.255", "192.168.0.1", "0xc0a80001", "0300.0250.0.1",
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "100.64.0.1", "100.100.100.200",
    "168.63.129.16", "198.18.0.1", "192.0.2.1", "224.0.0.1", "255.255.255.255", "[fd00::1]", "[fc00::1]", "[fe80::1]",
    "[febf::1]", "[fec0::1]", "[ff02::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
    "[::ffff:10.0.0.1]",
    "[2002:a9fe:a9fe::]", "[64:ff9b::a9fe:a9fe]", "[2001:db8::1]", "metadata.google.internal", "metadata",
    "printer.local", "metadata.google.internal.", "redis", "db.lan", "intranet.corp",
    # ambiguous hosts
    "anna:pw@public.example.com", "anna@127.0.0.1", "public.example.com@127.0.0.1", "public.example.com:80@127.0.0.1",
    ":@public.example.com", "127.0.0.1\\@public.example.com", "public.example.com\\@127.0.0.1",
    "public.example.com:80\\", "127.0.0.1\t.example.com", "127.0.0.1\n", " 127.0.0.1", "[::1", "::1", "",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_no_socket_is_opened_for_a_host_that_is_not_public(
    host: str, call: Call, inside: LocalServer, opened: list[str]
) -> None:
    with pytest.raises(PermanentError):
        call(f"http://{host}:{inside.port}/", resolving_to([PUBLIC]))
    assert (opened, inside.calls) == ([], [])


@pytest.mark.parametrize(
    "scheme", ["ftp", "file", "gopher", "dict", "ws", "javascript", "unix", "http+unix", "data"]
)
def test_no_socket_is_opened_for_a_scheme_other_than_http(
    scheme: str, call: Call, inside: LocalServer, opened: list[str]
) -> None:
    with pytest.raises(PermanentError):
        call(f"{scheme}://public.example.com:{inside.port}/", resolving_to([PUBLIC]))
    assert (opened, inside.calls) == ([], [])


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["fd00:ec2::254"],
        ["fe80::1%lo"], ["64:ff9b::7f00:1"], ["2002:7f00:1::"], [PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC],
        ["2606:4700::1111", "::1"],
    ],
)  # fmt: skip
def test_no_socket_is_opened_for_a_name_that_resolves_to_a_private_address(
    found: list[str], call: Call, inside: LocalServer, opened: list[str]
) -> None:
    with pytest.raises(PermanentError):
        call(f"http://public.example.com:{inside.port}/", resolving_to(found))
    assert (opened, inside.calls) == ([], [])


def test_the_connection_uses_the_address_that_was_checked(
    call: Call, inside: LocalServer, outside: LocalServer, opened: list[str]
) -> None:
    call(f"http://rebinding.example.com:{inside.port}/", resolving_to([PUBLIC], ["127.0.0.1"]))
    assert opened == [PUBLIC]
    assert (len(outside.calls), inside.calls) == (1, [])


@pytest.mark.parametrize(
    "host", [*HOSTS[:60:4], "[::1]", "169.254.169.254", "localhost.", "anna@127.0.0.1"]
)
def test_a_redirect_to_a_private_host_is_not_followed(
    host: str, call: Call, inside: LocalServer, outside: LocalServer, opened: list[str]
) -> None:
    outside.moved_to = f"http://{host}:{inside.port}/latest/meta-data".encode().decode("latin-1")
    with pytest.raises(AutomationError):
        call("http://public.example.com/", resolving_to([PUBLIC]))
    assert set(opened) == {PUBLIC}
    assert inside.calls == []


def test_a_redirect_to_the_same_name_with_a_private_address_is_not_followed(
    call: Call, inside: LocalServer, outside: LocalServer, opened: list[str]
) -> None:
    outside.moved_to = f"http://public.example.com:{inside.port}/again"
    with pytest.raises(PermanentError):
        call("http://public.example.com/", resolving_to([PUBLIC], ["127.0.0.1"]))
    assert (opened, inside.calls) == ([PUBLIC], [])


def test_a_public_address_is_called(call: Call, outside: LocalServer, opened: list[str]) -> None:
    call("http://public.example.com/#@127.0.0.1", resolving_to([PUBLIC]))
    assert (opened, len(outside.calls)) == ([PUBLIC], 1)
