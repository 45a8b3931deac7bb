"""Health, readiness and the checks of `doctor`."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from threading import Thread
from typing import Protocol, runtime_checkable

from automation_pipeline.access.tokens import list_tokens
from automation_pipeline.bootstrap import Services
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
    """`required`: the configured system cannot work without it."""

    name: str
    state: State
    detail: str
    required: bool

    @property
    def is_trouble(self) -> bool:
        return self.required and self.state is State.FAILED


NOT_CONFIGURED = "optional, not configured"


@dataclass(frozen=True)
class Check:
    """`look` answers what it found in words, None for what is not configured and so not required
    either, or raises an AutomationError. `needs` names another check: while that fails, a failure of
    this one says nothing new."""

    look: Callable[[], str | None]
    required: bool = True
    seconds: float = 10.0
    needs: str | None = None


def findings_of(checks: Mapping[str, Check]) -> tuple[Finding, ...]:
    """In the order of the checks."""
    started = time.monotonic()
    pending: dict[str, Future[str | None]] = {}
    for name, check in checks.items():
        pending[name] = Future()
        work = (check, pending[name], correlation_id())
        Thread(target=_work, args=work, daemon=True).start()
    found = {name: _end(name, check, pending[name], started) for name, check in checks.items()}
    failed = {name for name, finding in found.items() if finding.state is State.FAILED}
    return tuple(
        Finding(
            name, State.SKIPPED, f"not checked: it needs the {checks[name].needs}", required=False
        )
        if name in failed and checks[name].needs in failed
        else finding
        for name, finding in found.items()
    )


def _work(check: Check, found: Future[str | None], request: str | None) -> None:
    try:
        with correlated(request):
            found.set_result(check.look())
    except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
        found.set_exception(error)


def _end(name: str, check: Check, found: Future[str | None], started: float) -> Finding:
    try:
        detail = found.result(timeout=max(0.0, started + check.seconds - time.monotonic()))
    except TimeoutError:
        return Finding(
            name, State.FAILED, f"did not answer within {check.seconds:g} s", check.required
        )
    except AutomationError as error:
        return Finding(name, State.FAILED, sentence_of(error), check.required)
    except Exception as error:  # noqa: BLE001  a bug in one check must not hide what the others found
        return Finding(
            name, State.FAILED, f"could not be looked at ({type(error).__name__})", check.required
        )
    if detail is None:
        return Finding(name, State.NOT_SET, NOT_CONFIGURED, required=False)
    return Finding(name, State.OK, detail, check.required)


SECONDS = 45.0
GOOD_FOR_SECONDS = 60.0
_COMMAND = [
    sys.executable,
    "-m",
    "dagster",
    "definitions",
    "validate",
    "-m",
    "automation_pipeline.definitions",
]


class _Look:
    """The result of the last check of the definitions."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._at: float | None = None
        self._fault: str | None = None

    def fault(self) -> str | None:
        with self._turn:
            if self._at is None or time.monotonic() - self._at > GOOD_FOR_SECONDS:
                self._fault = _fault()
                self._at = time.monotonic()
            return self._fault


def check_definitions() -> None:
    """PermanentError with the last line of Dagster's output."""
    fault = _look.fault()
    if fault is not None:
        raise PermanentError(f"the definitions do not load: {fault}")


