"""The server process."""

import signal
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from automation_pipeline.api.app import THREADS, create_app
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.storage.database import Pace

BACKLOG = 2048
MOST_HEAD_BYTES = 65_536


def serve(services: Services, *, host: str, port: int) -> None:
    """Until SIGTERM or SIGINT. Port 0 takes a free one, which the printed line names."""
    services.database.serve(Pace(THREADS, services.settings.api_timeout_seconds))
    app = create_app(services)
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=services.settings.api_shutdown_seconds,
        backlog=BACKLOG,
    )
    with _listen(host, port) as listener:
        _Server(config, app).run([listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        reason = (
            str(error.strerror).partition(" (while")[0]
            if isinstance(error, OSError)
            else "no such port"
        )
        raise PermanentError(f"The API cannot listen on {host}:{port}: {reason}.") from None


class BoundedProtocol(HttpToolsProtocol):
    """Limits a request's headers, which uvicorn reads without a limit."""

    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers of the request are too large.")

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            sys.stdout.write(
                f"api listening on http://{f'[{host}]' if ':' in host else host}:{port}\n"
            )
            sys.stdout.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ends the streams, which would never end by themselves."""
        self._app.state.stopping.set()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """As in uvicorn, but without raising the signal again: stopping on request is a success."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            wanted: signal.signal(wanted, self.handle_exit)
            for wanted in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for wanted, handler in before.items():
                signal.signal(wanted, handler)
