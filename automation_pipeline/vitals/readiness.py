"""Whether work that is asked for now would be done: the database and Dagster's daemon. Nothing stops with Redis."""

from collections.abc import Callable
from functools import partial

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError, TransientError
from automation_pipeline.core.logs import log
from automation_pipeline.vitals.beside import Check, findings_of
from automation_pipeline.vitals.checks import check_daemon, check_redis
from automation_pipeline.vitals.finding import Finding

ANSWER_SECONDS = 3.0
REDIS_IS_AWAY = "Redis does not answer, or refuses us"


def readiness(services: Services) -> tuple[Finding, ...]:
    """Ready when none of them is trouble. Nothing is raised, and strangers may read it."""
    look_at_redis = partial(_briefly, partial(check_redis, services), REDIS_IS_AWAY)
    checks = {
        "database": Check(partial(_briefly, partial(_database, services)), seconds=ANSWER_SECONDS),
        "redis": Check(look_at_redis, required=False, seconds=ANSWER_SECONDS),
        "daemon": Check(partial(_briefly, partial(check_daemon, services)), seconds=ANSWER_SECONDS),
    }
    return findings_of(checks)


def _briefly(look: Callable[[], str | None], otherwise: str | None = None) -> str | None:
    """Where things are and who asks them is for the log."""
    try:
        return look()
    except AutomationError as error:
        brief = error.outside or otherwise
        if brief is None:
            raise
        log(__name__).warning("Not ready", error=str(error))
        raise TransientError(brief) from error


def _database(services: Services) -> str:
    services.database.ping()
    return f"{services.database.dialect} answers"