def _fault() -> str | None:
    try:
        ended = subprocess.run(  # noqa: S603  the command is a constant
            _COMMAND, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"Dagster took longer than {SECONDS:g} s"
    if ended.returncode == 0:
        return None
    return (ended.stderr.strip().splitlines() or ["no output"])[-1]


_look = _Look()


# Wanted as soon as there is a key, or an address other than this: some servers need no key.
OPENAI = "https://api.openai.com/v1"
ANSWER_SECONDS = 20.0
# Dagster's daemon beats every five seconds or so, and is a while busy now and then.
LONGEST_SILENCE_SECONDS = 60.0


def examine(services: Services) -> tuple[Finding, ...]:
    """One finding per system, in the order of repair. It raises nothing, and no text contains a
    secret."""
    settings = services.settings

    def crm() -> str:
        address = settings.fiche_api_base_url
        return _ask(_apart(services).crm, f"{address} answers and accepts the token")

    def speech() -> str | None:
        if settings.elevenlabs_api_key is None:
            return None
        provider = _apart(services).speech.speech
        return _ask(provider, f"{settings.elevenlabs_base_url} answers and accepts the key")

    checks = {
        "database": Check(partial(_database, services), seconds=ANSWER_SECONDS),
        "redis": Check(partial(check_redis, services), seconds=ANSWER_SECONDS),
        "crm": Check(crm, seconds=ANSWER_SECONDS + 5),
        "speech": Check(speech, seconds=ANSWER_SECONDS + 5),
        "model": Check(partial(_model, services), seconds=ANSWER_SECONDS + 5),
        "shop": Check(partial(_shop, services), seconds=ANSWER_SECONDS + 5),
        **{
            register.name.lower(): Check(
                partial(_registry, services, register),
                seconds=ANSWER_SECONDS + 5,
                needs="database",
            )
            for register in SourceApi
        },
        "smtp": Check(partial(_smtp, services), seconds=ANSWER_SECONDS + 5),
        "pusher": Check(partial(_pusher, services), seconds=ANSWER_SECONDS + 5),
        "dagster": Check(partial(_dagster, services), seconds=SECONDS + 5),
        "daemon": Check(
            partial(check_daemon, services),
            required=False,
            seconds=ANSWER_SECONDS,
            needs="database",
        ),
        "access": Check(
            partial(_access, services), required=False, seconds=ANSWER_SECONDS, needs="database"
        ),
    }
    return (*findings_of(checks), *_unused(os.environ))


def _unused(environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """Settings that have no effect here: not a fault."""
    words = "; ".join(
        f"{name} is not used here: {reason}"
        for name, reason in unused_settings(environment).items()
    )
    return (Finding("settings", State.FAILED, words, required=False),) if words else ()


def check_redis(services: Services) -> str | None:
    if services.settings.redis_url is None:
        return None
    services.rate_limiter.reserve("doctor", Rate(1_000_000, 1.0))
    return "rate limits and semaphores are kept here, or in the database while it is away"


def check_daemon(services: Services) -> str:
    with services.database.reading() as session:
        silence = seconds_since_heartbeat(session, DAEMON)
    if silence is None:
        raise TransientError("has never ticked: `dagster dev` or `dagster-daemon run` starts it")
    if silence > LONGEST_SILENCE_SECONDS:
        raise TransientError(
            f"ticked {_length(silence)} ago: nothing begins by itself until it runs again"
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
    words = f"{settings.llm_base_url} answers and knows {settings.llm_model}"
    return _ask(_apart(services).judge.model, words)


def _shop(services: Services) -> str | None:
    if services.settings.shop_api_base_url is None:
        return None
    storefront = _apart(services).storefront

    async def visit() -> None:
        async with storefront.open() as shop:
            await _asked(shop)

    asyncio.run(visit())
    return f"{storefront.name} answers and accepts the token"


def _registry(services: Services, api: SourceApi) -> str | None:
    """A registry without configuration is not called."""
    source = services.registry(api)
    if source is None:
        return None
    day = "" if source.calls_a_day is None else f", at most {source.calls_a_day} a day"
    rate = f"{source.rate.limit} calls in {source.rate.period_seconds:g} s{day}"
    return _ask(source.registry, f"{api} answers and lets us in; {rate}")


def _smtp(services: Services) -> str | None:
    if services.settings.smtp_host is None:
        return None
    mail = _apart(services).mail
    if mail is None:
        raise PermanentError(
            "SMTP_HOST is set, but neither SMTP_FROM nor SMTP_USER: no e-mail has a sender"
        )
    settings = services.settings
    return _ask(mail, f"{settings.smtp_host}:{settings.smtp_port} answers and lets us in")


def _pusher(services: Services) -> str | None:
    realtime = _apart(services).realtime
    if realtime is None:
        return None
    if services.settings.pusher_dry_run:
        return "PUSHER_DRY_RUN is set: events are written to the log instead"
    return _ask(realtime, "answers and knows our application")


def _dagster(services: Services) -> str:
    check_definitions()
    return f"definitions load; steps run {services.settings.automation_executor}"


def _access(services: Services) -> str | None:
    """Which credentials the API accepts; None without any."""
    settings = services.settings
    with services.database.reading() as session:
        stored = len(list_tokens(session, good_at=services.clock.now()))
    environment, users = len(settings.api_auth_tokens), settings.jwt_access_secret is not None
    if not (stored or environment or users):
        return None
    accepted = "accepted" if users else "not accepted"
    return (
        f"{environment} token(s) in the environment, {stored} stored; users' tokens are {accepted}"
    )


class _Checkable(Protocol):
    async def check(self) -> None: ...


@runtime_checkable
class _Closable(Protocol):
    async def aclose(self) -> None: ...


def _apart(services: Services) -> Services:
    """Separate adapters: the connections of the others belong to another event loop."""
    return Services(services.settings, services.clock)


def _ask(adapter: _Checkable, words: str) -> str:
    """The words, if the adapter's own check succeeds."""
    asyncio.run(_asked(adapter))
    return words


async def _asked(adapter: _Checkable) -> None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await adapter.check()
    except TimeoutError:
        raise TransientError(f"did not answer within {ANSWER_SECONDS:g} s") from None
    finally:
        if isinstance(adapter, _Closable):
            await adapter.aclose()


def _length(seconds: float) -> str:
    if seconds < 3600:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 172_800 else f"{round(seconds / 86_400)} days"


READINESS_SECONDS = 3.0
REDIS_IS_AWAY = "Redis does not answer, or refuses us"


def readiness(services: Services) -> tuple[Finding, ...]:
    """It raises nothing, and its texts are public."""

    def database_answers() -> str:
        services.database.ping()
        return f"{services.database.dialect} answers"

    look_at_redis = partial(_briefly, partial(check_redis, services), REDIS_IS_AWAY)
    checks = {
        "database": Check(partial(_briefly, database_answers), seconds=READINESS_SECONDS),
        "redis": Check(look_at_redis, required=False, seconds=READINESS_SECONDS),
        "daemon": Check(
            partial(_briefly, partial(check_daemon, services)), seconds=READINESS_SECONDS
        ),
    }
    return findings_of(checks)


def _briefly(look: Callable[[], str | None], otherwise: str | None = None) -> str | None:
    """Addresses and users are only logged."""
    try:
        return look()
    except AutomationError as error:
        brief = error.outside or otherwise
        if brief is None:
            raise
        log(__name__).warning("Not ready", error=str(error))
        raise TransientError(brief) from error
