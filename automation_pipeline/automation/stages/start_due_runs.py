"""Decide upon every due time that is not decided yet, once: run it, or write down why not."""

from datetime import datetime

from automation_pipeline.automation.domain.due import Decision, DueRules, NotRun, decide, next_due
from automation_pipeline.automation.domain.due_report import DueReport, Started
from automation_pipeline.automation.stages.reconcile_stale_runs import reconcile_stale_runs
from automation_pipeline.automation.store.due import Candidate, forget_paused, hold_candidates, schedules_watched
from automation_pipeline.automation.store.due_starts import (
    Start,
    record_decided,
    record_next_due,
    record_not_run,
    start_runs,
)
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database, Session

Decided = list[tuple[Candidate, Decision]]


def start_due_runs(rules: DueRules, *, database: Database, clock: Clock) -> DueReport:
    """Safe beside another copy of itself and beside runs asked for by hand: one due time, one run, one at a time."""
    reconciled = reconcile_stale_runs(rules, database=database, clock=clock)
    now = clock.now()
    with database.transaction() as session:
        forget_paused(session)
        candidates = hold_candidates(session, now, rules)
        decisions = [(one, decide(one.schedule, now, rules)) for one in candidates.readable]
        # Stale still: ending it failed a moment ago. The next look tries again.
        decided = [(one, decision) for one, decision in decisions if not decision.reconcile]
        started = _apply(session, decided, now)
        return DueReport(
            checked=schedules_watched(session),
            triggered=tuple(started),
            not_run=tuple(_not_run(decided)),
            reconciled=tuple(reconciled),
            broken=tuple(candidates.broken.items()),
        )


def _apply(session: Session, decided: Decided, now: datetime) -> list[Started]:
    starts = [Start(one, due_at) for one, decision in decided for due_at in decision.to_run[:1]]
    started = start_runs(session, starts, now)
    record_not_run(session, _not_run(decided), now)
    until = {one.schedule.id: decision.decided_until(one.schedule.decided_until) for one, decision in decided}
    settled = {one.schedule.id for one, decision in decided if decision.to_run or decision.not_run}
    record_decided(session, {id_: due_at for id_, due_at in until.items() if id_ in settled})
    coming = ((one, next_due(one.schedule, until[one.schedule.id], now)) for one, _ in decided)
    record_next_due(session, [(one, due_at) for one, due_at in coming if due_at != one.next_due_at])
    return [
        Started(start.schedule_id, start.candidate.schedule.name, start.due_at, run_id)
        for start, run_id in started.items()
    ]


def _not_run(decided: Decided) -> list[tuple[int, NotRun]]:
    return [(one.schedule.id, entry) for one, decision in decided for entry in decision.not_run]
