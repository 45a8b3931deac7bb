"""The queues of organisations and the types of jobs on a screen."""

from collections.abc import Iterable

from rich.text import Text

from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import minute
from automation_pipeline.org_jobs.domain.job_types import JobTypeCard
from automation_pipeline.org_jobs.domain.org_job import QueueStanding


def print_queues(queues: Iterable[QueueStanding]) -> None:
    columns = ("organisation", "state", "waiting", "to be retried", "taken", "running", "at once", "oldest (UTC)")
    print_fitted_table(columns, map(_queue, queues), texts={"state"})


def _queue(one: QueueStanding) -> tuple[object, ...]:
    counts = (one.waiting, one.retrying, one.claimed, one.running, one.max_running)
    return (one.org_id, _state(one), *counts, minute(one.oldest_waiting_at))


def _state(one: QueueStanding) -> Text:
    if one.suspended_at is not None:
        return Text("suspended", "red")
    maintenance = f"in service; maintenance until {minute(one.maintenance_until)}"
    return Text(maintenance, "yellow") if one.maintenance_until else Text("in service", "green")


def print_types(types: Iterable[JobTypeCard]) -> None:
    columns = ("type", "by", "changes", "at most", "needs", "what it does")
    print_fitted_table(columns, map(_type, types), texts={"needs", "what it does"})


def _type(one: JobTypeCard) -> tuple[object, ...]:
    changes = "yes" if one.is_mutation else "no"
    needs = one.permission and f"{one.permission}.write"
    also = f" Also: {', '.join(one.aliases)}." if one.aliases else ""
    return (one.name, one.performer, changes, _length(one.limit_seconds), needs, f"{one.summary}{also}")


def _length(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds < 2 * 3600 else f"{seconds // 3600} h"
