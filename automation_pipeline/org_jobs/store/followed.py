"""Runs that nobody has, because their work was begun elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.store.endings import lock_schedules_of
from automation_pipeline.org_jobs.tables import JobRow, JobRunRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.types import JsonObject

Run = JobRunRow


@dataclass(frozen=True, kw_only=True)
class FollowedRun:
    id: int
    type: str
    following: JsonObject
    started_at: datetime
    deadline_at: datetime | None
    cancelled_by: str | None
    cancel_reason: str | None
    is_cancel_wanted: bool

    def is_late(self, now: datetime) -> bool:
        return self.deadline_at is not None and self.deadline_at <= now

    @property
    def limit_seconds(self) -> float:
        return 0.0 if self.deadline_at is None else (self.deadline_at - self.started_at).total_seconds()


def followed_runs(session: Session, after_id: int, limit: int) -> list[FollowedRun]:
    """Those of organisations everywhere, in the order of ids, a page at a time."""
    query = (
        select(Run, JobRow.type)
        .join(JobRow, JobRow.id == Run.job_id)
        .where(Run.status == RunState.RUNNING, Run.following.is_not(None), Run.id > after_id)
        .order_by(Run.id)
        .limit(limit)
        .execution_options(populate_existing=True)
    )
    return [_followed(run, type_) for run, type_ in session.execute(query).tuples()]


def hold_followed(session: Session, followed: Mapping[int, JsonObject]) -> set[int]:
    """Those that are still followed in the same way; they stay so until the transaction ends, and may be ended."""
    lock_schedules_of(session, followed)
    query = select(Run).where(among(session, Run.id, followed), Run.status == RunState.RUNNING).order_by(Run.id)
    rows = session.scalars(query.with_for_update().execution_options(populate_existing=True))
    return {run.id for run in rows if run.following is not None and dict(run.following) == dict(followed[run.id])}


def _followed(run: JobRunRow, type_: str) -> FollowedRun:
    assert run.following is not None  # noqa: S101  only such are chosen
    assert run.started_at is not None  # noqa: S101  a running one has begun
    return FollowedRun(
        id=run.id,
        type=type_,
        following=run.following,
        started_at=run.started_at,
        deadline_at=run.deadline_at,
        cancelled_by=run.cancelled_by,
        cancel_reason=run.cancel_reason,
        is_cancel_wanted=run.cancel_requested_at is not None,
    )
