"""Look when a schedule would be due, before it is stored."""

from collections.abc import Collection, Mapping
from datetime import datetime

from automation_pipeline.org_jobs.domain.org_schedule import timing_fields
from automation_pipeline.org_jobs.domain.preview import SchedulePreview, check_count, preview
from automation_pipeline.org_jobs.domain.schedule_rules import read_schedule
from automation_pipeline.org_jobs.domain.timing import read_timing


def preview_schedule(
    given: Mapping[str, object], *, count: int, after: datetime, call_origins: Collection[str] = ()
) -> SchedulePreview:
    """InvalidInputError names every field at fault, as when it is stored; only its server is not looked for."""
    check_count(count)
    wanted = read_schedule(given, call_origins=call_origins)
    timing = read_timing(timing_fields(wanted, "", jitter_seconds=0))
    return preview(timing, after, count, most_jitter=wanted.jitter_s)
