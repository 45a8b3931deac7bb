"""Jobs of organisations: states, types, retry policies, attempts and their ends, and deterministic keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

from pydantic import Field, PlainSerializer, StrictBool, StrictInt

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    sentence_of,
)
from automation_pipeline.core.json_model import Id, Instant, JsonModel, is_deeper, parse
from automation_pipeline.core.masking import masked_text
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.scheduling.timing import ExecutionWindow
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.core.state_machine import StateMachine
from automation_pipeline.org_jobs.models.organisations import KnownId, Payload, Whole


class ScheduleState(StrEnum):
    """The state of a schedule. `enabled` is the operator's choice; a PAUSED schedule does not run
    although it may be enabled."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    INVALID_CRON = "INVALID_CRON"
    COMPLETED = "COMPLETED"


class FireOutcome(StrEnum):
    DISPATCHED = "DISPATCHED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"


class FireTrigger(StrEnum):
    """CATCHUP: dispatched after the grace time because of the misfire policy."""

    CRON = "CRON"
    CATCHUP = "CATCHUP"
    MANUAL = "MANUAL"
    BACKFILL = "BACKFILL"


class SkipReason(StrEnum):
    OVERLAP = "overlap"
    OUTSIDE_WINDOW = "outside_window"
    MISFIRE = "misfire"
    OPERATOR = "operator"
    MAINTENANCE = "maintenance"
    DISABLED = "disabled"
    HOST_OFFLINE = "host_offline"


