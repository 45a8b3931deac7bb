"""Prices that are expected to stand in the shop: those that were applied last, and that nobody is changing."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, exists, or_, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.pricing.domain.money import Price, price_of
from automation_pipeline.pricing.domain.reconciliation import WATCHED_FOR, in_daily_pass
from automation_pipeline.pricing.domain.states import OPEN_TARGET_STATES, TargetState
from automation_pipeline.pricing.store.rule_activity import STANDING_RUN_STATES
from automation_pipeline.pricing.tables import CheckRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.bulk import among

Target = RuleTargetRow


@dataclass(frozen=True)
class StandingTarget:
    id: int
    run_id: int
    variant_id: str
    sku_id: str | None
    expected: Price


def standing_targets(session: Session, run_ids: Collection[int]) -> list[StandingTarget]:
    """The applied ones of these runs that no run has applied over since."""
    later = aliased(Target)
    is_later = or_(
        later.applied_at > Target.applied_at, and_(later.applied_at == Target.applied_at, later.id > Target.id)
    )
    is_same = and_(later.shop == Target.shop, later.variant_id == Target.variant_id, later.currency == Target.currency)
    query = (
        select(Target.id, Target.rule_run_id, Target.variant_id, Target.sku_id, Target.after_json)
        .where(among(session, Target.rule_run_id, run_ids), Target.status == TargetState.APPLIED)
        .where(~exists().where(is_same, later.status == TargetState.APPLIED, is_later))
        .order_by(Target.id)
    )
    return [
        StandingTarget(id_, run_id, variant_id, sku_id, price_of(after))
        for id_, run_id, variant_id, sku_id, after in session.execute(query).tuples()
        if variant_id is not None
    ]


def variants_in_flux(session: Session, shop: str, variant_ids: Collection[str]) -> set[str]:
    """Those that somebody is writing now, has written with an unknown outcome, or is about to take back."""
    is_unknown = and_(Target.outcome_unknown, Target.status.in_(sorted(OPEN_TARGET_STATES)))
    is_wanted_back = and_(Target.is_wished, Target.status == TargetState.APPLIED)
    query = select(Target.variant_id).where(
        Target.shop == shop,
        among(session, Target.variant_id, variant_ids),
        or_(Target.is_writing, is_unknown, is_wanted_back),
    )
    return {variant_id for variant_id in session.scalars(query) if variant_id is not None}


def runs_to_look_at(session: Session, shop: str, day: str, now: datetime) -> Sequence[int]:
    """Those of the daily pass that were not looked at on this day."""
    is_done = exists().where(
        CheckRow.rule_run_id == RuleRunRow.id, CheckRow.name == day, CheckRow.checked_at.is_not(None)
    )
    query = select(RuleRunRow.id, RuleRunRow.finished_at).where(
        RuleRunRow.shop == shop,
        RuleRunRow.status.in_(sorted(STANDING_RUN_STATES)),
        RuleRunRow.finished_at >= now - WATCHED_FOR,
        ~is_done,
    )
    ended = session.execute(query.order_by(RuleRunRow.id)).tuples()
    return [run_id for run_id, at in ended if at is not None and in_daily_pass(at, now)]
