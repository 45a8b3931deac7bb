"""When a stored schedule is due next, in whatever state it is."""

from datetime import datetime

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.domain.cron_words import in_words
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule, timing_fields
from automation_pipeline.org_jobs.domain.preview import ComingRun, SchedulePreview, coming, following, preview
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.domain.timing import Planned, Timing, read_timing


def plan_of(schedule: OrgSchedule, now: datetime, count: int, after: datetime | None) -> SchedulePreview:
    """From now on what it will do; after an instant that somebody names, what its fields say, whatever its state."""
    try:
        timing = read_timing(timing_fields(schedule, schedule.id))
    except InvalidInputError as error:
        return _none(schedule, str(error))
    if after is not None:
        return _said(schedule, timing, count, after)
    if schedule.state is ScheduleState.ACTIVE:
        return _of_active(schedule, timing, now, count)
    if schedule.state is ScheduleState.PAUSED and schedule.paused_until is not None:
        return preview(timing, max(now, schedule.paused_until), count).model_copy(
            update={"note": "It is paused until then."}
        )
    return _none(schedule, _why(schedule))


def _said(schedule: OrgSchedule, timing: Timing, count: int, after: datetime) -> SchedulePreview:
    shown = preview(timing, after, count)
    note = shown.note if schedule.state is ScheduleState.ACTIVE else _why(schedule)
    return shown.model_copy(update={"note": note, "runs": tuple(_marked(schedule, run) for run in shown.runs)})


def _of_active(schedule: OrgSchedule, timing: Timing, now: datetime, count: int) -> SchedulePreview:
    planned = _next(schedule)
    if planned is None:
        return preview(timing, now, count)
    runs = tuple(_marked(schedule, run) for run in coming(timing, following(timing, planned), count))
    return SchedulePreview(in_words=in_words(timing.cron.text), timezone=schedule.timezone, runs=runs)


def _next(schedule: OrgSchedule) -> Planned | None:
    if schedule.next_scheduled_for is None or schedule.next_run_at is None:
        return None
    return Planned(schedule.next_scheduled_for, schedule.next_run_at)


def _marked(schedule: OrgSchedule, run: ComingRun) -> ComingRun:
    if not schedule.skip_next_run or run.scheduled_for != schedule.next_scheduled_for:
        return run
    reason = schedule.skip_next_run_reason
    skipped = f"It is left out: {reason}" if reason else "It is left out."
    return run.model_copy(update={"is_skipped": True, "note": f"{run.note} {skipped}" if run.note else skipped})


def _none(schedule: OrgSchedule, why: str) -> SchedulePreview:
    return SchedulePreview(in_words=in_words(schedule.cron_expression), timezone=schedule.timezone, runs=(), note=why)


def _why(schedule: OrgSchedule) -> str:
    match schedule.state:
        case ScheduleState.COMPLETED:
            return "It has come to its end."
        case ScheduleState.INVALID_CRON:
            return "It is not due any more: correct when it is due."
        case _:
            return f"It is paused: {schedule.pause_reason}" if schedule.pause_reason else "It is paused."
