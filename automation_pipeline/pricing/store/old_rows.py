"""What of pricing may go once it is old. Runs, targets, prices and checks stay."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, ColumnElement, cast, exists, or_, select

from automation_pipeline.pricing.domain.raised_alert import AlertStatus
from automation_pipeline.pricing.domain.states import ACTIVE_RUN_STATES, RULE_RUN, RULE_TARGET
from automation_pipeline.pricing.tables import AlertRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.retention import Kind
from automation_pipeline.storage.transitions import TransitionRow


def _old_alerts(before: datetime) -> Sequence[ColumnElement[bool]]:
    """An alert is raised again after hours: nobody looks for one this old."""
    return AlertRow.raised_at <= before, AlertRow.status != AlertStatus.PENDING


def _old_moves(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Not those of a run that works, or is wished to."""
    works = or_(RuleRunRow.status.in_(ACTIVE_RUN_STATES), RuleRunRow.wish.is_not(None))
    entity = cast(TransitionRow.entity_id, BigInteger)
    its_run = select(RuleTargetRow.rule_run_id).where(RuleTargetRow.id == entity).scalar_subquery()
    run_works = exists().where(RuleRunRow.id == entity, works)
    target_works = exists().where(RuleRunRow.id == its_run, works)
    of_run, of_target = TransitionRow.machine == RULE_RUN.name, TransitionRow.machine == RULE_TARGET.name
    return TransitionRow.at <= before, or_(of_run & ~run_works, of_target & ~target_works)


ALERTS = Kind("pricing_alerts", AlertRow, _old_alerts)
MOVES = Kind("state_transitions, pricing", TransitionRow, _old_moves)
