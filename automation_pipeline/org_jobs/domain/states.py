"""The states of schedules, fires and runs of jobs, with every legal move; all others are refused."""

from enum import StrEnum

from automation_pipeline.core.state_machine import StateMachine


class ScheduleState(StrEnum):
    """`enabled` is what the operator wants; PAUSED says that it is not so."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    INVALID_CRON = "INVALID_CRON"
    COMPLETED = "COMPLETED"


class FireOutcome(StrEnum):
    DISPATCHED = "DISPATCHED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"


class FireTrigger(StrEnum):
    """CATCHUP: later than the grace allows, because its misfire policy says so."""

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


class RunState(StrEnum):
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


FIRST_RUN_STATE = RunState.PENDING

SCHEDULE = StateMachine(
    name="schedule",
    moves={
        ScheduleState.ACTIVE: frozenset({ScheduleState.PAUSED, ScheduleState.INVALID_CRON, ScheduleState.COMPLETED}),
        ScheduleState.PAUSED: frozenset({ScheduleState.ACTIVE, ScheduleState.INVALID_CRON, ScheduleState.COMPLETED}),
        ScheduleState.INVALID_CRON: frozenset({ScheduleState.ACTIVE, ScheduleState.PAUSED, ScheduleState.COMPLETED}),
        # Its end was moved: it goes on.
        ScheduleState.COMPLETED: frozenset({ScheduleState.ACTIVE, ScheduleState.PAUSED, ScheduleState.INVALID_CRON}),
    },
)

# A failed attempt that is tried again goes through FAILED. A job that nobody took in time fails without having run.
JOB_RUN = StateMachine(
    name="job run",
    moves={
        RunState.PENDING: frozenset({RunState.RUNNING, RunState.CANCELLED, RunState.FAILED}),
        RunState.RUNNING: frozenset({RunState.SUCCESS, RunState.FAILED, RunState.CANCELLED}),
        RunState.FAILED: frozenset({RunState.PENDING}),
        RunState.SUCCESS: frozenset(),
        RunState.CANCELLED: frozenset(),
    },
)

ACTIVE_RUN_STATES = frozenset({RunState.PENDING, RunState.RUNNING})
ENDED_RUN_STATES = frozenset({RunState.SUCCESS, RunState.FAILED, RunState.CANCELLED})
