"""Prices that are to be taken back: which are asked for, which are at work, and what has become of each."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import ColumnElement, Table, bindparam, exists, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from automation_pipeline.pricing.domain.dead_letters import worth_retrying
from automation_pipeline.pricing.domain.keys import rollback_key
from automation_pipeline.pricing.domain.money import price_document, price_of
from automation_pipeline.pricing.domain.retrying import Progress
from automation_pipeline.pricing.domain.rollback import AppliedTarget, turned_round
from automation_pipeline.pricing.domain.states import TargetState
from automation_pipeline.pricing.domain.work import Applied, GivenUp, PutBack, Settled, WorkTarget
from automation_pipeline.pricing.store.chunks import MOST_PRODUCTS, MOST_TARGETS, Outlook, doom_of
from automation_pipeline.pricing.store.holds import LostHoldError
from automation_pipeline.pricing.store.moves import move_targets
from automation_pipeline.pricing.store.settling import doom_columns, keep_price_changes, progress_columns
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.instants import database_now

Target = RuleTargetRow
_TARGETS = cast("Table", RuleTargetRow.__table__)


def rollback_candidates(session: Session, run_id: int) -> list[AppliedTarget]:
    query = select(Target.id, Target.status, Target.applied_at).where(Target.rule_run_id == run_id)
    return [AppliedTarget(str(id_), TargetState(status), at) for id_, status, at in session.execute(query).tuples()]


def wish_targets_back(session: Session, target_ids: Collection[int]) -> None:
    session.execute(
        update(Target)
        .where(among(session, Target.id, target_ids))
        .values(is_wished=True, next_attempt_at=None)
        .execution_options(synchronize_session=False)
    )


def release_writing(session: Session, run_id: int) -> None:
    """What a lost worker was at. Whatever became of its calls, prices are read before they are written."""
    session.execute(
        update(Target)
        .where(Target.rule_run_id == run_id, Target.is_writing)
        .values(is_writing=False)
        .execution_options(synchronize_session=False)
    )


def claim_applied(session: Session, run_id: int, now: datetime) -> list[WorkTarget]:
    """Those that are due, turned round, the last applied first; whole products together as far as they fit. Variants
    that another run writes are left until it is done."""
    is_due = or_(Target.next_attempt_at.is_(None), Target.next_attempt_at <= database_now())
    due = (
        select(Target.id, Target.product_id)
        .where(*_wished(run_id), is_due, ~_is_written_elsewhere())
        .order_by(Target.applied_at.desc(), Target.id.desc())
        .limit(MOST_TARGETS)
    )
    chosen = _by_product(session.execute(due).tuples())
    if not chosen:
        return []
    try:
        with session.begin_nested():
            rows = session.scalars(
                update(Target)
                .where(among(session, Target.id, chosen), *_wished(run_id))
                .values(is_writing=True, last_attempt=now)
                .returning(Target)
                .execution_options(synchronize_session=False)
            ).all()
    except IntegrityError:
        return []
    for row in rows:
        session.expunge(row)
    return [turned_round(_work_target(row, now)) for row in sorted(rows, key=lambda row: chosen.index(row.id))]


def rollback_outlook(session: Session, run_id: int) -> Outlook:
    """`queued` are those that wait to be taken back."""
    query = select(func.count(), func.min(func.coalesce(Target.next_attempt_at, Target.last_attempt)))
    waiting, first = session.execute(query.where(*_wished(run_id))).tuples().one()
    return Outlook(waiting, 0, first)


def settle_back(session: Session, run: RuleRunRow, settled: Sequence[Settled], now: datetime) -> None:
    """Of a run that is held: all of it in a constant number of statements. What could not be taken back stays
    applied, and says why."""
    back = [one for one in settled if isinstance(one, Applied)]
    move_targets(session, TargetState.APPLIED, {one.target.id: _of_back(now) for one in back}, _actor(run), now)
    keys = {rollback_key(str(run.id), str(one.target.id), run.rollbacks): one for one in back}
    keep_price_changes(session, run, keys, "rollback", now)
    waiting = [one for one in settled if isinstance(one, PutBack)]
    _update(session, {one.target.id: _of_waiting(one, now) for one in waiting if one.was_tried})
    _update(session, {one.target.id: {"is_writing": False} for one in waiting if not one.was_tried})
    _update(session, {one.target.id: _of_left(one) for one in settled if isinstance(one, GivenUp)})


def leave_all_wished(session: Session, run_id: int, left: Mapping[str, object]) -> None:
    """Nothing more is tried."""
    session.execute(
        update(Target)
        .where(*_wished(run_id))
        .values(is_wished=False, is_writing=False, next_attempt_at=None, **left)
        .execution_options(synchronize_session=False)
    )


def states_of_targets(session: Session, run_id: int) -> dict[TargetState, int]:
    query = select(Target.status, func.count()).where(Target.rule_run_id == run_id).group_by(Target.status)
    return {TargetState(status): count for status, count in session.execute(query).tuples()}


def _wished(run_id: int) -> tuple[ColumnElement[bool], ...]:
    return Target.rule_run_id == run_id, Target.status == TargetState.APPLIED, Target.is_wished.is_(True)


def _is_written_elsewhere() -> ColumnElement[bool]:
    other = aliased(Target)
    return exists().where(other.shop == Target.shop, other.variant_id == Target.variant_id, other.is_writing)


def _by_product(due: Iterable[tuple[int, str]]) -> list[int]:
    products: dict[str, list[int]] = {}
    for id_, product in due:
        products.setdefault(product, []).append(id_)
    return [id_ for ids in list(products.values())[:MOST_PRODUCTS] for id_ in ids]


def _work_target(row: RuleTargetRow, now: datetime) -> WorkTarget:
    """An applied target that waits for its next attempt counts those of its rollback; else it begins anew."""
    is_under_way = row.next_attempt_at is not None
    return WorkTarget(
        id=row.id,
        product_id=row.product_id,
        variant_id=row.variant_id,
        sku=row.sku_id,
        before=price_of(row.before_json),
        after=price_of(row.after_json),
        writes_compare_at=row.writes_compare_at,
        progress=Progress(row.attempts, row.rate_limit_waits, row.rate_limit_seconds) if is_under_way else Progress(),
        outcome_unknown=False,
        began_at=now,
        doom=doom_of(row) if is_under_way else None,
    )


def _of_back(now: datetime) -> dict[str, object]:
    return {
        "status": TargetState.ROLLED_BACK,
        "is_writing": False,
        "is_wished": False,
        "rolled_back_at": now,
        "next_attempt_at": None,
        "error_message": None,
        "error_type": None,
        "error_retryable": None,
    }


def _of_waiting(one: PutBack, now: datetime) -> dict[str, object]:
    return {
        "is_writing": False,
        "next_attempt_at": now + timedelta(seconds=one.wait_seconds),
        **doom_columns(one),
        **progress_columns(one.progress),
    }


def _of_left(one: GivenUp) -> dict[str, object]:
    return {
        "is_writing": False,
        "is_wished": False,
        "next_attempt_at": None,
        "error_message": one.failure.message,
        "error_type": one.failure.kind,
        "error_retryable": worth_retrying(one.failure.kind, retryable=one.failure.retryable),
        "observed_price": price_document(one.seen) if one.seen else None,
        **progress_columns(one.progress),
    }


def _update(session: Session, changes: Mapping[int, Mapping[str, object]]) -> None:
    """All name the same columns; the targets stay applied."""
    if not changes:
        return
    columns = next(iter(changes.values()))
    statement = (
        update(_TARGETS)
        .where(_TARGETS.c.id == bindparam("its_id"), _TARGETS.c.status == TargetState.APPLIED)
        .values({name: bindparam(name) for name in columns})
    )
    rows = [{"its_id": id_, **change} for id_, change in changes.items()]
    if session.connection().execute(statement, rows).rowcount != len(rows):
        raise LostHoldError("Targets that were being taken back are not applied any more: somebody else moved them.")


def _actor(run: RuleRunRow) -> str:
    return run.wished_by or "worker"
