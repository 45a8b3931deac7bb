"""Whether work that is asked for now would be done: the database, Redis if it is configured, Dagster's daemon."""

from functools import partial

from automation_pipeline.bootstrap import Services
from automation_pipeline.vitals.beside import Check, findings_of
from automation_pipeline.vitals.checks import check_daemon, check_redis
from automation_pipeline.vitals.finding import Finding

ANSWER_SECONDS = 3.0


def readiness(services: Services) -> tuple[Finding, ...]:
    """Ready when none of them is trouble. Nothing is raised."""
    checks = {
        "database": Check(partial(_database, services), seconds=ANSWER_SECONDS),
        "redis": Check(partial(check_redis, services), seconds=ANSWER_SECONDS),
        "daemon": Check(partial(check_daemon, services), seconds=ANSWER_SECONDS),
    }
    return findings_of(checks)


def _database(services: Services) -> str:
    services.database.ping()
    return f"{services.database.dialect} answers"
