"""When an alert is raised, what its webhook contains, and how a day is judged."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import islice

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.core.scheduling.timing import TimingFields, planned_after, read_timing
from automation_pipeline.core.webhooks import AlertSeverity, AlertStatus, signed_headers
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.org_jobs.models.states import DAY_CHECKS, FireOutcome, OrgJobsRunState


@dataclass(frozen=True, kw_only=True)
class FailedJobs:
    """Jobs that failed for good lately: of one schedule, or of one type where they have none.
    `last_*` is of the newest."""

    org_id: str
    schedule_id: str | None
    type: str
    count: int
    last_id: int
    last_at: datetime
    last_error: str | None = None


@dataclass(frozen=True, kw_only=True)
class FailingSchedule:
    """One that has failed lately: its job for good, or nobody could make one."""

    org_id: str
    id: str
    name: str
    in_a_row: int
    is_paused_for_it: bool
    last_at: datetime


@dataclass(frozen=True, kw_only=True)
class UnreadableSchedule:
    org_id: str
    id: str
    name: str
    cron_expression: str
    since: datetime


@dataclass(frozen=True, kw_only=True)
class WatchedSchedule:
    """An ACTIVE one. `since`: the later of what it last was due for and its last change."""

    org_id: str
    id: str
    name: str
    timing: TimingFields
    since: datetime


@dataclass(frozen=True, kw_only=True)
class QuietHost:
    """`waiting` jobs have not begun, `at_work` ones have. `has_servers`: enabled ones are on it."""

    org_id: str
    id: int
    name: str
    silent_since: datetime
    was_seen: bool
    waiting: int
    at_work: int
    has_servers: bool


@dataclass(frozen=True, kw_only=True)
class SpoiltBatch:
    org_id: str
    id: int
    schedule_id: str
    finished_at: datetime


@dataclass(frozen=True, kw_only=True)
class OrgHealth:
    """`oldest_due_at`: since when the oldest schedule waits that is due; None: none is."""

    oldest_due_at: datetime | None = None
    failed_jobs: Sequence[FailedJobs] = ()
    failing: Sequence[FailingSchedule] = ()
    unreadable: Sequence[UnreadableSchedule] = ()
    watched: Sequence[WatchedSchedule] = ()
    quiet_hosts: Sequence[QuietHost] = ()
    batches: Sequence[SpoiltBatch] = ()


COOLDOWN = timedelta(minutes=15)
# What happened longer ago is told no more, also where nobody looked for a while.
LOOK_BACK = timedelta(hours=1)
FAILURES_IN_A_ROW = 3
HEARTBEAT_MISSED_AFTER = timedelta(minutes=3)
SERVER_DOWN_AFTER = timedelta(minutes=15)
LATE_AFTER = timedelta(seconds=300)
SCHEDULER = "scheduler"


class OrgJobsAlertName(StrEnum):
    SCHEDULE_FAILED = "schedule_failed"
    JOB_RUN_FAILED = "job_run_failed"
    HEARTBEAT_MISSED = "heartbeat_missed"
    BATCH_FAILED = "batch_failed"
    SERVER_DOWN = "server_down"
    INVALID_CRON = "invalid_cron"
    OLDEST_DUE = "oldest_due"
    SILENT_SCHEDULE = "silent_schedule"


@dataclass(frozen=True, kw_only=True)
class OrgAlertCondition:
    """`happened_at`: it happened once, and is told once; None: it lasts, and is told again after
    each cooldown. `org_id` None: it is about the scheduler itself."""

    org_id: str | None
    name: OrgJobsAlertName
    severity: AlertSeverity
    subject: str
    message: str
    happened_at: datetime | None = None


@dataclass(frozen=True)
class LastRaised:
    """The last alert of a name about a subject."""

    severity: AlertSeverity
    at: datetime


def due_alerts(health: OrgHealth, now: datetime) -> list[OrgAlertCondition]:
    """At most one a name and subject."""
    return [
        *_late(health.oldest_due_at, now),
        *(_unreadable(one) for one in health.unreadable),
        *(alert for one in health.failing for alert in _failing(one)),
        *(_failed(one) for one in health.failed_jobs),
        *(_spoilt(one) for one in health.batches),
        *(alert for host in health.quiet_hosts for alert in _quiet(host, now)),
        *(alert for one in health.watched for alert in _silent(one, now)),
    ]


def is_to_raise(alert: OrgAlertCondition, last: LastRaised | None, now: datetime) -> bool:
    """Once until its cooldown is over; what has become worse is told at once."""
    if last is None:
        return True
    if alert.happened_at is not None and alert.happened_at <= last.at:
        return False
    became_worse = (
        alert.severity is AlertSeverity.CRITICAL and last.severity is AlertSeverity.WARNING
    )
    return became_worse or now - last.at >= COOLDOWN


def _late(oldest_due_at: datetime | None, now: datetime) -> Iterator[OrgAlertCondition]:
    if oldest_due_at is not None and now - oldest_due_at > LATE_AFTER:
        message = f"A schedule has been due for {_length(now - oldest_due_at)} and nobody has looked at it."
        yield OrgAlertCondition(
            org_id=None,
            name=OrgJobsAlertName.OLDEST_DUE,
            severity=AlertSeverity.CRITICAL,
            subject=SCHEDULER,
            message=message,
        )


def _unreadable(one: UnreadableSchedule) -> OrgAlertCondition:
    message = (
        f"Schedule {one.name!r} is never due any more: nothing can be made of its times "
        f"({one.cron_expression!r})."
    )
    return OrgAlertCondition(
        org_id=one.org_id,
        name=OrgJobsAlertName.INVALID_CRON,
        severity=AlertSeverity.CRITICAL,
        subject=one.id,
        message=message,
        happened_at=one.since,
    )


def _failing(one: FailingSchedule) -> Iterator[OrgAlertCondition]:
    if one.in_a_row < FAILURES_IN_A_ROW and not one.is_paused_for_it:
        return
    times = "once" if one.in_a_row == 1 else f"{one.in_a_row} times in a row"
    message = f"Schedule {one.name!r} has failed {times}"
    yield OrgAlertCondition(
        org_id=one.org_id,
        name=OrgJobsAlertName.SCHEDULE_FAILED,
        severity=AlertSeverity.CRITICAL if one.is_paused_for_it else AlertSeverity.WARNING,
        subject=one.id,
        message=f"{message} and was paused for it." if one.is_paused_for_it else f"{message}.",
        happened_at=one.last_at,
    )


def _failed(one: FailedJobs) -> OrgAlertCondition:
    said = (
        "A job has failed for good" if one.count == 1 else f"{one.count} jobs have failed for good"
    )
    words = f"{said} ({one.type}), the last is job {one.last_id}"
    return OrgAlertCondition(
        org_id=one.org_id,
        name=OrgJobsAlertName.JOB_RUN_FAILED,
        severity=AlertSeverity.WARNING,
        subject=one.schedule_id or f"{one.org_id}:{one.type}",
        message=f"{words}: {one.last_error}" if one.last_error else f"{words}.",
        happened_at=one.last_at,
    )


def _spoilt(one: SpoiltBatch) -> OrgAlertCondition:
    return OrgAlertCondition(
        org_id=one.org_id,
        name=OrgJobsAlertName.BATCH_FAILED,
        severity=AlertSeverity.WARNING,
        subject=str(one.id),
        message=f"Backfill {one.id} of schedule {one.schedule_id} is over, and not all of its jobs have succeeded.",
        happened_at=one.finished_at,
    )


def _quiet(host: QuietHost, now: datetime) -> Iterator[OrgAlertCondition]:
    silence = now - host.silent_since
    jobs = host.waiting + host.at_work
    if jobs and silence > HEARTBEAT_MISSED_AFTER:
        words = f"{host.at_work} jobs are at work there and {host.waiting} wait."
        message = f"The agent of host {host.name!r} has been silent for {_length(silence)}: {words}"
        yield OrgAlertCondition(
            org_id=host.org_id,
            name=OrgJobsAlertName.HEARTBEAT_MISSED,
            severity=AlertSeverity.WARNING,
            subject=str(host.id),
            message=message,
        )
    if host.was_seen and host.has_servers and silence > SERVER_DOWN_AFTER:
        yield OrgAlertCondition(
            org_id=host.org_id,
            name=OrgJobsAlertName.SERVER_DOWN,
            severity=AlertSeverity.CRITICAL,
            subject=str(host.id),
            message=f"Host {host.name!r} has not been heard of for {_length(silence)}: its servers are taken for down.",
            happened_at=host.silent_since + SERVER_DOWN_AFTER,
        )


def _silent(one: WatchedSchedule, now: datetime) -> Iterator[OrgAlertCondition]:
    """The dispatcher's own word for it is not taken: two of its due times have gone by since it was
    last looked at."""
    second = _second_after(one.timing, one.since)
    if second is not None and now - second > LATE_AFTER:
        yield OrgAlertCondition(
            org_id=one.org_id,
            name=OrgJobsAlertName.SILENT_SCHEDULE,
            severity=AlertSeverity.CRITICAL,
            subject=one.id,
            message=f"Schedule {one.name!r} is active, and the last two of its due times have gone by unnoticed.",
        )


@lru_cache(
    maxsize=4096
)  # thousands of schedules share a few hundred expressions, and were due at the same time
def _second_after(fields: TimingFields, since: datetime) -> datetime | None:
    try:
        two = list(islice(planned_after(read_timing(fields), since), 2))
    except InvalidInputError:  # the dispatcher finds out when it is due
        return None
    return two[1].effective_for if len(two) > 1 else None


def _length(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


ALERT_EVENT = "org_jobs.alert"


class OrgAlert(JsonModel):
    """`org_id` None: about the scheduler itself. `subject`: the id of the schedule, host or
    backfill, or what fits."""

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
class DueOrgAlert:
    """One whose webhook is to be called now, for the `attempt`-th time."""

    id: int
    org_id: str | None
    name: str
    severity: str
    subject: str
    message: str
    raised_at: datetime
    attempt: int


def message_of(alert: DueOrgAlert) -> dict[str, object]:
    told = {
        "id": str(alert.id),
        "name": alert.name,
        "severity": alert.severity,
        "subject": alert.subject,
        "message": alert.message,
        "orgId": alert.org_id,
        "raisedAt": iso(alert.raised_at),
    }
    return {"event": ALERT_EVENT, "alert": told}


def headers_of(
    alert: DueOrgAlert, body: bytes, secret: str | None, at: datetime
) -> Mapping[str, str]:
    """As webhooks about runs have them."""
    return signed_headers(
        ALERT_EVENT, f"org-jobs-alert-{alert.id}", body, secret, int(at.timestamp())
    )


NAMED = 5


@dataclass(frozen=True, kw_only=True)
class DayFires:
    """Due times of one organisation that went the same way. `latency_seconds` is the mean of those
    dispatched as the cron said."""

    org_id: str
    outcome: FireOutcome
    skip_reason: str | None
    count: int
    timed: int = 0
    latency_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DayJobs:
    """Jobs of one organisation and type that ended alike on the day."""

    org_id: str
    status: OrgJobsRunState
    type: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Day:
    """`oldest_due_seconds` and `unreadable`, which are ids of schedules, are of the moment,
    whatever the day."""

    fires: Sequence[DayFires] = ()
    jobs: Sequence[DayJobs] = ()
    oldest_due_seconds: float = 0.0
    unreadable: Sequence[str] = ()

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


def judge_day(day: Day) -> tuple[DayFinding, ...]:
    """One finding a check. A day without anything is a good day."""
    fires, due, cron = DAY_CHECKS
    failed = day.by_outcome.get(FireOutcome.FAILED, 0)
    late = day.oldest_due_seconds > LATE_AFTER.total_seconds()
    left = (
        f"A schedule has been due for {day.oldest_due_seconds:.0f} s."
        if late
        else "Whatever is due is looked at."
    )
    return (
        DayFinding(
            fires,
            not failed,
            f"{failed} due times came to nothing because no job could be made.",
            grave=True,
        ),
        DayFinding(due, not late, left, grave=True),
        DayFinding(cron, not day.unreadable, _unreadable_words(day.unreadable)),
    )


def _unreadable_words(ids: Sequence[str]) -> str:
    if not ids:
        return "Every schedule can be read."
    more = f", and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return f"Never due until somebody corrects them: {', '.join(ids[:NAMED])}{more}."


def _summed(counted: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    sums: Counter[str] = Counter()
    for name, count in counted:
        sums[str(name)] += count
    return sums
