"""What is always true of a run and its targets, checked: each broken promise in one sentence."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from automation_pipeline.pricing.domain.money import Price
from automation_pipeline.pricing.domain.retrying import MAX_RETRIES
from automation_pipeline.pricing.domain.states import (
    ACTIVE_RUN_STATES,
    ENDED_RUN_STATES,
    OPEN_TARGET_STATES,
    RunState,
    TargetState,
)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    id: str
    rule_id: str
    status: RunState
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    id: str
    status: TargetState
    attempts: int = 0
    applied_at: datetime | None = None


@dataclass(frozen=True)
class PricedTarget:
    """A target's prices as they were when it was queued, or as they are now."""

    id: str
    before: Price
    after: Price


def broken_invariants(run: RunFacts, targets: Sequence[TargetFacts]) -> list[str]:
    """Empty for a run that keeps all its promises."""
    counts = Counter(target.status for target in targets)
    return [*_broken_times(run), *_broken_counts(run, counts), *(line for one in targets for line in _broken(one))]


def doubly_active_rules(runs: Iterable[RunFacts]) -> list[str]:
    """Rules with more than one run that is queued or being applied."""
    counts = Counter(run.rule_id for run in runs if run.status in ACTIVE_RUN_STATES)
    return [f"Rule {rule_id} has {count} active runs at once." for rule_id, count in counts.items() if count > 1]


def repriced(queued: Iterable[PricedTarget], now: Iterable[PricedTarget]) -> list[str]:
    """Targets whose prices were changed after they were queued."""
    kept = {target.id: target for target in queued}
    changed = [target.id for target in now if target.id in kept and kept[target.id] != target]
    return [f"The prices of target {target_id} were changed after it was queued." for target_id in changed]


def _broken_times(run: RunFacts) -> Iterator[str]:
    named = (("queued", run.queued_at), ("started", run.started_at), ("finished", run.finished_at))
    known = [(name, at) for name, at in named if at is not None]
    for (earlier, first), (later, second) in pairwise(known):
        if second < first:
            yield f"Run {run.id} was {later} before it was {earlier}."
    if run.status is not RunState.PREVIEW and run.queued_at is None:
        yield f"Run {run.id} is {run.status} and was never queued."
    if run.status in ENDED_RUN_STATES and run.finished_at is None:
        yield f"Run {run.id} is {run.status} and does not say when it finished."


def _broken_counts(run: RunFacts, counts: Counter[TargetState]) -> Iterator[str]:
    applied, failed = counts[TargetState.APPLIED], counts[TargetState.FAILED]
    unfinished = sum(counts[state] for state in OPEN_TARGET_STATES)
    # A run that is partly rolled back may have none applied but those rolled back.
    reached = applied + counts[TargetState.ROLLED_BACK]
    checks = (
        (run.status is RunState.APPLIED and failed > 0, f"has {failed} failed targets"),
        (run.status is RunState.PARTIAL and (reached == 0 or failed == 0), "lacks applied or failed targets"),
        (run.status is RunState.FAILED and applied > 0, f"has {applied} applied targets"),
        (run.status is RunState.ROLLED_BACK and applied > 0, f"has {applied} applied targets left"),
        (run.status in ENDED_RUN_STATES and unfinished > 0, f"has {unfinished} unfinished targets"),
    )
    return (f"Run {run.id} is {run.status} and {fault}." for is_broken, fault in checks if is_broken)


def _broken(target: TargetFacts) -> Iterator[str]:
    if target.attempts < 0:
        yield f"Target {target.id} has {target.attempts} attempts."
    if target.attempts > MAX_RETRIES and target.status is not TargetState.FAILED:
        yield f"Target {target.id} is {target.status} after {target.attempts} retries; {MAX_RETRIES} are allowed."
    if target.status is TargetState.APPLIED and target.applied_at is None:
        yield f"Target {target.id} is APPLIED and does not say when."
