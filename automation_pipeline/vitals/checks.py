"""Is everything there that the system needs? `automation doctor` and the API's diagnostic tell the same."""

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import Protocol, runtime_checkable

from automation_pipeline.access.store.tokens import list_tokens
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.settings.unused import unused_settings
from automation_pipeline.enrichment.domain.vocabulary import SourceApi
from automation_pipeline.pricing.ports import Storefront
from automation_pipeline.storage.pulses import DAEMON, seconds_since_beat
from automation_pipeline.vitals.beside import Check, findings_of
from automation_pipeline.vitals.definitions import SECONDS, check_definitions
from automation_pipeline.vitals.finding import Finding, State

# Wanted as soon as there is a key, or an address other than this: some servers need no key.
OPENAI = "https://api.openai.com/v1"
ANSWER_SECONDS = 20.0
# Dagster's daemon beats every five seconds or so, and is a while busy now and then.
LONGEST_SILENCE_SECONDS = 60.0


def examine(services: Services) -> tuple[Finding, ...]:
    """One finding a thing, in the order in which one would mend them. Nothing is raised; no text holds a secret."""
    checks = {
        "database": Check(partial(_database, services), seconds=ANSWER_SECONDS),
        "redis": Check(partial(check_redis, services), seconds=ANSWER_SECONDS),
        "crm": Check(partial(_crm, services), seconds=ANSWER_SECONDS + 5),
        "speech": Check(partial(_speech, services), seconds=ANSWER_SECONDS + 5),
        "model": Check(partial(_model, services), seconds=ANSWER_SECONDS + 5),
        "shop": Check(partial(_shop, services), seconds=ANSWER_SECONDS + 5),
        "search": Check(partial(_registry, services, SourceApi.SEARCH), seconds=ANSWER_SECONDS + 5),
        "inpi": Check(partial(_registry, services, SourceApi.INPI), seconds=ANSWER_SECONDS + 5),
        "rcs": Check(partial(_registry, services, SourceApi.RCS), seconds=ANSWER_SECONDS + 5),
        "smtp": Check(partial(_smtp, services), seconds=ANSWER_SECONDS + 5),
        "pusher": Check(partial(_pusher, services), seconds=ANSWER_SECONDS + 5),
        "dagster": Check(partial(_dagster, services), seconds=SECONDS + 5),
        "daemon": Check(partial(check_daemon, services), required=False, seconds=ANSWER_SECONDS),
        "access": Check(partial(_access, services), required=False, seconds=ANSWER_SECONDS),
    }
    return (*findings_of(checks), *_unused(os.environ))


def _unused(environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """No trouble, but worth a line: settings that do nothing here."""
    words = "; ".join(f"{name} is not used here: {reason}" for name, reason in unused_settings(environment).items())
    return (Finding("settings", State.FAILED, words, required=False),) if words else ()


def check_redis(services: Services) -> str | None:
    if services.settings.redis_url is None:
        return None
    services.rate_limiter.reserve("doctor", Rate(1_000_000, 1.0))
    return "rate limits and semaphores are kept here, or in the database while it is away"


def check_daemon(services: Services) -> str:
    with services.database.reading() as session:
        silence = seconds_since_beat(session, DAEMON)
    if silence is None:
        raise TransientError("has never ticked: `dagster dev` or `dagster-daemon run` starts it")
    if silence > LONGEST_SILENCE_SECONDS:
        raise TransientError(f"ticked {_length(silence)} ago: nothing begins by itself until it runs again")
    return f"ticked {max(0, round(silence))} s ago"


def _database(services: Services) -> str:
    from automation_pipeline.migrations.standing import standing_of  # noqa: PLC0415  Alembic only where it is used

    standing = standing_of(services.database)
    if not standing.is_workable:
        raise PermanentError(f"{standing}: run `automation db upgrade`")
    return f"{services.database.dialect} {standing}"


def _crm(services: Services) -> str:
    _ask(_apart(services).crm)
    return f"{services.settings.fiche_api_base_url} answers and accepts the token"


def _speech(services: Services) -> str | None:
    if services.settings.elevenlabs_api_key is None:
        return None
    _ask(_apart(services).speech.speech)
    return f"{services.settings.elevenlabs_base_url} answers and accepts the key"


def _model(services: Services) -> str | None:
    settings = services.settings
    if settings.llm_api_key is None and settings.llm_base_url == OPENAI:
        return None
    _ask(_apart(services).judge.model)
    return f"{settings.llm_base_url} answers and knows {settings.llm_model}"


def _shop(services: Services) -> str | None:
    if services.settings.shop_api_base_url is None:
        return None
    storefront = _apart(services).storefront
    asyncio.run(_visited(storefront))
    return f"{storefront.name} answers and accepts the token"


def _registry(services: Services, api: SourceApi) -> str | None:
    """A registry that is not configured is not called."""
    source = services.registry(api)
    if source is None:
        return None
    _ask(source.registry)
    day = "" if source.calls_a_day is None else f", at most {source.calls_a_day} a day"
    return f"{api} answers and lets us in; {source.rate.limit} calls in {source.rate.period_seconds:g} s{day}"


def _smtp(services: Services) -> str | None:
    if services.settings.smtp_host is None:
        return None
    mail = _apart(services).mail
    if mail is None:
        raise PermanentError("SMTP_HOST is set, but neither SMTP_FROM nor SMTP_USER: no e-mail has a sender")
    _ask(mail)
    return f"{services.settings.smtp_host}:{services.settings.smtp_port} answers and lets us in"


def _pusher(services: Services) -> str | None:
    realtime = _apart(services).realtime
    if realtime is None:
        return None
    if services.settings.pusher_dry_run:
        return "PUSHER_DRY_RUN is set: events are written to the log instead"
    _ask(realtime)
    return "answers and knows our application"


def _dagster(services: Services) -> str:
    check_definitions()
    return f"definitions load; steps run {services.settings.automation_executor}"


def _access(services: Services) -> str | None:
    """Who may call the API; None where nobody can."""
    settings = services.settings
    with services.database.reading() as session:
        stored = len(list_tokens(session, good_at=services.clock.now()))
    environment, users = len(settings.api_auth_tokens), settings.jwt_access_secret is not None
    if not (stored or environment or users):
        return None
    accepted = "accepted" if users else "not accepted"
    return f"{environment} token(s) in the environment, {stored} stored; users' tokens are {accepted}"


class _Checkable(Protocol):
    async def check(self) -> None: ...


@runtime_checkable
class _Closable(Protocol):
    async def aclose(self) -> None: ...


def _apart(services: Services) -> Services:
    """Adapters of their own: the connections of those in use belong to another event loop."""
    return Services(services.settings, services.clock)


def _ask(adapter: _Checkable) -> None:
    asyncio.run(_asked(adapter))


async def _asked(adapter: _Checkable) -> None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await adapter.check()
    except TimeoutError:
        raise TransientError(f"did not answer within {ANSWER_SECONDS:g} s") from None
    finally:
        if isinstance(adapter, _Closable):
            await adapter.aclose()


async def _visited(storefront: Storefront) -> None:
    async with storefront.open() as shop:
        await _asked(shop)


def _length(seconds: float) -> str:
    if seconds < 3600:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 172_800 else f"{round(seconds / 86_400)} days"
