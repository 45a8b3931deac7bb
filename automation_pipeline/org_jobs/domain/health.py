"""What alerts are made of: the facts about schedules, jobs and hosts that somebody may have to hear of."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.org_jobs.domain.timing import TimingFields


@dataclass(frozen=True, kw_only=True)
class FailedJobs:
    """Jobs that failed for good lately: of one schedule, or of one type where they have none. `last_*` is of the
    newest."""

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
class Health:
    """`oldest_due_at`: since when the oldest schedule waits that is due; None: none is."""

    oldest_due_at: datetime | None = None
    failed_jobs: Sequence[FailedJobs] = ()
    failing: Sequence[FailingSchedule] = ()
    unreadable: Sequence[UnreadableSchedule] = ()
    watched: Sequence[WatchedSchedule] = ()
    quiet_hosts: Sequence[QuietHost] = ()
    batches: Sequence[SpoiltBatch] = ()
