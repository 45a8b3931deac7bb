"""Health, readiness and the checks of `automation doctor`; endpoints about the process and the caller."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from threading import Thread
from typing import Literal, Protocol

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.access.tokens import list_tokens
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.metrics import exposition
from automation_pipeline.api.parameters import CallerDep, ServicesDep
from automation_pipeline.api.responses import Answer, answer
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Action
from automation_pipeline.core.clock import iso
from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.errors import (
    AutomationError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.core.logs import correlated, correlation_id, log
from automation_pipeline.core.settings_page import unused_settings
from automation_pipeline.enrichment.models import SourceApi
from automation_pipeline.storage.monitoring import DAEMON, seconds_since_heartbeat


class State(StrEnum):
    OK = "ok"
    NOT_SET = "not set"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """The result of one check. A `required` one must not fail."""

    name: str
    state: State
    detail: str
    required: bool

    @property
    def is_problem(self) -> bool:
        return self.required and self.state is State.FAILED


NOT_CONFIGURED = "optional, not configured"
ANSWER_SECONDS = 20.0


@dataclass(frozen=True)
class Check:
    """`run` returns a description of what works, or None for what is not configured, or raises an
    AutomationError. If both this check and the one that it `needs` fail, this one counts as skipped."""

    run: Callable[[], str | None]
    required: bool = True
    seconds: float = ANSWER_SECONDS + 5
    needs: str | None = None


def findings_of(checks: Mapping[str, Check]) -> tuple[Finding, ...]:
    """Run the checks concurrently. Returns the findings in the order of the checks."""
    started = time.monotonic()
    pending: dict[str, Future[str | None]] = {}
    for name, check in checks.items():
        pending[name] = Future()
        arguments = (check, pending[name], correlation_id())
        Thread(target=_run, args=arguments, daemon=True).start()
    found = {name: _finding(name, check, pending[name], started) for name, check in checks.items()}
    failed = {name for name, finding in found.items() if finding.state is State.FAILED}
    return tuple(
        Finding(
            name, State.SKIPPED, f"not checked: it needs the {checks[name].needs}", required=False
        )
        if name in failed and checks[name].needs in failed
        else finding
        for name, finding in found.items()
    )


def _run(check: Check, result: Future[str | None], request: str | None) -> None:
    try:
        with correlated(request):
            result.set_result(check.run())
    except BaseException as error:  # noqa: BLE001  the waiting thread raises it
        result.set_exception(error)


def _finding(name: str, check: Check, result: Future[str | None], started: float) -> Finding:
    try:
        detail = result.result(timeout=max(0.0, started + check.seconds - time.monotonic()))
    except TimeoutError:
        return Finding(
            name, State.FAILED, f"did not answer within {check.seconds:g} s", check.required
        )
    except AutomationError as error:
        return Finding(name, State.FAILED, sentence_of(error), check.required)
    except Exception as error:  # noqa: BLE001  a bug in one check must not hide the others
        return Finding(
            name, State.FAILED, f"could not be checked ({type(error).__name__})", check.required
        )
    if detail is None:
        return Finding(name, State.NOT_SET, NOT_CONFIGURED, required=False)
    return Finding(name, State.OK, detail, check.required)


SECONDS = 45.0
CACHE_SECONDS = 60.0
_COMMAND = [
    sys.executable,
    "-m",
    "dagster",
    "definitions",
    "validate",
    "-m",
    "automation_pipeline.definitions",
]


class _Definitions:
    """Checks whether Dagster's definitions load. Caches the result for a minute, because the check
    takes seconds and a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checked_at: float | None = None
        self._fault: str | None = None

    def check(self) -> None:
        """Raises PermanentError with the last line of Dagster's output."""
        with self._lock:
            now = time.monotonic()
            if self._checked_at is None or now - self._checked_at > CACHE_SECONDS:
                self._fault = _definitions_fault()
                self._checked_at = time.monotonic()
            if self._fault is not None:
                raise PermanentError(f"the definitions do not load: {self._fault}")


