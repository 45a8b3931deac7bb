"""How runs of rules have gone, and how they stand: numbers for graphs, each by one query."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.circuit import CircuitState
from automation_pipeline.pricing.domain.reconciliation import WATCHED_FOR
from automation_pipeline.pricing.domain.states import RunState
from automation_pipeline.pricing.store.last_checks import last_checks
from automation_pipeline.pricing.tables import CheckRow, RuleRunRow, ShopRow


def blocked_variants(session: Session) -> Mapping[str, int]:
    """By project, how many variants its guardrails kept out of runs."""
    query = select(RuleRunRow.project_id, func.sum(RuleRunRow.blocked)).group_by(RuleRunRow.project_id)
    found = session.execute(query.order_by(RuleRunRow.project_id)).tuples()
    return {project: int(blocked or 0) for project, blocked in found}


def queue_age_seconds(session: Session, now: datetime) -> float:
    """Of the run that has been queued the longest; 0 when none is."""
    oldest = session.scalar(select(func.min(RuleRunRow.queued_at)).where(RuleRunRow.status == RunState.QUEUED))
    return 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())


def mismatched_prices(session: Session, now: datetime) -> Mapping[str, int]:
    """What the last check of each run found changed, while runs are watched, by the worst that the check found. Of a
    run that was taken back, nothing."""
    newest = last_checks(CheckRow.checked_at > now - WATCHED_FOR)
    query = (
        select(CheckRow.worst, func.sum(CheckRow.mismatches))
        .join(RuleRunRow, RuleRunRow.id == CheckRow.rule_run_id)
        .where(CheckRow.id.in_(newest), CheckRow.worst.is_not(None), CheckRow.mismatches > 0)
        .where(RuleRunRow.status != RunState.ROLLED_BACK)
    )
    found = session.execute(query.group_by(CheckRow.worst)).tuples()
    return {str(worst): int(count or 0) for worst, count in found}


def circuits(session: Session) -> Mapping[str, CircuitState]:
    """By shop."""
    found = session.execute(select(ShopRow.shop, ShopRow.circuit).order_by(ShopRow.shop)).tuples()
    return {shop: CircuitState(state) for shop, state in found}
