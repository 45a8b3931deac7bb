"""Whether a schedule may be run by hand now: its window, and its jobs that are not over."""

from dataclasses import replace
from datetime import datetime

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.instants import iso
from automation_pipeline.core.json_model import text_fault
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule, timing_fields
from automation_pipeline.org_jobs.domain.policies import OverlapPolicy
from automation_pipeline.org_jobs.domain.timing import Timing, read_timing

LONGEST_KEY = 200
_ANY_MINUTE = "* * * * *"


def check_client_key(key: str | None) -> None:
    if key is None:
        return
    fault = text_fault(key)
    if not 0 < len(key) <= LONGEST_KEY:
        fault = f"must have 1 to {LONGEST_KEY} characters"
    if fault is not None:
        raise InvalidInputError("Invalid key", (("clientKey", fault),))


def window_timing(schedule: OrgSchedule, *, ignore_window: bool = False) -> Timing:
    """Only its window counts: one whose cron means nothing any more can be run. ConflictError: nor does its zone."""
    fields = timing_fields(schedule, schedule.id)
    if ignore_window or schedule.execution_window_start is None:
        fields = replace(fields, window_start=None, window_end=None, timezone="UTC")
    try:
        return read_timing(replace(fields, cron_expression=_ANY_MINUTE))
    except InvalidInputError as error:
        raise ConflictError(f"Schedule {schedule.id} cannot be run in its execution window: {error}") from None


def refuse_closed(schedule: OrgSchedule, timing: Timing, now: datetime) -> None:
    if timing.window is None or timing.is_open(now):
        return
    opens_at = iso(timing.window.clamp(now, timing.zone))
    raise ConflictError(
        f"The execution window of schedule {schedule.id} opens at {opens_at}: wait for it, or ignore the window."
    )


def refuse_overlap(schedule: OrgSchedule, at_work: list[int], waiting: list[int]) -> None:
    """Both are jobs, oldest first."""
    active = [*at_work, *waiting]
    if schedule.overlap_policy is OverlapPolicy.SKIP and active:
        raise ConflictError(f"Job {active[0]} of schedule {schedule.id} is not over: wait for its end, or cancel it.")
    if schedule.overlap_policy is OverlapPolicy.BUFFER_ONE and waiting and len(active) > 1:
        raise ConflictError(
            f"Job {waiting[0]} of schedule {schedule.id} waits already behind the one at work: wait, or cancel it."
        )


def ends_others(policy: OverlapPolicy) -> bool:
    return policy in {OverlapPolicy.CANCEL_OTHER, OverlapPolicy.TERMINATE_OTHER}
