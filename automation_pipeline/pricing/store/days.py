"""The runs that ended within a span of time, in as many queries however many they are."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.day import DayRun, DayRuns
from automation_pipeline.pricing.domain.failures import FailureKind
from automation_pipeline.pricing.domain.invariants import RunFacts, TargetFacts, broken_invariants
from automation_pipeline.pricing.domain.reconciliation import MismatchSeverity
from automation_pipeline.pricing.domain.run_result import RunTimes, counts_for_success
from automation_pipeline.pricing.domain.states import RunState, TargetState
from automation_pipeline.pricing.store.last_checks import last_checks
from automation_pipeline.pricing.tables import CheckRow, RuleRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.bulk import among


@dataclass
class _Targets:
    """Of one run."""

    facts: list[TargetFacts] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def runs_that_ended(session: Session, since: datetime, until: datetime) -> DayRuns:
    """In the order of their ends. `until` is not part of the span."""
    ended = RuleRunRow.finished_at >= since, RuleRunRow.finished_at < until
    query = select(RuleRunRow, RuleRow.name).join(RuleRow, RuleRow.id == RuleRunRow.rule_id).where(*ended)
    rows = session.execute(query.order_by(RuleRunRow.finished_at, RuleRunRow.id)).tuples().all()
    targets = _targets(session, [row.id for row, _ in rows])
    mismatched = _mismatched(session, [row.id for row, _ in rows if row.status != RunState.ROLLED_BACK])
    runs = [_day_run(row, name, targets[row.id].counts, row.id in mismatched) for row, name in rows]
    broken = [line for row, _ in rows for line in broken_invariants(_facts(row), targets[row.id].facts)]
    return DayRuns(runs, broken)


def _targets(session: Session, run_ids: Collection[int]) -> Mapping[int, _Targets]:
    row, found = RuleTargetRow, {run_id: _Targets() for run_id in run_ids}
    query = (
        select(row.rule_run_id, row.id, row.status, row.attempts, row.applied_at)
        .add_columns(row.error_type, row.acknowledged_at.is_(None))
        .where(among(session, row.rule_run_id, run_ids))
        .order_by(row.id)
    )
    for run_id, id_, status, attempts, applied_at, error, is_open in session.execute(query).tuples():
        state, one = TargetState(status), found[run_id]
        one.facts.append(TargetFacts(id=str(id_), status=state, attempts=attempts, applied_at=applied_at))
        one.counts.update(_counted(state, error, is_open=is_open))
    return found


def _counted(state: TargetState, error: str | None, *, is_open: bool) -> list[str]:
    if state in {TargetState.APPLIED, TargetState.ROLLED_BACK}:
        return ["applied"]
    if state is not TargetState.FAILED:
        return []
    letters = ["dead_letters"] if is_open else []
    return ["failed", *letters] if counts_for_success(state, FailureKind(str(error))) else letters


def _mismatched(session: Session, run_ids: Collection[int]) -> set[int]:
    newest = last_checks(among(session, CheckRow.rule_run_id, run_ids))
    query = select(CheckRow.rule_run_id).where(CheckRow.id.in_(newest), CheckRow.worst == MismatchSeverity.CRITICAL)
    return set(session.scalars(query))


def _day_run(row: RuleRunRow, name: str, counts: Mapping[str, int], has_mismatch: bool) -> DayRun:
    status, ended_at = RunState(row.status), row.finished_at or row.updated_at
    return DayRun(
        id=row.id,
        rule_name=name,
        project_id=row.project_id,
        trigger=row.trigger,
        status=status,
        finished_at=ended_at,
        apply_ms=RunTimes(row.queued_at, row.started_at, row.finished_at).apply_ms,
        applied=counts.get("applied", 0),
        failed=counts.get("failed", 0),
        dead_letters=0 if status is RunState.ROLLED_BACK else counts.get("dead_letters", 0),
        has_mismatch=has_mismatch,
    )


def _facts(row: RuleRunRow) -> RunFacts:
    return RunFacts(
        id=str(row.id),
        rule_id=str(row.rule_id),
        status=RunState(row.status),
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
