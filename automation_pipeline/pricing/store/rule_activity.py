"""What runs of a rule stand in the way of another run of it, and when it was applied last."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain.rule_run import Wish
from automation_pipeline.pricing.domain.states import ACTIVE_RUN_STATES, RunState
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.bulk import among

# Their prices stand in the shop.
STANDING_RUN_STATES = frozenset({RunState.APPLIED, RunState.PARTIAL})


class RuleBusyError(ConflictError):
    """Another run of the rule comes first."""


@dataclass(frozen=True)
class OpenRun:
    """`status` is PREVIEW for one that waits to be planned and queued, and an ended one for what is to be retried."""

    id: int
    status: RunState


def open_run_of(session: Session, rule_id: int) -> OpenRun | None:
    return open_runs_of(session, [rule_id]).get(rule_id)


def open_runs_of(session: Session, rule_ids: Collection[int]) -> dict[int, OpenRun]:
    """By rule, its run that is queued or applied, or that is asked to be (again) and not cancelled; the newest one."""
    query = (
        select(RuleRunRow.rule_id, RuleRunRow.id, RuleRunRow.status)
        .where(among(session, RuleRunRow.rule_id, rule_ids), or_(_is_active(), _is_asked_for()))
        .order_by(RuleRunRow.id)
    )
    rows = session.execute(query).tuples()
    return {rule_id: OpenRun(run_id, RunState(status)) for rule_id, run_id, status in rows}


def active_run_of(session: Session, rule_id: int) -> int | None:
    """The run that is queued or being applied: there is one at most."""
    return session.scalar(select(RuleRunRow.id).where(RuleRunRow.rule_id == rule_id, _is_active()))


def what_comes_first(session: Session, rule_id: int) -> str | None:
    """Why no other run of the rule may be queued: one is queued or being applied, or waits to be tried again."""
    if active_run_of(session, rule_id) is not None:
        return f"Another run of rule {rule_id} is queued or being applied."
    query = select(func.min(RuleRunRow.id)).where(RuleRunRow.rule_id == rule_id, RuleRunRow.wish == Wish.RETRY)
    retried = session.scalar(query)
    if retried is None:
        return None
    return f"Run {retried} of pricing rule {rule_id} waits to be tried again: wait for its end, or cancel it."


def last_applied_at(session: Session, rule_id: int) -> datetime | None:
    """When the last run ended whose prices stand."""
    applied = RuleRunRow.status.in_(sorted(STANDING_RUN_STATES))
    return session.scalar(select(func.max(RuleRunRow.finished_at)).where(RuleRunRow.rule_id == rule_id, applied))


def _is_active() -> ColumnElement[bool]:
    return RuleRunRow.status.in_(sorted(ACTIVE_RUN_STATES))


def _is_asked_for() -> ColumnElement[bool]:
    first = and_(
        RuleRunRow.status == RunState.PREVIEW,
        RuleRunRow.wish == Wish.APPLY,
        RuleRunRow.cancel_requested_at.is_(None),
    )
    return or_(first, RuleRunRow.wish == Wish.RETRY)
