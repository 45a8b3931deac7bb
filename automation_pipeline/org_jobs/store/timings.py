"""When a stored schedule is due."""

from automation_pipeline.org_jobs.domain.timing import Planned, Timing, TimingFields, read_timing
from automation_pipeline.org_jobs.tables import ScheduleRow


def timing_of(row: ScheduleRow) -> Timing:
    """InvalidInputError: its cron or its time zone means nothing any more."""
    return read_timing(
        TimingFields(
            seed=row.id,
            cron_expression=row.cron_expression,
            timezone=row.timezone,
            window_start=row.execution_window_start,
            window_end=row.execution_window_end,
            window_policy=row.window_policy,
            cutoff_minutes=row.latest_start_cutoff_min,
            jitter_seconds=row.jitter_s,
            start_at=row.start_at,
            end_at=row.end_at,
            excluded_on=tuple(row.excluded_on),
        )
    )


def planned_of(row: ScheduleRow) -> Planned | None:
    if row.next_run_at is None or row.next_scheduled_for is None:
        return None
    return Planned(row.next_scheduled_for, row.next_run_at)
