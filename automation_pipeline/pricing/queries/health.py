"""Queries about the health of projects, gauges, and the runs of a day."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Text, cast, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.models.history import (
    DayRun,
    DayRuns,
    MismatchSeverity,
    ProjectHealth,
)
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    RULE_RUN,
    PricingRunState,
    RunTimes,
    TargetState,
    counts_for_success,
)
from automation_pipeline.pricing.models.shop import FailureKind
from automation_pipeline.pricing.queries.checks import last_checks
from automation_pipeline.pricing.rules.monitoring import (
    KEPT_FOR,
    RATE_LIMIT_WINDOW,
    WATCHED_FOR,
    RunFacts,
    TargetFacts,
    broken_invariants,
)
from automation_pipeline.pricing.rules.pacing import CircuitState
from automation_pipeline.pricing.tables import (
    RuleCheckRow,
    RuleRow,
    RuleRunRow,
    RuleTargetRow,
    ShopRow,
)
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.transitions import TransitionRow

SUCCESS_WINDOW = timedelta(hours=1)
_SETTLED = (TargetState.APPLIED, TargetState.FAILED, TargetState.ROLLED_BACK)


def health_of_projects(session: Session, now: datetime) -> dict[str, ProjectHealth]:
    """By project; one of which there is nothing to say is not there."""
    tried, letters = _attempted_targets(session, now), dead_letter_counts(session, now)
    shops, shops_of_projects = (
        session.scalars(select(ShopRow)).all(),
        _shops_of_projects(session, now),
    )
    refused = _rate_limits(shops, shops_of_projects, database_time(session))
    open_circuits = _open_circuits(shops, shops_of_projects)
    applied = Counter(
        {project: count for (project, is_applied), count in tried.items() if is_applied}
    )
    failed = Counter(
        {project: count for (project, is_applied), count in tried.items() if not is_applied}
    )
    return {
        project: ProjectHealth(
            applied=applied[project],
            failed=failed[project],
            dead_letters=letters.get(project, 0),
            rate_limits=refused.get(project, 0),
            open_circuit=open_circuits.get(project),
        )
        for project in sorted({*applied, *failed, *letters, *refused, *open_circuits})
    }


def dead_letter_counts(session: Session, now: datetime) -> Mapping[str, int]:
    """By project, those that nobody has acknowledged and that are still kept."""
    query = (
        select(RuleTargetRow.project_id, func.count())
        .join(RuleRunRow, RuleRunRow.id == RuleTargetRow.rule_run_id)
        .where(
            RuleTargetRow.status == TargetState.FAILED,
            RuleTargetRow.acknowledged_at.is_(None),
            RuleTargetRow.last_attempt >= now - KEPT_FOR,
            RuleRunRow.status != PricingRunState.ROLLED_BACK,
        )
        .group_by(RuleTargetRow.project_id)
    )
    return dict(iter(session.execute(query).tuples()))


def _attempted_targets(session: Session, now: datetime) -> Counter[tuple[str, bool]]:
    """How many targets were applied, and how many not, in the last cycles of the runs that ended
    lately. One that was rolled back since was applied then."""
    began_at = (
        select(func.max(TransitionRow.at))
        .where(
            TransitionRow.machine == RULE_RUN.name,
            TransitionRow.entity_id == cast(RuleRunRow.id, Text),
            TransitionRow.to_state == PricingRunState.APPLYING,
        )
        .scalar_subquery()
    )
    ended = (
        select(
            RuleRunRow.id, RuleRunRow.project_id, RuleRunRow.retry_cycle, began_at.label("began_at")
        )
        .where(
            RuleRunRow.finished_at > now - SUCCESS_WINDOW,
            RuleRunRow.status.not_in(ACTIVE_RUN_STATES),
        )
        .cte("ended")
    )
    in_last_cycle = or_(ended.c.retry_cycle == 0, RuleTargetRow.last_attempt >= ended.c.began_at)
    query = (
        select(ended.c.project_id, RuleTargetRow.status, RuleTargetRow.error_type, func.count())
        .join(RuleTargetRow, RuleTargetRow.rule_run_id == ended.c.id)
        .where(RuleTargetRow.status.in_(_SETTLED), in_last_cycle)
        .group_by(ended.c.project_id, RuleTargetRow.status, RuleTargetRow.error_type)
    )
    counts: Counter[tuple[str, bool]] = Counter()
    for project, status, error, count in session.execute(query).tuples():
        then = TargetState.APPLIED if status == TargetState.ROLLED_BACK else TargetState(status)
        kind = FailureKind(error) if then is TargetState.FAILED else None
        if counts_for_success(then, kind):
            counts[project, then is TargetState.APPLIED] += count
    return counts


def _shops_of_projects(session: Session, now: datetime) -> list[tuple[str, str]]:
    """Pairs of a project and a shop where it has a run at work, or had one in the last minutes."""
    is_at_work = or_(RuleRunRow.status.in_(ACTIVE_RUN_STATES), RuleRunRow.wish.is_not(None))
    has_just_ended = RuleRunRow.finished_at > now - RATE_LIMIT_WINDOW
    query = (
        select(RuleRunRow.project_id, RuleRunRow.shop)
        .where(or_(is_at_work, has_just_ended))
        .distinct()
    )
    return list(session.execute(query).tuples())


def _rate_limits(
    shops: Sequence[ShopRow], shops_of_projects: Sequence[tuple[str, str]], now: datetime
) -> dict[str, int]:
    """By project, the refusals of its shops in the last minutes."""
    since = (now - RATE_LIMIT_WINDOW).timestamp()
    lately = {shop.shop: sum(at > since for at in shop.refusals) for shop in shops}
    refused: Counter[str] = Counter()
    for project, shop in shops_of_projects:
        refused[project] += lately.get(shop, 0)
    return {project: count for project, count in refused.items() if count}


def _open_circuits(
    shops: Sequence[ShopRow], shops_of_projects: Sequence[tuple[str, str]]
) -> dict[str, str]:
    not_closed = {shop.shop for shop in shops if shop.circuit != CircuitState.CLOSED}
    return {project: shop for project, shop in shops_of_projects if shop in not_closed}


def blocked_variants(session: Session) -> Mapping[str, int]:
    """By project, how many variants its guardrails kept out of runs."""
    query = select(RuleRunRow.project_id, func.sum(RuleRunRow.blocked)).group_by(
        RuleRunRow.project_id
    )
    found = session.execute(query.order_by(RuleRunRow.project_id)).tuples()
    return {project: int(blocked or 0) for project, blocked in found}


def queue_age_seconds(session: Session, now: datetime) -> float:
    """Of the run that has been queued the longest; 0 when none is."""
    oldest = session.scalar(
        select(func.min(RuleRunRow.queued_at)).where(RuleRunRow.status == PricingRunState.QUEUED)
    )
    return 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())


def mismatched_prices(session: Session, now: datetime) -> Mapping[str, int]:
    """What the last check of each run found changed, while runs are watched, by the worst that the
    check found. Of a run that was taken back, nothing."""
    newest = last_checks(RuleCheckRow.checked_at > now - WATCHED_FOR)
    query = (
        select(RuleCheckRow.worst, func.sum(RuleCheckRow.mismatches))
        .join(RuleRunRow, RuleRunRow.id == RuleCheckRow.rule_run_id)
        .where(
            RuleCheckRow.id.in_(newest),
            RuleCheckRow.worst.is_not(None),
            RuleCheckRow.mismatches > 0,
        )
        .where(RuleRunRow.status != PricingRunState.ROLLED_BACK)
    )
    found = session.execute(query.group_by(RuleCheckRow.worst)).tuples()
    return {str(worst): int(count or 0) for worst, count in found}


def circuits(session: Session) -> Mapping[str, CircuitState]:
    """By shop."""
    found = session.execute(select(ShopRow.shop, ShopRow.circuit).order_by(ShopRow.shop)).tuples()
    return {shop: CircuitState(state) for shop, state in found}


@dataclass
class _Targets:
    """Of one run."""

    facts: list[TargetFacts] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def runs_that_ended(session: Session, since: datetime, until: datetime) -> DayRuns:
    """In the order of their ends. `until` is not part of the span."""
    ended = RuleRunRow.finished_at >= since, RuleRunRow.finished_at < until
    query = (
        select(RuleRunRow, RuleRow.name)
        .join(RuleRow, RuleRow.id == RuleRunRow.rule_id)
        .where(*ended)
    )
    rows = session.execute(query.order_by(RuleRunRow.finished_at, RuleRunRow.id)).tuples().all()
    targets = _targets(session, [row.id for row, _ in rows])
    mismatched = _mismatched(
        session, [row.id for row, _ in rows if row.status != PricingRunState.ROLLED_BACK]
    )
    runs = [_day_run(row, name, targets[row.id].counts, row.id in mismatched) for row, name in rows]
    broken = [
        line for row, _ in rows for line in broken_invariants(_facts(row), targets[row.id].facts)
    ]
    return DayRuns(runs, broken)


def _targets(session: Session, run_ids: Collection[int]) -> Mapping[int, _Targets]:
    row, found = RuleTargetRow, {run_id: _Targets() for run_id in run_ids}
    query = (
        select(row.rule_run_id, row.id, row.status, row.attempts, row.applied_at)
        .add_columns(row.error_type, row.acknowledged_at.is_(None))
        .where(among(session, row.rule_run_id, run_ids))
        .order_by(row.id)
    )
    for run_id, id_, status, attempts, applied_at, error, is_open in session.execute(
        query
    ).tuples():
        state, one = TargetState(status), found[run_id]
        one.facts.append(
            TargetFacts(id=str(id_), status=state, attempts=attempts, applied_at=applied_at)
        )
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
    newest = last_checks(among(session, RuleCheckRow.rule_run_id, run_ids))
    query = select(RuleCheckRow.rule_run_id).where(
        RuleCheckRow.id.in_(newest), RuleCheckRow.worst == MismatchSeverity.CRITICAL
    )
    return set(session.scalars(query))


def _day_run(row: RuleRunRow, name: str, counts: Mapping[str, int], has_mismatch: bool) -> DayRun:
    status, ended_at = PricingRunState(row.status), row.finished_at or row.updated_at
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
        dead_letters=0 if status is PricingRunState.ROLLED_BACK else counts.get("dead_letters", 0),
        has_mismatch=has_mismatch,
    )


def _facts(row: RuleRunRow) -> RunFacts:
    return RunFacts(
        id=str(row.id),
        rule_id=str(row.rule_id),
        status=PricingRunState(row.status),
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