def _definitions_fault() -> str | None:
    try:
        ended = subprocess.run(  # noqa: S603  the command is a constant
            _COMMAND, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"Dagster took longer than {SECONDS:g} s"
    if ended.returncode == 0:
        return None
    return (ended.stderr.strip().splitlines() or ["no output"])[-1]


_definitions = _Definitions()


# The model counts as configured if it has a key or another address than this: some servers need no key.
OPENAI = "https://api.openai.com/v1"
# Dagster's daemon has a heartbeat about every five seconds, and sometimes later when it is busy.
MAX_SILENCE_SECONDS = 60.0


def examine(services: Services) -> tuple[Finding, ...]:
    """Check all systems, in the order in which an operator repairs them. Raises nothing; no detail
    contains a secret."""
    settings = services.settings
    checks = {
        "database": Check(partial(_database, services)),
        "redis": Check(partial(check_redis, services)),
        "crm": Check(
            lambda: _checked(
                _separate(services).crm,
                f"{settings.fiche_api_base_url} answers and accepts the token",
            )
        ),
        "speech": Check(
            lambda: (
                None
                if settings.elevenlabs_api_key is None
                else _checked(
                    _separate(services).speech.speech,
                    f"{settings.elevenlabs_base_url} answers and accepts the key",
                )
            )
        ),
        "model": Check(partial(_model, services)),
        "shop": Check(partial(_shop, services)),
        **{
            register.name.lower(): Check(partial(_registry, services, register), needs="database")
            for register in SourceApi
        },
        "smtp": Check(partial(_smtp, services)),
        "pusher": Check(partial(_pusher, services)),
        "dagster": Check(partial(_dagster, services), seconds=SECONDS + 5),
        "daemon": Check(partial(check_daemon, services), required=False, needs="database"),
        "access": Check(partial(_access, services), required=False, needs="database"),
    }
    unused = unused_settings(os.environ)
    detail = "; ".join(f"{name} is not used here: {reason}" for name, reason in unused.items())
    without_effect = Finding("settings", State.FAILED, detail, required=False)
    return (*findings_of(checks), *([without_effect] if unused else []))


def check_redis(services: Services) -> str | None:
    if services.settings.redis_url is None:
        return None
    services.rate_limiter.reserve("doctor", Rate(1_000_000, 1.0))
    return "rate limits and semaphores are kept here, or in the database while it is away"


def check_daemon(services: Services) -> str:
    silence = services.database.read(seconds_since_heartbeat, DAEMON)
    if silence is None:
        raise TransientError("has never ticked: `dagster dev` or `dagster-daemon run` starts it")
    if silence > MAX_SILENCE_SECONDS:
        raise TransientError(
            f"ticked {_duration(silence)} ago: it starts no work until it runs again"
        )
    return f"ticked {max(0, round(silence))} s ago"


def _database(services: Services) -> str:
    from automation_pipeline.migrations.schema_version import schema_version  # noqa: PLC0415  Alembic only where it is used

    status = schema_version(services.database)
    if not status.is_workable:
        raise PermanentError(f"{status}: run `automation db upgrade`")
    return f"{services.database.dialect} {status}"


def _model(services: Services) -> str | None:
    settings = services.settings
    if settings.llm_api_key is None and settings.llm_base_url == OPENAI:
        return None
    detail = f"{settings.llm_base_url} answers and has the model {settings.llm_model}"
    return _checked(_separate(services).judge.model, detail)


def _shop(services: Services) -> str | None:
    if services.settings.shop_api_base_url is None:
        return None
    storefront = _separate(services).storefront

    async def check() -> None:
        async with storefront.open() as shop:
            await _check(shop)

    asyncio.run(check())
    return f"{storefront.name} answers and accepts the token"


def _registry(services: Services, api: SourceApi) -> str | None:
    source = services.registry(api)
    if source is None:
        return None
    day = "" if source.calls_a_day is None else f", at most {source.calls_a_day} a day"
    rate = f"{source.rate.limit} calls in {source.rate.period_seconds:g} s{day}"
    return _checked(source.registry, f"{api} answers and accepts the credentials; {rate}")


def _smtp(services: Services) -> str | None:
    if services.settings.smtp_host is None:
        return None
    mail = _separate(services).mail
    if mail is None:
        raise PermanentError(
            "SMTP_HOST is set, but neither SMTP_FROM nor SMTP_USER: no e-mail has a sender"
        )
    settings = services.settings
    return _checked(
        mail, f"{settings.smtp_host}:{settings.smtp_port} answers and accepts the login"
    )


def _pusher(services: Services) -> str | None:
    realtime = _separate(services).realtime
    if realtime is None:
        return None
    if services.settings.pusher_dry_run:
        return "PUSHER_DRY_RUN is set: events are written to the log instead"
    return _checked(realtime, "answers and accepts the credentials")


def _dagster(services: Services) -> str:
    _definitions.check()
    return f"definitions load; steps run {services.settings.automation_executor}"


def _access(services: Services) -> str | None:
    """Return which credentials the API accepts, or None if it accepts none."""
    settings = services.settings
    stored = len(services.database.read(list_tokens, active_at=services.clock.now()))
    environment, users = len(settings.api_auth_tokens), settings.jwt_access_secret is not None
    if not (stored or environment or users):
        return None
    accepted = "accepted" if users else "not accepted"
    return (
        f"{environment} token(s) in the environment, {stored} stored; users' tokens are {accepted}"
    )


class _Checkable(Protocol):
    async def check(self) -> None: ...


def _separate(services: Services) -> Services:
    """Create separate clients, because the connections of existing ones belong to another event loop."""
    return Services(services.settings, services.clock)


def _checked(adapter: _Checkable, detail: str) -> str:
    """Run the client's own check, and return the detail if it succeeds."""
    asyncio.run(_check(adapter))
    return detail


async def _check(adapter: _Checkable) -> None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await adapter.check()
    except TimeoutError:
        raise TransientError(f"did not answer within {ANSWER_SECONDS:g} s") from None
    finally:
        close: Callable[[], Awaitable[None]] | None = getattr(adapter, "aclose", None)
        if close is not None:
            await close()


def _duration(seconds: float) -> str:
    if seconds < 3600:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 172_800 else f"{round(seconds / 86_400)} days"


READINESS_SECONDS = 3.0
REDIS_IS_AWAY = "Redis does not answer, or refuses the connection"


def readiness(services: Services) -> tuple[Finding, ...]:
    """Check what new work needs. Raises nothing; its details are public."""

    def database_answers() -> str:
        services.database.ping()
        return f"{services.database.dialect} answers"

    checks = {
        "database": partial(_with_public_error, database_answers),
        "redis": partial(_with_public_error, partial(check_redis, services), REDIS_IS_AWAY),
        "daemon": partial(_with_public_error, partial(check_daemon, services)),
    }
    return findings_of(
        {
            name: Check(run, required=name != "redis", seconds=READINESS_SECONDS)
            for name, run in checks.items()
        }
    )


def _with_public_error(run: Callable[[], str | None], public: str | None = None) -> str | None:
    """Replace an error that names an address or a user; the log has the original."""
    try:
        return run()
    except AutomationError as error:
        sentence = error.public_message or public
        if sentence is None:
            raise
        log(__name__).warning("Not ready", error=str(error))
        raise TransientError(sentence) from error


class Live(BaseModel):
    status: Literal["ok"] = "ok"
    timestamp: str
    service: Literal["automation-pipeline"] = "automation-pipeline"
    version: str
    instance: str = Field(description="The process that answers.", examples=["host-1:4711"])


class FindingShown(BaseModel):
    name: str = Field(examples=["database"])
    state: Literal["ok", "not set", "failed", "skipped"]
    detail: str
    required: bool


class Readiness(BaseModel):
    status: Literal["ready", "not ready"]
    checks: list[FindingShown]


class Diagnosis(BaseModel):
    healthy: bool = Field(description="No required check has failed.")
    checks: list[FindingShown]


class GrantShown(BaseModel):
    read: Literal["SELF", "GROUP", "ALL"] | None
    write: Literal["SELF", "GROUP", "ALL"] | None


class Me(BaseModel):
    id: str = Field(examples=["user:12", "token:3"])
    name: str
    roles: list[str]
    groupes: list[str]
    crm_user_id: str | None
    permissions: dict[str, GrantShown]


router = APIRouter(route_class=GuardedRoute, tags=["health"])


@router.get("/health", response_model=Live)
async def live(request: Request, services: ServicesDep) -> Response:
    """Whether the process answers."""
    document = {
        "status": "ok",
        "timestamp": iso(services.clock.now()),
        "service": "automation-pipeline",
        "version": str(request.app.version),
        "instance": f"{socket.gethostname()}:{os.getpid()}",
    }
    return JSONResponse(document)


@router.get(
    "/health/ready",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "A required system is unavailable"}},
)
def ready(services: ServicesDep) -> Response:
    """Whether new work would start: checks the database, Redis if it is configured, and Dagster's
    daemon."""
    found = readiness(services)
    is_ready = not any(finding.is_problem for finding in found)
    document = {
        "status": "ready" if is_ready else "not ready",
        "checks": [vars(one) for one in found],
    }
    return JSONResponse(document, 200 if is_ready else 503)


