"""The HTTP application with its routers, middleware, error handlers and OpenAPI document; and the
server process."""

import asyncio
import re
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from types import FrameType

import uvicorn
from anyio import to_thread
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from automation_pipeline.access import routes as tokens
from automation_pipeline.api import health, realtime
from automation_pipeline.api.bodies import MEGABYTE
from automation_pipeline.api.errors import on_http_error, on_invalid_request, on_known_error
from automation_pipeline.api.middleware import REQUEST_ID, RequestMiddleware
from automation_pipeline.api.openapi import document
from automation_pipeline.api.responses import COMMON
from automation_pipeline.audits.routes import audits
from automation_pipeline.audits.routes import configs as audit_configs
from automation_pipeline.audits.routes import requests as audit_requests
from automation_pipeline.automation.routes import runs, schedules
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.background import BackgroundWork
from automation_pipeline.core.errors import AutomationError, PermanentError
from automation_pipeline.enrichment import routes as enrichment
from automation_pipeline.fiches import routes as fiches
from automation_pipeline.org_jobs.routes import jobs as org_jobs
from automation_pipeline.org_jobs.routes import organisations
from automation_pipeline.org_jobs.routes import schedules as org_schedules
from automation_pipeline.pricing.routes import rules as pricing_rules
from automation_pipeline.pricing.routes import runs as pricing_runs
from automation_pipeline.pricing.routes import shop as pricing_shop
from automation_pipeline.storage.database import ServerLimits
from automation_pipeline.transcription import routes as transcriptions

# The threads that handle requests. Each may hold a database connection.
THREADS = 20
# The API itself runs at most this many enrichments at once; Dagster runs the others.
MAX_ENRICHMENTS = 20
ROUTERS: tuple[APIRouter, ...] = (
    schedules.router,
    runs.router,
    audit_configs.router,
    audits.router,
    audit_requests.router,
    fiches.router,
    transcriptions.router,
    audit_requests.status_router,
    pricing_rules.router,
    pricing_rules.policies_router,
    pricing_runs.router,
    pricing_shop.router,
    pricing_shop.letters_router,
    pricing_shop.history_router,
    enrichment.requests,
    enrichment.companies,
    organisations.router,
    organisations.hosts,
    organisations.servers,
    org_schedules.router,
    org_jobs.router,
    org_jobs.agents,
    org_schedules.backfills,
    organisations.history,
    tokens.router,
    realtime.router,
    health.router,
)


def create_app(services: Services) -> FastAPI:
    settings = services.settings
    app = FastAPI(
        title="Automation Pipeline",
        version=version("automation-pipeline"),
        description="Automations over a call centre's sales records: schedules, runs, fiches, transcripts, audits; "
        "prices of a shop, changed by rules; jobs of organisations, done by schedules; and companies, by the French "
        "registers.",
        responses=COMMON,
        docs_url="/docs",
        redoc_url=None,
        redirect_slashes=False,
        # Generated clients name their methods after it: `schedules_create`.
        generate_unique_id_function=lambda route: re.sub(
            r"[^a-z0-9]+", "_", f"{route.tags[0]}_{route.name}".lower()
        ).strip("_"),
        lifespan=_lifespan,
    )
    app.state.services = services
    app.state.stopping = asyncio.Event()
    app.state.enrichments = BackgroundWork(
        MAX_ENRICHMENTS, "An enrichment that the API started has failed; Dagster continues it"
    )
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(AutomationError, on_known_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_middleware(
        RequestMiddleware,
        max_bytes=settings.api_max_body_megabytes * MEGABYTE,
        seconds=settings.api_timeout_seconds,
    )
    if settings.api_cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.api_cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            allow_credentials=True,
            expose_headers=[REQUEST_ID, "Idempotent-Replay"],
        )
    app.openapi = lambda: app.openapi_schema or document(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    services: Services = app.state.services
    to_thread.current_default_thread_limiter().total_tokens = THREADS
    async with services.metering.in_background():
        yield
        await app.state.enrichments.end(services.settings.api_shutdown_seconds)


BACKLOG = 2048
MAX_HEADER_BYTES = 65_536


def serve(services: Services, *, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT. Port 0 takes a free port; the printed line names it."""
    services.database.serve(ServerLimits(THREADS, services.settings.api_timeout_seconds))
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
    """Limits the size of a request's headers; uvicorn has no limit."""

    _header_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers of the request are too large.")

    def on_headers_complete(self) -> None:
        self._header_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
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
        """Also end the event streams: uvicorn waits for them, and they have no end of their own."""
        self._app.state.stopping.set()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """As in uvicorn, but without raising the signal again, so that the exit code is 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
