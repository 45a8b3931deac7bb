"""Runs the simulator in the foreground: the socket, uvicorn, signals, and the line for which a parent process
waits."""

import signal
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from automation_pipeline.simulator.app import create_app
from automation_pipeline.simulator.gate import Conditions, OpenProtocol
from automation_pipeline.simulator.pusher.channels_api import App
from automation_pipeline.simulator.registries.state import Credentials
from automation_pipeline.simulator.shop.catalogue import Sizes, size_fault
from automation_pipeline.simulator.world.world import World

DEFAULT_TOKEN = "sim-token"  # noqa: S105 - valid for the simulator only
DEFAULT_SPEECH_KEY = "sim-speech-key"
DEFAULT_LLM_KEY = "sim-llm-key"
DEFAULT_PUSHER_APP_ID = "4010"
DEFAULT_PUSHER_KEY = "sim-pusher-key"
DEFAULT_PUSHER_SECRET = "sim-pusher-secret"  # noqa: S105 - the same
DEFAULT_SHOP_TOKEN = "sim-shop-token"  # noqa: S105 - the same
DEFAULT_INPI_USERNAME = "sim-inpi@exemple.test"
DEFAULT_INPI_PASSWORD = "sim-inpi-password"  # noqa: S105 - the same
DEFAULT_ENTREPRISE_TOKEN = "sim-entreprise-token"  # noqa: S105 - the same
BACKLOG = 2048


class SimulatorStartError(Exception):
    """The simulator cannot start. The message is one sentence."""


def serve(  # noqa: PLR0913 - one keyword per option
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    seed: int = 7,
    fiches_per_day: int = 24,
    latency: float = 0.0,
    token: str = DEFAULT_TOKEN,
    vary: bool = True,
    speech_key: str = DEFAULT_SPEECH_KEY,
    speech_per_minute: int = 0,
    llm_key: str = DEFAULT_LLM_KEY,
    llm_per_minute: int = 0,
    pusher_app_id: str = DEFAULT_PUSHER_APP_ID,
    pusher_key: str = DEFAULT_PUSHER_KEY,
    pusher_secret: str = DEFAULT_PUSHER_SECRET,
    shop_token: str = DEFAULT_SHOP_TOKEN,
    shop_products: int = 40,
    shop_variants: int = 3,
    inpi_username: str = DEFAULT_INPI_USERNAME,
    inpi_password: str = DEFAULT_INPI_PASSWORD,
    entreprise_token: str = DEFAULT_ENTREPRISE_TOKEN,
) -> None:
    """Serve until SIGTERM or SIGINT. Port 0 chooses a free port, which the printed line names.

    Raises SimulatorStartError if the address is not available or the shop has too many variants, and ValueError for
    an invalid number of fiches.
    """
    if fault := size_fault(shop_products, shop_variants):
        raise SimulatorStartError(fault)
    app = create_app(
        World(seed, fiches_per_day, vary),
        token=token,
        latency=latency,
        speech_key=speech_key,
        speech_per_minute=speech_per_minute,
        llm_key=llm_key,
        llm_per_minute=llm_per_minute,
        pusher_app=App(pusher_app_id, pusher_key, pusher_secret),
        shop_token=shop_token,
        shop_sizes=Sizes(shop_products, shop_variants),
        registry_keys=Credentials(inpi_username, inpi_password, entreprise_token),
    )
    with _listen(host, port) as listener:
        _Server(_config(app), app.state.conditions).run([listener])


def _config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=OpenProtocol,
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
        backlog=BACKLOG,
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        reason = (
            str(error.strerror).partition(" (while")[0]
            if isinstance(error, OSError)
            else "no such port"
        )
        raise SimulatorStartError(
            f"The simulator cannot listen on {host}:{port}: {reason}."
        ) from error


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, conditions: Conditions) -> None:
        super().__init__(config)
        self._conditions = conditions

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            sys.stdout.write(f"simulator listening on http://{host}:{port}\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._conditions.faults.clear()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Like uvicorn's method, but does not raise the signal again, so that a stop on request is a success."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