@router.get(
    "/metrics",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    response_class=Response,
)
def metrics(services: ServicesDep) -> Response:
    """Metrics for Prometheus, without personal data."""
    return Response(exposition(services), media_type=CONTENT_TYPE_LATEST)


@router.get("/api/automation/diagnostic", response_model=Answer[Diagnosis])
def diagnostic(services: ServicesDep) -> Response:
    """The checks of `automation doctor`: whether everything that the system needs is available."""
    found = examine(services)
    return answer(
        {
            "healthy": not any(finding.is_problem for finding in found),
            "checks": [vars(one) for one in found],
        }
    )


@router.get("/api/auth/me", response_model=Answer[Me], tags=["access"])
def me(caller: CallerDep) -> Response:
    """Who the credentials belong to, and what they allow."""
    permissions: dict[str, dict[str, str | None]] = {}
    for permission in caller.grants:
        reaches = {action.value: caller.reach(permission, action) for action in Action}
        permissions[permission.value] = {
            action: reach and reach.scope.name for action, reach in reaches.items()
        }
    return answer(
        {
            "id": caller.id,
            "name": caller.name,
            "roles": list(caller.roles),
            "groupes": sorted(caller.groupes),
            "crm_user_id": caller.crm_user_id,
            "permissions": permissions,
        }
    )
