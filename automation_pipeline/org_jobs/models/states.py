"""States of schedules, fires, runs and backfills with their legal moves, and the policies of
schedules."""

from enum import StrEnum

from automation_pipeline.core.state_machine import StateMachine


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
        # Its end was moved, so it continues.
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
