"""Queries of the targets of a run: count, mark, claim, write outcomes, roll back."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, Table, bindparam, exists, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from automation_pipeline.pricing.events import apply_key, rollback_key
from automation_pipeline.pricing.models.runs import (
    RULE_TARGET,
    LostRunClaimError,
    TargetCounts,
    TargetState,
)
from automation_pipeline.pricing.models.shop import CallFailure, FailureKind, price_of
from automation_pipeline.pricing.rules.runs import (
    AppliedResult,
    AttemptProgress,
    FailedResult,
    RequeuedResult,
    TargetOutcome,
    WorkTarget,
    reversed_target,
    worth_retrying,
)
from automation_pipeline.pricing.tables import PriceChangeRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.statements import among, database_now, upsert

MAX_TARGETS = 250
MAX_PRODUCTS = 25
WORKER = "worker"

Target = RuleTargetRow
_TABLE = cast("Table", RuleTargetRow.__table__)
_NO_ERROR: Mapping[str, object] = {
    "error_message": None,
    "error_type": None,
    "error_retryable": None,
}


def update_targets(
    session: Session, *which: ColumnElement[bool] | InstrumentedAttribute[bool], **values: object
) -> None:
    session.execute(
        update(Target).where(*which).values(**values).execution_options(synchronize_session=False)
    )


def target_counts(session: Session, run_ids: Collection[int]) -> dict[int, TargetCounts]:
    """Return the counts by run, including runs without targets."""
    is_cancelled = func.coalesce(Target.error_type, "") == FailureKind.CANCELLED
    group = (
        Target.rule_run_id,
        Target.status,
        (Target.status == TargetState.FAILED) & is_cancelled,
    )
    query = (
        select(*group, func.count())
        .where(among(session, Target.rule_run_id, run_ids))
        .group_by(*group)
    )
    counts = {run_id: dict.fromkeys(TargetCounts.model_fields, 0) for run_id in run_ids}
    for run_id, status, cancelled, count in session.execute(query).tuples():
        counts[run_id][status.lower()] += count
        counts[run_id]["cancelled"] += count if cancelled else 0
    return {run_id: TargetCounts(**its) for run_id, its in counts.items()}


def mark_targets(session: Session, run_id: int, target_ids: Collection[int]) -> None:
    """Mark exactly these targets of the run for the requested retry or rollback."""
    is_chosen = among(session, Target.id, target_ids)
    update_targets(
        session,
        Target.rule_run_id == run_id,
        or_(Target.is_wished, is_chosen),
        is_wished=is_chosen,
        next_attempt_at=None,
    )


def _log_moves(
    session: Session,
    frm: TargetState,
    changes: Mapping[int, Mapping[str, object]],
    actor: str,
    now: datetime,
) -> None:
    moves = [
        {
            "machine": RULE_TARGET.name,
            "entity_id": str(id_),
            "from_state": frm,
            "to_state": change["status"],
            "actor": actor,
            "reason": change.get("error_message"),
            "at": now,
        }
        for id_, change in changes.items()
    ]
    if moves:
        session.execute(insert(TransitionRow), moves)


def move_targets(
    session: Session,
    frm: TargetState,
    changes: Mapping[int, Mapping[str, object]],
    actor: str,
    now: datetime,
) -> None:
    """Write the columns of each target, including `status`; every target has the same columns.
    Raises LostRunClaimError if a target is no longer in the state `frm`; the transaction must then be
    rolled back."""
    for change in changes.values():
        RULE_TARGET.move(frm, TargetState(str(change["status"])))
    _write(session, frm, changes)
    _log_moves(session, frm, changes, actor, now)


def _write(
    session: Session, state: TargetState, changes: Mapping[int, Mapping[str, object]]
) -> None:
    if not changes:
        return
    statement = (
        update(_TABLE)
        .where(_TABLE.c.id == bindparam("of_id"), _TABLE.c.status == bindparam("in_state"))
        .values({name: bindparam(name) for name in next(iter(changes.values()))})
    )
    rows = [{"of_id": id_, "in_state": state, **change} for id_, change in changes.items()]
    if session.connection().execute(statement, rows).rowcount != len(rows):
        raise LostRunClaimError(
            f"Targets that were {state} have changed: another process moved them."
        )


def claim_chunk(session: Session, run_id: int, actor: str, now: datetime) -> list[WorkTarget]:
    """Claim due targets, those of a product together. Variants that another run is writing wait until
    it has finished. The result is empty if another process has claimed one of them at the same
    time."""
    rows = _claim(
        session,
        (Target.rule_run_id == run_id, Target.status == TargetState.QUEUED),
        (Target.id.asc(),),
        status=TargetState.APPLYING,
        is_writing=True,
        last_attempt=now,
        began_at=func.coalesce(Target.began_at, now),
        next_attempt_at=None,
    )
    moves = {row.id: {"status": TargetState.APPLYING} for row in rows}
    _log_moves(session, TargetState.QUEUED, moves, actor, now)
    return [_work_target(row, row.began_at or now) for row in rows]


def claim_applied(session: Session, run_id: int, now: datetime) -> list[WorkTarget]:
    """Claim targets that are marked for a rollback, last applied first, and return them reversed.
    Attempts are counted from zero, except for a target that waits for its next attempt."""
    rows = _claim(
        session,
        _marked_applied(run_id),
        (Target.applied_at.desc(), Target.id.desc()),
        is_writing=True,
        last_attempt=now,
    )
    return [
        reversed_target(_work_target(row, now, continues=row.next_attempt_at is not None))
        for row in rows
    ]


def _claim(
    session: Session,
    which: Sequence[ColumnElement[bool]],
    order: Sequence[ColumnElement[Any]],
    **values: object,
) -> list[RuleTargetRow]:
    other = aliased(Target)
    is_due = or_(Target.next_attempt_at.is_(None), Target.next_attempt_at <= database_now())
    is_written_elsewhere = exists().where(
        other.shop == Target.shop, other.variant_id == Target.variant_id, other.is_writing
    )
    due = (
        select(Target.id, Target.product_id)
        .where(*which, is_due, ~is_written_elsewhere)
        .order_by(*order)
        .limit(MAX_TARGETS)
    )
    by_product: dict[str, list[int]] = {}
    for id_, product in session.execute(due).tuples():
        by_product.setdefault(product, []).append(id_)
    chosen = [id_ for ids in list(by_product.values())[:MAX_PRODUCTS] for id_ in ids]
    if not chosen:
        return []
    try:
        with session.begin_nested():
            rows = session.scalars(
                update(Target)
                .where(among(session, Target.id, chosen), *which)
                .values(**values)
                .returning(Target)
                .execution_options(synchronize_session=False)
            ).all()
    except IntegrityError:
        return []
    for row in rows:
        session.expunge(row)
    return sorted(rows, key=lambda row: chosen.index(row.id))


def _work_target(row: RuleTargetRow, began_at: datetime, *, continues: bool = True) -> WorkTarget:
    is_final = continues and row.error_type is not None
    return WorkTarget(
        id=row.id,
        product_id=row.product_id,
        variant_id=row.variant_id,
        sku=row.sku_id,
        before=price_of(row.before_json),
        after=price_of(row.after_json),
        writes_compare_at=row.writes_compare_at,
        progress=AttemptProgress(row.attempts, row.rate_limit_waits, row.rate_limit_seconds)
        if continues
        else AttemptProgress(),
        outcome_unknown=row.outcome_unknown,
        began_at=began_at,
        final_failure=CallFailure(
            FailureKind(str(row.error_type)), row.error_message or "", bool(row.error_retryable)
        )
        if is_final
        else None,
    )


def waiting_targets(
    session: Session, run_id: int, *, is_rollback: bool = False
) -> tuple[int, datetime | None]:
    """Return how many targets wait to be applied or rolled back, and when the first is due. Without a
    due time, the targets are due now and wait for another run."""
    which = (
        _marked_applied(run_id)
        if is_rollback
        else (Target.rule_run_id == run_id, Target.status == TargetState.QUEUED)
    )
    due_at = func.coalesce(Target.next_attempt_at, Target.last_attempt)
    return session.execute(select(func.count(), func.min(due_at)).where(*which)).tuples().one()


def _marked_applied(run_id: int) -> tuple[ColumnElement[bool], ...]:
    return (
        Target.rule_run_id == run_id,
        Target.status == TargetState.APPLIED,
        Target.is_wished.is_(True),
    )


def requeue_abandoned(session: Session, run_id: int, now: datetime) -> int:
    """Requeue the targets of a lost worker, whose calls may have had an effect. Their time limit
    starts again."""
    requeued = session.scalars(
        update(Target)
        .where(Target.rule_run_id == run_id, Target.status == TargetState.APPLYING)
        .values(
            status=TargetState.QUEUED,
            is_writing=False,
            outcome_unknown=True,
            next_attempt_at=None,
            began_at=None,
        )
        .returning(Target.id)
        .execution_options(synchronize_session=False)
    ).all()
    move = {"status": TargetState.QUEUED, "error_message": "Its worker was lost"}
    _log_moves(session, TargetState.APPLYING, dict.fromkeys(requeued, move), WORKER, now)
    release_writing(session, run_id)
    return len(requeued)


def requeue_marked(session: Session, run_id: int, actor: str, now: datetime) -> int:
    """Requeue the failed targets that are marked for a retry. Their attempts are counted from zero."""
    requeued = session.scalars(
        update(Target)
        .where(Target.rule_run_id == run_id, Target.is_wished, Target.status == TargetState.FAILED)
        .values(
            status=TargetState.QUEUED,
            is_wished=False,
            attempts=0,
            rate_limit_waits=0,
            rate_limit_seconds=0.0,
            began_at=None,
            next_attempt_at=None,
            acknowledged_at=None,
            acknowledged_by=None,
            **_NO_ERROR,
        )
        .returning(Target.id)
        .execution_options(synchronize_session=False)
    ).all()
    moves = {id_: {"status": TargetState.QUEUED} for id_ in requeued}
    _log_moves(session, TargetState.FAILED, moves, actor, now)
    return len(requeued)


def release_writing(session: Session, run_id: int) -> None:
    """Release the variants of a lost worker. The outcome of its calls does not matter, because every
    worker reads a price before it writes."""
    update_targets(session, Target.rule_run_id == run_id, Target.is_writing, is_writing=False)


def reset_start_times(session: Session, run_id: int) -> None:
    """Reset the time limit of waiting targets, because the time without a worker does not count."""
    update_targets(
        session,
        Target.rule_run_id == run_id,
        Target.status == TargetState.QUEUED,
        Target.began_at.is_not(None),
        began_at=None,
    )


def give_up_rest(
    session: Session, run_id: int, failure: CallFailure, actor: str, now: datetime
) -> None:
    """Fail every queued target without another attempt. A price that may have been written is read
    once more before its target fails."""
    which = Target.rule_run_id == run_id, Target.status == TargetState.QUEUED
    error = {
        "error_message": failure.message,
        "error_type": failure.kind,
        "next_attempt_at": None,
    }
    is_cancelled = failure.kind is FailureKind.CANCELLED
    update_targets(
        session,
        *which,
        Target.outcome_unknown,
        Target.error_type.is_(None),
        began_at=None,
        error_retryable=failure.retryable or is_cancelled,
        **error,
    )
    failed = session.scalars(
        update(Target)
        .where(*which, ~Target.outcome_unknown)
        .values(
            status=TargetState.FAILED,
            is_writing=False,
            error_retryable=is_cancelled,
            last_attempt=now,
            **error,
        )
        .returning(Target.id)
        .execution_options(synchronize_session=False)
    ).all()
    started = {id_: {"status": TargetState.APPLYING} for id_ in failed}
    _log_moves(session, TargetState.QUEUED, started, actor, now)
    ended = {"status": TargetState.FAILED, "error_message": failure.message}
    _log_moves(session, TargetState.APPLYING, dict.fromkeys(failed, ended), actor, now)


def abandon_rollback(session: Session, run_id: int, failure: CallFailure) -> None:
    """End the rollback of the marked targets: they stay applied, with the reason."""
    update_targets(
        session,
        *_marked_applied(run_id),
        is_wished=False,
        is_writing=False,
        next_attempt_at=None,
        error_message=failure.message,
        error_type=failure.kind,
        error_retryable=False,
    )


def save_outcomes(
    session: Session, run: RuleRunRow, outcomes: Sequence[TargetOutcome], now: datetime
) -> None:
    """Save outcomes of claimed targets in a constant number of statements."""
    applied = [one for one in outcomes if isinstance(one, AppliedResult)]
    requeued = [one for one in outcomes if isinstance(one, RequeuedResult)]
    failed = [one for one in outcomes if isinstance(one, FailedResult)]
    for changes in (
        {one.target.id: _applied_columns(one, now) for one in applied},
        {one.target.id: _requeued_columns(one, now) for one in requeued},
        {
            one.target.id: {
                "status": TargetState.FAILED,
                "outcome_unknown": one.failure.outcome_unknown or one.target.outcome_unknown,
                **_failed_columns(one),
            }
            for one in failed
        },
    ):
        move_targets(session, TargetState.APPLYING, changes, WORKER, now)
    keys = [
        apply_key(str(run.id), str(one.target.id), run.retry_cycle, one.target.progress.attempts)
        for one in applied
    ]
    _save_price_changes(session, run, "apply", keys, applied, now)


def save_rollback_outcomes(
    session: Session, run: RuleRunRow, outcomes: Sequence[TargetOutcome], now: datetime
) -> None:
    """Save outcomes of a rollback of claimed targets in a constant number of statements. A target
    that could not be rolled back stays applied, with the reason."""
    rolled_back = [one for one in outcomes if isinstance(one, AppliedResult)]
    waiting = [one for one in outcomes if isinstance(one, RequeuedResult)]
    failed = [one for one in outcomes if isinstance(one, FailedResult)]
    columns = {
        "status": TargetState.ROLLED_BACK,
        "is_writing": False,
        "is_wished": False,
        "rolled_back_at": now,
        "next_attempt_at": None,
        **_NO_ERROR,
    }
    moved = {one.target.id: columns for one in rolled_back}
    move_targets(session, TargetState.APPLIED, moved, run.wished_by or WORKER, now)
    keys = [rollback_key(str(run.id), str(one.target.id), run.rollbacks) for one in rolled_back]
    _save_price_changes(session, run, "rollback", keys, rolled_back, now)
    for changes in (
        {
            one.target.id: {
                "is_writing": False,
                "next_attempt_at": now + timedelta(seconds=one.wait_seconds),
                **_waiting_columns(one),
            }
            for one in waiting
            if one.was_tried
        },
        {one.target.id: {"is_writing": False} for one in waiting if not one.was_tried},
        {
            one.target.id: {"is_wished": False, "next_attempt_at": None, **_failed_columns(one)}
            for one in failed
        },
    ):
        _write(session, TargetState.APPLIED, changes)


def _applied_columns(one: AppliedResult, now: datetime) -> dict[str, object]:
    return {
        "status": TargetState.APPLIED,
        "is_writing": False,
        "outcome_unknown": False,
        "applied_at": now,
        "external_request_id": one.request_id,
        "duration_ms": one.duration_ms,
        "observed_price": vars(one.target.after if one.was_found else one.seen),
        **_NO_ERROR,
    }


def _requeued_columns(one: RequeuedResult, now: datetime) -> dict[str, object]:
    return {
        "status": TargetState.QUEUED,
        "is_writing": False,
        "outcome_unknown": one.outcome_unknown,
        "next_attempt_at": now + timedelta(seconds=one.wait_seconds) if one.wait_seconds else None,
        # Pauses of the shop do not count towards the time limit of the target.
        "began_at": one.target.began_at if one.failure else None,
        **_waiting_columns(one),
    }


def _waiting_columns(one: RequeuedResult) -> dict[str, object]:
    """A waiting target has an error type only if it will fail after one last read of its price."""
    final, shown = one.final_failure, one.final_failure or one.failure
    return {
        "error_message": shown.message if shown else None,
        "error_type": final.kind if final else None,
        "error_retryable": final.retryable if final else None,
        **vars(one.progress),
    }


def _failed_columns(one: FailedResult) -> dict[str, object]:
    failure = one.failure
    return {
        "is_writing": False,
        "error_message": failure.message,
        "error_type": failure.kind,
        "error_retryable": worth_retrying(failure.kind, retryable=failure.retryable),
        "observed_price": vars(one.seen) if one.seen else None,
        **vars(one.progress),
    }


def _save_price_changes(
    session: Session,
    run: RuleRunRow,
    kind: str,
    keys: Sequence[str],
    written: Sequence[AppliedResult],
    now: datetime,
) -> None:
    rows = [
        {
            "event_key": key,
            "kind": kind,
            "tenant_id": run.tenant_id,
            "project_id": run.project_id,
            "shop": run.shop,
            "source": f"rule:{run.rule_id}",
            "rule_run_id": run.id,
            "target_id": one.target.id,
            "product_id": one.target.product_id,
            "variant_id": one.target.variant_id,
            "sku_id": one.target.sku,
            "currency": one.target.after.currency,
            "from_amount": one.seen.unit_amount,
            "to_amount": one.target.after.unit_amount,
            "compare_at_old": one.seen.compare_at,
            "compare_at_new": one.target.after.compare_at
            if one.target.writes_compare_at
            else one.seen.compare_at,
            "was_found": one.was_found,
            "applied_at": now,
        }
        for key, one in zip(keys, written, strict=True)
    ]
    upsert(session, PriceChangeRow, rows, key=("event_key",))


def changes_since(
    session: Session, shop: str, variant_ids: Sequence[str], since: datetime
) -> dict[str, list[tuple[int, int]]]:
    """Return, by variant, the price changes that runs have applied since then: (from, to)."""
    query = select(
        PriceChangeRow.variant_id, PriceChangeRow.from_amount, PriceChangeRow.to_amount
    ).where(
        PriceChangeRow.shop == shop,
        among(session, PriceChangeRow.variant_id, variant_ids),
        PriceChangeRow.applied_at >= since,
        PriceChangeRow.kind == "apply",
    )
    found: dict[str, list[tuple[int, int]]] = {}
    for variant_id, frm, to in session.execute(query).tuples():
        found.setdefault(variant_id, []).append((frm, to))
    return found
