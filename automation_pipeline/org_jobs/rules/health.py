"""The conditions that raise alerts, and how a day is judged."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import islice

from automation_pipeline.core.alerts import AlertCondition, AlertSeverity, AlertStatus
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.core.scheduling.timing import TimingFields, planned_after, read_timing
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.org_jobs.models.jobs import FireOutcome, OrgJobsRunState

# Older events raise no alert, even if no alert was raised when they happened.
LOOK_BACK = timedelta(hours=1)
FAILURES_IN_A_ROW = 3
HEARTBEAT_MISSED_AFTER = timedelta(minutes=3)
SERVER_DOWN_AFTER = timedelta(minutes=15)
LATE_AFTER = timedelta(seconds=300)
MOST_NAMED = 5


class OrgJobsAlertName(StrEnum):
    SCHEDULE_FAILED = "schedule_failed"
    JOB_RUN_FAILED = "job_run_failed"
    HEARTBEAT_MISSED = "heartbeat_missed"
    BATCH_FAILED = "batch_failed"
    SERVER_DOWN = "server_down"
    INVALID_CRON = "invalid_cron"
    OLDEST_DUE = "oldest_due"
    SILENT_SCHEDULE = "silent_schedule"


_CRITICAL = frozenset(
    {
        OrgJobsAlertName.SERVER_DOWN,
        OrgJobsAlertName.INVALID_CRON,
        OrgJobsAlertName.OLDEST_DUE,
        OrgJobsAlertName.SILENT_SCHEDULE,
    }
)


def late_alerts(oldest_due_at: datetime | None, now: datetime) -> Iterator[AlertCondition]:
    """About the oldest schedule that is due and was not dispatched."""
    if oldest_due_at is not None and now - oldest_due_at > LATE_AFTER:
        message = (
            f"A schedule has been due for {_duration(now - oldest_due_at)} and was not dispatched."
        )
        yield _alert(None, OrgJobsAlertName.OLDEST_DUE, "scheduler", message)


def unreadable_alert(
    org_id: str, schedule_id: str, name: str, cron: str, since: datetime
) -> AlertCondition:
    message = f"Schedule {name!r} is never due again: correct its cron ({cron!r}) or its time zone."
    return _alert(org_id, OrgJobsAlertName.INVALID_CRON, schedule_id, message, since)


def failing_alerts(
    org_id: str, schedule_id: str, name: str, in_a_row: int, is_paused: bool, last_at: datetime
) -> Iterator[AlertCondition]:
    """About a schedule that has failed recently. `is_paused`: because of its failures."""
    if in_a_row >= FAILURES_IN_A_ROW or is_paused:
        times = "once" if in_a_row == 1 else f"{in_a_row} times in a row"
        message = f"Schedule {name!r} has failed {times}{' and is paused' if is_paused else ''}."
        alert = _alert(org_id, OrgJobsAlertName.SCHEDULE_FAILED, schedule_id, message, last_at)
        yield replace(alert, severity=AlertSeverity.CRITICAL) if is_paused else alert


def failed_jobs_alert(  # noqa: PLR0913, PLR0917  what the message says
    org_id: str,
    schedule_id: str | None,
    type_: str,
    count: int,
    last_id: int,
    last_at: datetime,
    last_error: str | None = None,
) -> AlertCondition:
    """About failed jobs that are not retried: of one schedule, or of one type without a schedule."""
    jobs = "A job has failed" if count == 1 else f"{count} jobs have failed"
    error = f": {last_error}" if last_error else "."
    message = f"{jobs} after the last attempt ({type_}); the newest is job {last_id}{error}"
    subject = schedule_id or f"{org_id}:{type_}"
    return _alert(org_id, OrgJobsAlertName.JOB_RUN_FAILED, subject, message, last_at)


def batch_alert(
    org_id: str, batch_id: int, schedule_id: str, finished_at: datetime
) -> AlertCondition:
    message = (
        f"Backfill {batch_id} of schedule {schedule_id} has ended, and some of its jobs failed."
    )
    return _alert(org_id, OrgJobsAlertName.BATCH_FAILED, str(batch_id), message, finished_at)


def host_alerts(  # noqa: PLR0913  what the decision needs, by name
    org_id: str,
    host_id: int,
    name: str,
    now: datetime,
    *,
    silent_since: datetime,
    was_seen: bool,
    waiting: int,
    at_work: int,
    has_servers: bool,
) -> Iterator[AlertCondition]:
    """`waiting` jobs have not started, `at_work` jobs have. `has_servers`: enabled ones."""
    silence, subject = now - silent_since, str(host_id)
    if waiting + at_work and silence > HEARTBEAT_MISSED_AFTER:
        message = (
            f"The agent of host {name!r} has been silent for {_duration(silence)}: {at_work} of its jobs "
            f"are running and {waiting} are waiting."
        )
        yield _alert(org_id, OrgJobsAlertName.HEARTBEAT_MISSED, subject, message)
    if was_seen and has_servers and silence > SERVER_DOWN_AFTER:
        message = (
            f"Host {name!r} has been silent for {_duration(silence)}: its servers count as down."
        )
        down_at = silent_since + SERVER_DOWN_AFTER
        yield _alert(org_id, OrgJobsAlertName.SERVER_DOWN, subject, message, down_at)


def silent_alerts(
    org_id: str, schedule_id: str, name: str, timing: TimingFields, since: datetime, now: datetime
) -> Iterator[AlertCondition]:
    """About an active schedule that has missed two due times since it last was due or changed. The
    due times are computed here, because the dispatcher's plan may be wrong."""
    second = _second_after(timing, since)
    if second is not None and now - second > LATE_AFTER:
        message = f"Schedule {name!r} is active, but its last two due times were not dispatched."
        yield _alert(org_id, OrgJobsAlertName.SILENT_SCHEDULE, schedule_id, message)