class OrgJobsRunState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BatchState(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_WITH_FAILURES = "completed_with_failures"
    CANCELLED = "cancelled"


FIRST_RUN_STATE = OrgJobsRunState.PENDING

SCHEDULE = StateMachine(
    name="schedule",
    moves={
        ScheduleState.ACTIVE: frozenset(
            {ScheduleState.PAUSED, ScheduleState.INVALID_CRON, ScheduleState.COMPLETED}
        ),
        ScheduleState.PAUSED: frozenset(
            {ScheduleState.ACTIVE, ScheduleState.INVALID_CRON, ScheduleState.COMPLETED}
        ),
        ScheduleState.INVALID_CRON: frozenset(
            {ScheduleState.ACTIVE, ScheduleState.PAUSED, ScheduleState.COMPLETED}
        ),
        # A schedule continues when its end is moved.
        ScheduleState.COMPLETED: frozenset(
            {ScheduleState.ACTIVE, ScheduleState.PAUSED, ScheduleState.INVALID_CRON}
        ),
    },
)

# A failed attempt that is retried passes through FAILED. A job that no worker claimed in time fails
# without a start.
JOB_RUN = StateMachine(
    name="job run",
    moves={
        OrgJobsRunState.PENDING: frozenset(
            {OrgJobsRunState.RUNNING, OrgJobsRunState.CANCELLED, OrgJobsRunState.FAILED}
        ),
        OrgJobsRunState.RUNNING: frozenset(
            {OrgJobsRunState.SUCCESS, OrgJobsRunState.FAILED, OrgJobsRunState.CANCELLED}
        ),
        OrgJobsRunState.FAILED: frozenset({OrgJobsRunState.PENDING}),
        OrgJobsRunState.SUCCESS: frozenset(),
        OrgJobsRunState.CANCELLED: frozenset(),
    },
)

ACTIVE_RUN_STATES = frozenset({OrgJobsRunState.PENDING, OrgJobsRunState.RUNNING})
ENDED_RUN_STATES = frozenset(
    {OrgJobsRunState.SUCCESS, OrgJobsRunState.FAILED, OrgJobsRunState.CANCELLED}
)


class MisfirePolicy(StrEnum):
    """The policy for due times that are later than the grace time. SKIP: all are skipped.
    FIRE_ONCE: the newest is run. FIRE_ALL: the newest ten are run, oldest first."""

    SKIP = "SKIP"
    FIRE_ONCE = "FIRE_ONCE"
    FIRE_ALL = "FIRE_ALL"


MOST_CAUGHT_UP = 10


if TYPE_CHECKING:  # attempts need no permissions
    from automation_pipeline.core.access import Permission


class Performer(StrEnum):
    """AGENT: the agent of the server's host claims the job over HTTP. SERVICE: a worker of this
    system runs it."""

    AGENT = "agent"
    SERVICE = "service"


@dataclass(frozen=True, kw_only=True)
class JobType:
    """`permission`: the write permission that the requester needs in addition to `org-jobs`. A host
    runs one changing job at a time, and up to eight read-only jobs. `payload` is a model, a JSON
    Schema, or None for any object. An alias is another name in requests; the job is stored under
    its own."""

    name: str
    performer: Performer
    is_mutation: bool
    limit_seconds: int
    payload: type[JsonModel] | Mapping[str, object] | None
    summary: str
    permission: "Permission | None" = None
    aliases: tuple[str, ...] = ()


LONGEST_SECONDS = 3600.0
JITTER = 0.1
# An agent that is silent for longer loses its claims.
AGENT_LEASE_SECONDS = 180.0

# Error codes of attempts.
STALE, TIME_LIMIT, EXPIRED, FAILED = "STALE", "TIME_LIMIT", "EXPIRED", "FAILED"
VALIDATION, NOT_FOUND, CONFLICT = "VALIDATION", "NOT_FOUND", "CONFLICT"
UNSUPPORTED = "UNSUPPORTED"
NOT_RETRYABLE = frozenset({VALIDATION, NOT_FOUND, UNSUPPORTED, EXPIRED})


class BackoffType(StrEnum):
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class RetryPolicy(JsonModel):
    """The first attempt has up to `max_retries` retries. Exponential waits double, up to an hour."""

    max_retries: StrictInt = Field(default=2, ge=0, le=10)
    backoff_ms: StrictInt = Field(default=2000, ge=0, le=3_600_000)
    backoff_type: BackoffType = BackoffType.FIXED
    jitter: StrictBool = Field(
        default=False, description="Vary each wait by up to a tenth in either direction."
    )

    @property
    def attempts(self) -> int:
        return self.max_retries + 1

    def wait_seconds(self, failures: int, random: Random) -> float:
        """The wait before the next attempt, after that many failures."""
        return Backoff(
            base_seconds=self.backoff_ms / 1000,
            cap_seconds=LONGEST_SECONDS,
            multiplier=2 if self.backoff_type is BackoffType.EXPONENTIAL else 1,
            jitter=JITTER if self.jitter else 0,
        ).delay(failures, random)


def stored_policy(document: Mapping[str, object]) -> RetryPolicy:
    """A stored policy outside today's bounds allows no retry instead of raising an error."""
    try:
        return parse(RetryPolicy, document, "Invalid retry policy")
    except InvalidInputError:
        return RetryPolicy(max_retries=0)


@dataclass(frozen=True)
class StartWindow:
    window: ExecutionWindow
    zone: ZoneInfo

    def first_at(self, instant: datetime) -> datetime:
        return self.window.clamp(instant, self.zone)


def start_window(document: Mapping[str, object] | None) -> StartWindow | None:
    """None: attempts may start at any time, also if the zone database no longer has the zone."""
    if document is None:
        return None
    try:
        window = ExecutionWindow.parse(str(document["start"]), str(document["end"]))
        return window and StartWindow(window, zone(str(document["timezone"])))
    except InvalidInputError:
        return None


def opens_at(document: Mapping[str, object] | None, at: datetime) -> datetime:
    window = start_window(document)
    return at if window is None else window.first_at(at)


def retry_at(
    policy: RetryPolicy, failures: int, now: datetime, window: StartWindow | None, random: Random
) -> datetime | None:
    """When the run is retried: within the window, or when the next one opens. None: never."""
    if failures >= policy.attempts:
        return None
    wanted = now + timedelta(seconds=policy.wait_seconds(failures, random))
    return wanted if window is None else window.first_at(wanted)


def is_retryable(error_code: str | None) -> bool:
    return error_code not in NOT_RETRYABLE


# Pydantic does not serialise values that are nested more than about 250 levels deep.
Document = Annotated[
    Mapping[str, object],
    PlainSerializer(
        lambda document: (
            {"note": "It is nested too deeply to be shown."}
            if is_deeper(document, 100)
            else document
        ),
        return_type=Mapping[str, object],
        when_used="json",
    ),
]

# The retry policy of jobs without a schedule, unless they have their own.
DEFAULT_RETRY_POLICY = RetryPolicy(
    max_retries=2, backoff_ms=2000, backoff_type=BackoffType.EXPONENTIAL
)


class JobInput(JsonModel):
    """A request for a job without a schedule."""

    server_instance_id: KnownId | None = Field(
        default=None,
        description="The server of the job, only for types that agents run.",
    )
    type: str = Field(max_length=100, examples=["SAVE_BACKUP"])
    payload: Payload = Field(
        default_factory=dict[str, object], description="The data that its type requires."
    )
    priority: Annotated[Whole, Field(ge=1, le=9, description="From 1, the most urgent, to 9.")] = 5
    retry_policy: RetryPolicy | None = Field(
        default=None, description="Default: two retries, after two and four seconds."
    )


class Attempt(JsonModel):
    """An attempt that has ended. `late_report` is an agent's report after the system ended the attempt."""

    attempt_no: int
    owner: str | None
    host_id: Id | None
    status: OrgJobsRunState
    started_at: Instant | None
    finished_at: Instant
    error_code: str | None
    error: str | None
    result: Document | None
    log_ref: str | None
    retry_at: Instant | None
    late_report: Document | None


class OrgJobRun(JsonModel):
    """`next_attempt_at` is set while it waits for a retry. `following` names the work in another
    package that it waits for. `attempts` are those that have ended."""

    id: Id
    job_id: Id
    org_id: str
    host_id: Id | None
    status: OrgJobsRunState
    attempt_no: int
    max_attempts: int
    next_attempt_at: Instant | None
    lease_owner: str | None
    lease_until: Instant | None
    started_at: Instant | None
    deadline_at: Instant | None
    progress: Document | None
    progress_at: Instant | None
    following: Document | None
    cancel_requested_at: Instant | None
    cancelled_by: str | None
    cancel_reason: str | None
    finished_at: Instant | None
    result: Document | None
    log_ref: str | None
    error_code: str | None
    error: str | None
    dagster_run_id: str | None
    created_by: str
    created_at: Instant
    attempts: tuple[Attempt, ...] = ()


class OrgJob(JsonModel):
    """`status` is that of its newest run, which is the last of `runs`. `start_window` is when
    attempts may start."""

    id: Id
    org_id: str
    batch_id: Id | None
    server_instance_id: Id | None
    schedule_id: str | None
    schedule_fire_id: Id | None
    scheduled_for: Instant | None
    type: str
    performer: Performer
    payload: Document
    priority: int
    retry_policy: RetryPolicy
    start_window: Document | None
    status: OrgJobsRunState
    expires_at: Instant | None
    created_by: str
    created_at: Instant
    finished_at: Instant | None
    runs: tuple[OrgJobRun, ...] = ()


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    org_id: str | None = None
    status: OrgJobsRunState | None = None
    type: str | None = None
    schedule_id: str | None = None
    server_instance_id: int | None = None
    batch_id: int | None = None


class QueueCounts(JsonModel):
    """The queue of an organisation. `waiting` runs may start now, `retrying` runs wait for their
    next attempt, `claimed` runs have a worker or agent that has not started."""

    org_id: str
    name: str
    max_running: int
    waiting: int
    retrying: int
    claimed: int
    running: int
    oldest_waiting_at: Instant | None
    suspended_at: Instant | None
    maintenance_until: Instant | None


class JobMove(JsonModel):
    """A line of a job's log: a state change of one of its runs."""

    id: Id
    run_id: Id
    from_state: OrgJobsRunState
    to_state: OrgJobsRunState
    actor: str
    reason: str | None
    at: Instant


JOB = "org_job"
PRODUCER = "org-jobs"


def run_key(run_id: int) -> str:
    """The same for all attempts, so that a receiver recognises a repetition."""
    return f"org-job-run-{run_id}"


def request_key(run_id: int, number: int) -> str:
    """The key of the n-th request for a worker of the run."""
    return f"org-job-{run_id}-{number}"


_START_HINTS = {
    Performer.AGENT: "is the agent of its server running?",
    Performer.SERVICE: "does Dagster start workers, and what do the logs of its job's runs show? Run "
    "`automation doctor`.",
}


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended. Failed ones have `error_code` and `error`."""

    status: OrgJobsRunState
    error_code: str | None = None
    error: str | None = None
    result: Mapping[str, object] | None = None
    log_ref: str | None = None


@dataclass(frozen=True)
class RunEnd:
    """The state of the run after the attempt. `retry_at` is set if it waits for a retry."""

    state: OrgJobsRunState
    retry_at: datetime | None = None


def run_end(  # noqa: PLR0913  what the decision needs, by name
    end: AttemptEnd,
    *,
    from_state: OrgJobsRunState,
    attempt_no: int,
    policy: RetryPolicy,
    window: StartWindow | None,
    is_cancel_wanted: bool,
    now: datetime,
    random: Random,
) -> RunEnd:
    """Raises IllegalMoveError for an end that the state does not allow. A run that is to be cancelled is
    not retried."""
    JOB_RUN.move(from_state, end.status)
    is_failed = end.status is OrgJobsRunState.FAILED
    next_attempt_at = None
    if is_failed and not is_cancel_wanted and is_retryable(end.error_code):
        next_attempt_at = retry_at(policy, attempt_no, now, window, random)
    if next_attempt_at is None:
        return RunEnd(end.status)
    return RunEnd(OrgJobsRunState.PENDING, next_attempt_at)


def attempt_failed(
    error: str, error_code: str = FAILED, result: Mapping[str, object] | None = None
) -> AttemptEnd:
    return AttemptEnd(
        status=OrgJobsRunState.FAILED, error_code=error_code, error=error, result=result
    )


def attempt_too_long(seconds: float) -> AttemptEnd:
    error = f"It did not end within {seconds:.0f} s, the limit of its type."
    return attempt_failed(error, TIME_LIMIT)


def attempt_cancelled(
    reason: str | None = None, result: Mapping[str, object] | None = None
) -> AttemptEnd:
    return AttemptEnd(status=OrgJobsRunState.CANCELLED, error=reason, result=result)


def attempt_succeeded(
    result: Mapping[str, object] | None = None, log_ref: str | None = None
) -> AttemptEnd:
    return AttemptEnd(status=OrgJobsRunState.SUCCESS, result=result, log_ref=log_ref)


# An error has the code of the first type that it is an instance of. CONFLICT is retryable, because
# a conflict may be resolved before the next attempt.
_CODES: tuple[tuple[type[AutomationError], str], ...] = (
    (NotFoundError, NOT_FOUND),
    (ConflictError, CONFLICT),
    (InvalidInputError, VALIDATION),
    (PermanentError, UNSUPPORTED),
)


def end_of_error(error: AutomationError) -> AttemptEnd:
    code = next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
    return attempt_failed(masked_text(sentence_of(error)), code)


LONGEST_WAIT = timedelta(hours=24)


def expires_at(
    starts_at: datetime, *, has_window: bool, longest_wait: timedelta = LONGEST_WAIT
) -> datetime:
    """Return when the run expires, counted from when it may start. A window adds one day, so that a
    run that missed its window may start in the next one."""
    return starts_at + longest_wait + timedelta(days=1 if has_window else 0)


def end_of_unattended(  # noqa: PLR0913  what the decision needs, by name
    now: datetime,
    *,
    status: OrgJobsRunState,
    performer: Performer,
    is_cancel_wanted: bool = False,
    cancel_reason: str | None = None,
    silent_seconds: float | None = None,
    is_held: bool = False,
    is_followed: bool = False,
    started_at: datetime | None = None,
    deadline_at: datetime | None = None,
    expires_at: datetime | None = None,
) -> AttemptEnd | None:
    """How the attempt ends; None: it continues. `silent_seconds` is how long the holder has been
    silent, once that is too long. A followed run needs no heartbeat: `follow_jobs` ends it."""
    if status is OrgJobsRunState.PENDING and not (is_held or is_followed):
        if expires_at is None or expires_at > now:
            return None
        error = f"It did not start by {iso(expires_at)}: {_START_HINTS[performer]}"
        return attempt_failed(error, EXPIRED)
    is_late = deadline_at is not None and deadline_at <= now
    is_over = status is OrgJobsRunState.RUNNING and (is_late or silent_seconds is not None)
    if is_followed or not is_over:
        return None
    if is_cancel_wanted:
        return attempt_cancelled(cancel_reason)
    if deadline_at is not None and is_late:
        return attempt_too_long((deadline_at - (started_at or deadline_at)).total_seconds())
    error = f"It sent no heartbeat for {silent_seconds:.0f} s: its worker or agent counts as lost."
    return attempt_failed(error, STALE)
