"""The schedules that ought to fire, with all that says when: what is looked at for silence."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, case, select
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.alerts import LATE_AFTER
from automation_pipeline.org_jobs.domain.health import WatchedSchedule
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.domain.timing import TimingFields
from automation_pipeline.org_jobs.tables import ScheduleRow

# Named as the fields of `TimingFields`.
_TIMING = (
    ScheduleRow.cron_expression.label("cron_expression"),
    ScheduleRow.timezone.label("timezone"),
    ScheduleRow.execution_window_start.label("window_start"),
    ScheduleRow.execution_window_end.label("window_end"),
    ScheduleRow.window_policy.label("window_policy"),
    ScheduleRow.latest_start_cutoff_min.label("cutoff_minutes"),
    ScheduleRow.jitter_s.label("jitter_seconds"),
    ScheduleRow.start_at.label("start_at"),
    ScheduleRow.end_at.label("end_at"),
)


def watched_schedules(session: Session, now: datetime) -> list[WatchedSchedule]:
    """None that was due, or changed, so lately that nothing can be wrong."""
    last, changed = ScheduleRow.last_scheduled_for, ScheduleRow.updated_at
    since = case((last > changed, last), else_=changed)
    query = (
        select(ScheduleRow.org_id, ScheduleRow.id, ScheduleRow.name, since.label("since"), ScheduleRow.excluded_on)
        .add_columns(*_TIMING)
        .where(*is_active(), since < now - LATE_AFTER)
        .order_by(ScheduleRow.id)
    )
    return [_watched(row) for row in session.execute(query).mappings()]


def is_active() -> tuple[ColumnElement[bool], ...]:
    return ScheduleRow.state == ScheduleState.ACTIVE, ScheduleRow.deleted_at.is_(None)


def _watched(row: Mapping[Any, Any]) -> WatchedSchedule:  # a row by its columns' names
    timing = {label.name: row[label.name] for label in _TIMING}
    # Equal for all that are due at the same times: they are reckoned out once.
    seed = row["id"] if row["jitter_seconds"] else ""
    fields = TimingFields(seed=seed, excluded_on=tuple(row["excluded_on"]), **timing)
    return WatchedSchedule(org_id=row["org_id"], id=row["id"], name=row["name"], since=row["since"], timing=fields)