def _alert(
    org_id: str | None,
    name: OrgJobsAlertName,
    subject: str,
    message: str,
    happened_at: datetime | None = None,
) -> AlertCondition:
    return AlertCondition(
        org_id=org_id,
        name=name,
        severity=AlertSeverity.CRITICAL if name in _CRITICAL else AlertSeverity.WARNING,
        subject=subject,
        message=message,
        happened_at=happened_at,
    )


# Thousands of schedules have the same few hundred expressions and were due at the same time.
@lru_cache(maxsize=4096)
def _second_after(fields: TimingFields, since: datetime) -> datetime | None:
    try:
        planned = planned_after(read_timing(fields), since)
        second = next(islice(planned, 1, None), None)
    except InvalidInputError:  # the dispatcher reports it when it is due
        return None
    return None if second is None else second.effective_for


def _duration(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


class OrgAlert(JsonModel):
    """`org_id` None: about the scheduler itself. `subject`: the id of the schedule, host or
    backfill, or another key."""

    id: Id
    org_id: str | None
    name: OrgJobsAlertName
    severity: AlertSeverity
    subject: str
    message: str
    raised_at: Instant
    status: AlertStatus
    attempts: int
    status_code: int | None
    last_error: str | None
    sent_at: Instant | None


@dataclass(frozen=True, kw_only=True)
class DayFires:
    """Due times of one organisation with the same outcome. `latency_seconds` is the mean of the
    `timed` ones, which the cron dispatched."""

    org_id: str
    outcome: FireOutcome
    skip_reason: str | None
    count: int
    timed: int
    latency_seconds: float


@dataclass(frozen=True, kw_only=True)
class DayJobs:
    """Jobs of one organisation and type that ended with the same status."""

    org_id: str
    status: OrgJobsRunState
    type: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Day:
    """`oldest_due_seconds` and `unreadable`, which are ids of schedules, describe the present and
    not the day."""

    fires: Sequence[DayFires]
    jobs: Sequence[DayJobs]
    oldest_due_seconds: float
    unreadable: Sequence[str]

    @property
    def by_outcome(self) -> Mapping[str, int]:
        return _summed((one.outcome, one.count) for one in self.fires)

    @property
    def by_skip_reason(self) -> Mapping[str, int]:
        return _summed(
            (one.skip_reason, one.count) for one in self.fires if one.skip_reason is not None
        )

    @property
    def by_state(self) -> Mapping[str, int]:
        return _summed((one.status, one.count) for one in self.jobs)

    @property
    def mean_latency_seconds(self) -> float | None:
        timed = sum(one.timed for one in self.fires)
        return sum(one.timed * one.latency_seconds for one in self.fires) / timed if timed else None

    @property
    def organisations(self) -> Sequence[str]:
        return sorted({one.org_id for one in (*self.fires, *self.jobs)})


# The asset checks of a day.
DAY_CHECKS = ("no_fire_failed", "nothing_left_due", "no_invalid_cron")


def judge_day(day: Day) -> tuple[DayFinding, ...]:
    """One finding per check. A day without due times passes all checks."""
    fires, due, cron = DAY_CHECKS
    failed = day.by_outcome.get(FireOutcome.FAILED, 0)
    is_late = day.oldest_due_seconds > LATE_AFTER.total_seconds()
    late = f"A schedule has been due for {day.oldest_due_seconds:.0f} s."
    unreadable = "Every schedule is valid."
    if day.unreadable:
        more = len(day.unreadable) - MOST_NAMED
        named = ", ".join(day.unreadable[:MOST_NAMED])
        unreadable = f"Never due until they are corrected: {named}{f', and {more} more' if more > 0 else ''}."
    return (
        DayFinding(
            fires, not failed, f"{failed} due times have no job because of an error.", grave=True
        ),
        DayFinding(due, not is_late, late if is_late else "No schedule is overdue.", grave=True),
        DayFinding(cron, not day.unreadable, unreadable),
    )


def _summed(counted: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    sums: Counter[str] = Counter()
    for name, count in counted:
        sums[str(name)] += count
    return sums
