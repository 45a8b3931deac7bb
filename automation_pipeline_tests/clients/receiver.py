"""An HTTP server that stores received webhooks and sends configured responses."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Page = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Receiver:
    """A web server whose `pages` answer the requests in turn. The last one repeats."""

    url: str
    pages: list[Page]
    calls: list[Call] = field(default_factory=list)

    def answer(self, *pages: Page) -> None:
        self.pages = list(pages)

    def next_page(self) -> Page:
        return self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]


def respond(status: int, text: str = "", **headers: str) -> Page:
    def page(request: BaseHTTPRequestHandler) -> None:
        body = text.encode()
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return page


def hang_up(request: BaseHTTPRequestHandler) -> None:
    request.close_connection = True


def respond_without_end(status: int, text: str) -> Page:
    """Sends `text` and keeps the connection open until the client closes it."""

    def page(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.end_headers()
        request.wfile.write(text.encode())
        request.rfile.read()
        request.close_connection = True

    return page


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # the default of 5 refuses concurrent clients


@contextmanager
def receiver(host: str = "127.0.0.1") -> Generator[Receiver]:
    class Exchange(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            running.calls.append(Call(self.command, self.path, dict(self.headers), body))
            running.next_page()(self)

        def log_message(self, *_args: object) -> None:
            return

    server = _Server((host, 0), Exchange)
    running = Receiver(f"http://{host}:{server.server_port}", [respond(200, "thanks")])
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
