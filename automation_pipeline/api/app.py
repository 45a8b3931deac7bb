"""The application: all routers with common middleware, errors and OpenAPI document."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

from anyio import to_thread
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from automation_pipeline.access import routes as tokens
from automation_pipeline.api import meta, realtime
from automation_pipeline.api.bodies import MEGABYTE
from automation_pipeline.api.errors import on_http_error, on_invalid_request, on_known_error
from automation_pipeline.api.middleware import REQUEST_ID, Surroundings
from automation_pipeline.api.openapi import document
from automation_pipeline.api.responses import COMMON
from automation_pipeline.audits.routes import audits
from automation_pipeline.audits.routes import configs as audit_configs
from automation_pipeline.audits.routes import requests as audit_requests
from automation_pipeline.automation.routes import runs, schedules
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.background import BackgroundWork
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.enrichment import routes as enrichment
from automation_pipeline.fiches import routes as fiches
from automation_pipeline.org_jobs.routes import jobs as org_jobs
from automation_pipeline.org_jobs.routes import organisations
from automation_pipeline.org_jobs.routes import schedules as org_schedules
from automation_pipeline.pricing.routes import rules as pricing_rules
from automation_pipeline.pricing.routes import runs as pricing_runs
from automation_pipeline.pricing.routes import shop as pricing_shop
from automation_pipeline.transcription import routes as transcriptions

# Each may hold a connection to the database.
THREADS = 20
# Enrichments that the API itself begins; Dagster does those beyond.
MOST_ENRICHMENTS = 20
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
    meta.router,
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
        generate_unique_id_function=_operation_id,
        lifespan=_life,
    )
    app.state.services = services
    app.state.stopping = asyncio.Event()
    app.state.enrichments = BackgroundWork(
        MOST_ENRICHMENTS, "An enrichment that the API began has failed; Dagster goes on with it"
    )
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(AutomationError, on_known_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_middleware(
        Surroundings,
        most_bytes=settings.api_max_body_megabytes * MEGABYTE,
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


def _operation_id(route: APIRoute) -> str:
    """The operation's name in a generated client: `schedules_create`."""
    return re.sub(r"[^a-z0-9]+", "_", f"{route.tags[0]}_{route.name}".lower()).strip("_")


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncGenerator[None]:
    services: Services = app.state.services
    to_thread.current_default_thread_limiter().total_tokens = THREADS
    async with services.metering.in_background():
        yield
        await app.state.enrichments.end(services.settings.api_shutdown_seconds)
