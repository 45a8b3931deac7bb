"""What the sensor of schedules and promotions reads and writes, for however many rules at once."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, exists, or_, select, update
from sqlalchemy.orm import Session, aliased

from automation_pipeline.pricing.domain.promotion import Plan
from automation_pipeline.pricing.domain.rule_run import RuleTrigger, Wish
from automation_pipeline.pricing.domain.states import ACTIVE_RUN_STATES, TargetState
from automation_pipeline.pricing.store.holds import RUNS
from automation_pipeline.pricing.store.rule_activity import STANDING_RUN_STATES
from automation_pipeline.pricing.tables import RuleRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.instants import database_now


@dataclass(frozen=True)
class PlannedRule:
    """As much of a rule as its schedule is about."""

    id: int
    project_id: str
    version: int
    version_hash: str
    plan: Plan


def hold_planned_rules(session: Session, now: datetime) -> list[PlannedRule]:
    """Rules of which something may be due, deleted ones that still stand applied included.

    They are held until the transaction ends. One that another transaction holds is left for the next look.
    """
    is_applied = select(RuleRunRow.id).where(RuleRunRow.rule_id == RuleRow.id, *_standing()).exists()
    is_in_use = and_(RuleRow.enabled, RuleRow.deleted_at.is_(None))
    starts, ends = and_(RuleRow.schedule_at <= now, is_in_use), and_(RuleRow.ends_at <= now, is_applied)
    stamp = (RuleRow.id, RuleRow.project_id, RuleRow.version, RuleRow.version_hash)
    query = (
        select(*stamp, is_in_use, RuleRow.schedule_at, RuleRow.ends_at, is_applied)
        .where(or_(starts, ends))
        .order_by(RuleRow.id)
        .with_for_update(of=RuleRow, skip_locked=True, key_share=True)
    )
    return [
        PlannedRule(
            id=id_,
            project_id=project_id,
            version=version,
            version_hash=hash_,
            plan=Plan(enabled=bool(enabled), schedule_at=starts_at, ends_at=ends_at, is_applied=bool(applied)),
        )
        for id_, project_id, version, hash_, enabled, starts_at, ends_at, applied in session.execute(query).tuples()
    ]


def clear_schedules(session: Session, rule_ids: Collection[int], now: datetime) -> None:
    if rule_ids:
        session.execute(
            update(RuleRow)
            .where(among(session, RuleRow.id, rule_ids))
            .values(schedule_at=None, updated_at=now)
            .execution_options(synchronize_session=False)
        )


def close_repairs(session: Session, rule_ids: Collection[int], now: datetime) -> None:
    """Of rules that are held: their repairs are dealt with. What they have put back is what the runs that they repair
    have applied, and is taken back with those. One that a worker or another transaction holds is left as it is."""
    if not rule_ids:
        return
    is_left = or_(RuleRunRow.wish.is_(None), RuleRunRow.wish != Wish.ROLLBACK)
    query = (
        select(RuleRunRow.id)
        .where(among(session, RuleRunRow.rule_id, rule_ids), *_standing(), RUNS.is_free())
        .where(RuleRunRow.trigger == RuleTrigger.REPAIR, is_left)
        .with_for_update(skip_locked=True)
    )
    repairs = session.scalars(query).all()
    if not repairs:
        return
    session.execute(
        update(RuleRunRow)
        .where(among(session, RuleRunRow.id, repairs))
        .values(promotion_ended_at=now, wish=None, wished_by=None, resume_at=None, updated_at=now)
        .execution_options(synchronize_session=False)
    )
    session.execute(
        update(RuleTargetRow)
        .where(among(session, RuleTargetRow.rule_run_id, repairs), RuleTargetRow.is_wished)
        .values(is_wished=False)
        .execution_options(synchronize_session=False)
    )


def hold_standing_runs(session: Session, rule_ids: Collection[int]) -> list[tuple[int, int]]:
    """Run and rule, of the newest run of each rule whose promotion's end is not dealt with: what it has changed must be
    taken back before what an older one has. Left for a later look are those that a worker or another transaction
    holds or that rest after an end that failed, and rules of which a run is at work or being rolled back."""
    if not rule_ids:
        return []
    other = aliased(RuleRunRow)
    is_rested = or_(RuleRunRow.resume_at.is_(None), RuleRunRow.resume_at <= database_now())
    is_awaited = exists().where(
        other.rule_id == RuleRunRow.rule_id,
        or_(
            other.wish == Wish.ROLLBACK,
            other.status.in_(sorted(ACTIVE_RUN_STATES)),
            and_(other.id > RuleRunRow.id, *_standing(other)),
        ),
    )
    query = (
        select(RuleRunRow.id, RuleRunRow.rule_id)
        .where(among(session, RuleRunRow.rule_id, rule_ids), *_standing(), RUNS.is_free(), is_rested, ~is_awaited)
        .where(RuleRunRow.trigger != RuleTrigger.REPAIR)
        .order_by(RuleRunRow.id.desc())
        .with_for_update(skip_locked=True)
    )
    return [(run_id, rule_id) for run_id, rule_id in session.execute(query).tuples()]


def wish_rolled_back(session: Session, run_ids: Collection[int], actor: str, now: datetime) -> None:
    """Of runs that are held: all that they have applied. Who waited for a retry of the rest, waits no more."""
    if not run_ids:
        return
    session.execute(
        update(RuleRunRow)
        .where(among(session, RuleRunRow.id, run_ids))
        .values(
            promotion_ended_at=now,
            wish=Wish.ROLLBACK,
            wished_by=actor,
            rollbacks=RuleRunRow.rollbacks + 1,
            rollback_force=False,
            resume_at=None,
            updated_at=now,
        )
        .execution_options(synchronize_session=False)
    )
    is_applied = RuleTargetRow.status == TargetState.APPLIED
    session.execute(
        update(RuleTargetRow)
        .where(among(session, RuleTargetRow.rule_run_id, run_ids), or_(is_applied, RuleTargetRow.is_wished))
        .values(is_wished=is_applied, next_attempt_at=None)
        .execution_options(synchronize_session=False)
    )


def _standing(run: type[RuleRunRow] = RuleRunRow) -> tuple[ColumnElement[bool], ...]:
    return run.status.in_(sorted(STANDING_RUN_STATES)), run.promotion_ended_at.is_(None)
