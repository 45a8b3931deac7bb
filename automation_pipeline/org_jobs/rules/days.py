"""How a day of schedules and jobs went, and whether that is good enough."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.org_jobs.models.states import FireOutcome, OrgJobsRunState
from automation_pipeline.org_jobs.rules.alerts import LATE_AFTER

DAY_CHECKS = ("no_fire_failed", "nothing_left_due", "no_invalid_cron")
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
