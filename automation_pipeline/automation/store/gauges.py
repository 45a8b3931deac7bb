"""How many runs, outcomes and messages there are: numbers for graphs, each by one cheap query."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.run import OutcomeStatus, RunStatus
from automation_pipeline.automation.tables import NotificationRow, RunRow
from automation_pipeline.core.delivery import DeliveryStatus


@dataclass(frozen=True)
class RunCounts:
    """Of the runs that are still stored. The fiches are those of ended runs."""

    runs: Mapping[RunStatus, int]
    fiches: Mapping[OutcomeStatus, int]


def count_runs(session: Session) -> RunCounts:
    row = RunRow
    sums = [func.coalesce(func.sum(column), 0) for column in (row.successful_fiches, row.failed_fiches)]
    ignored = func.coalesce(func.sum(row.ignored_fiches), 0)
    found = session.execute(select(row.status, func.count(), *sums, ignored).group_by(row.status)).tuples().all()
    runs = {RunStatus(status): count for status, count, *_ in found}
    ended = (OutcomeStatus.SUCCESSFUL, OutcomeStatus.FAILED, OutcomeStatus.IGNORED)
    return RunCounts(
        runs={status: runs.get(status, 0) for status in RunStatus},
        fiches={status: sum(int(counted[2 + place]) for counted in found) for place, status in enumerate(ended)},
    )


def failed_notifications(session: Session) -> int:
    query = select(func.count()).where(NotificationRow.status == DeliveryStatus.FAILED)
    return session.scalar(query) or 0
