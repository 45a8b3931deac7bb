"""Queries about the targets of a run: claimed in chunks, settled, rolled back."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import ColumnElement, Table, bindparam, exists, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from automation_pipeline.pricing.events import apply_key, rollback_key
from automation_pipeline.pricing.models.runs import TargetState
from automation_pipeline.pricing.models.shop import (
    CallFailure,
    FailureKind,
    price_document,
    price_of,
)
from automation_pipeline.pricing.queries.runs import (
    LostRunClaimError,
    log_target_moves,
    move_targets,
)
from automation_pipeline.pricing.rules.monitoring import worth_retrying
from automation_pipeline.pricing.rules.runs import (
    AppliedResult,
    AppliedTarget,
    AttemptProgress,
    FailedResult,
    RequeuedResult,
    TargetOutcome,
    WorkTarget,
    reversed_target,
)
from automation_pipeline.pricing.tables import PriceChangeRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.statements import among, upsert

MAX_TARGETS = 250
MAX_PRODUCTS = 25

Target = RuleTargetRow


def claim_chunk(session: Session, run_id: int, actor: str, now: datetime) -> list[WorkTarget]:
    """Those that are due, whole products together as far as they fit. Variants that another run
    writes are left until it is done. Nothing, if somebody else was quicker with one of them."""
    due = (
        select(Target.id, Target.product_id)
        .where(
            Target.rule_run_id == run_id,
            Target.status == TargetState.QUEUED,
            _is_due(),
            ~_is_written_elsewhere(),
        )
        .order_by(Target.id)
        .limit(MAX_TARGETS)
    )
    chosen = _of_few_products(list(session.execute(due).tuples()))
    if not chosen:
        return []
    try:
        with session.begin_nested():
            rows = session.scalars(
                update(Target)
                .where(among(session, Target.id, chosen), Target.status == TargetState.QUEUED)
                .values(
                    status=TargetState.APPLYING,
                    is_writing=True,
                    last_attempt=now,
                    began_at=func.coalesce(Target.began_at, now),
                    next_attempt_at=None,
                )
                .returning(Target)
                .execution_options(synchronize_session=False)
            ).all()
    except IntegrityError:
        return []
    log_target_moves(
        session,
        TargetState.QUEUED,
        {row.id: {"status": TargetState.APPLYING} for row in rows},
        actor,
        now,
    )
    claimed = [_work_target(row) for row in sorted(rows, key=lambda row: row.id)]
    for row in rows:
        session.expunge(row)
    return claimed


@dataclass(frozen=True)
class OpenTargets:
    """What is left of a run: `next_at` is when the first of those that wait is due; None while one
    is due already, and only held up by another run."""

    queued: int
    applying: int
    next_at: datetime | None


def open_targets(session: Session, run_id: int) -> OpenTargets:
    counts = session.execute(
        select(
            Target.status,
            func.count(),
            func.min(func.coalesce(Target.next_attempt_at, Target.last_attempt)),
        )
        .where(
            Target.rule_run_id == run_id,
            Target.status.in_((TargetState.QUEUED, TargetState.APPLYING)),
        )
        .group_by(Target.status)
    ).tuples()
    found = {status: (count, first) for status, count, first in counts}
    queued, first = found.get(TargetState.QUEUED, (0, None))
    return OpenTargets(queued, found.get(TargetState.APPLYING, (0, None))[0], first)


def queued_targets(session: Session, run_id: int) -> list[int]:
    """Those that nobody can have written."""
    its = Target.rule_run_id == run_id, Target.status == TargetState.QUEUED, ~Target.outcome_unknown
    return list(session.scalars(select(Target.id).where(*its).order_by(Target.id)))


def fail_uncertain_targets(session: Session, run_id: int, failure: CallFailure) -> None:
    """Those that may have been written wait for a last look, and for nothing else."""
    session.execute(
        update(Target)
        .where(
            Target.rule_run_id == run_id,
            Target.status == TargetState.QUEUED,
            Target.outcome_unknown,
            Target.error_type.is_(None),
        )
        .values(
            error_type=failure.kind,
            error_message=failure.message,
            error_retryable=failure.retryable or failure.kind is FailureKind.CANCELLED,
            next_attempt_at=None,
            began_at=None,
        )
        .execution_options(synchronize_session=False)
    )


def requeue_abandoned(session: Session, run_id: int, now: datetime) -> int:
    """A lost worker's targets: nobody knows what became of its calls. The time without a worker is
    not held against them."""
    back = session.scalars(
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
    change = {"status": TargetState.QUEUED, "error_message": "Its worker was lost"}
    log_target_moves(session, TargetState.APPLYING, dict.fromkeys(back, change), "worker", now)
    session.execute(
        update(Target)
        .where(Target.rule_run_id == run_id, Target.is_writing)
        .values(is_writing=False)
        .execution_options(synchronize_session=False)
    )
    return len(back)


def changes_since(
    session: Session, shop: str, variant_ids: Sequence[str], since: datetime
) -> Mapping[str, list[tuple[int, int]]]:
    """By variant, the prices that were written since: (from, to)."""
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


def _is_due() -> ColumnElement[bool]:
    return or_(Target.next_attempt_at.is_(None), Target.next_attempt_at <= database_now())


def _is_written_elsewhere() -> ColumnElement[bool]:
    other = aliased(Target)
    return exists().where(
        other.shop == Target.shop, other.variant_id == Target.variant_id, other.is_writing
    )


def _of_few_products(due: Sequence[tuple[int, str]]) -> list[int]:
    products = list(dict.fromkeys(product for _, product in due))[:MAX_PRODUCTS]
    kept = set(products)
    return [id_ for id_, product in due if product in kept]


def final_failure_of(row: RuleTargetRow) -> CallFailure | None:
    """What a target that waits is given up for, but for a last look."""
    if row.error_type is None:
        return None
    return CallFailure(
        FailureKind(row.error_type), row.error_message or "", retryable=bool(row.error_retryable)
    )


def reset_start_times(session: Session, run_id: int) -> None:
    """Nobody works on it for a while, which is not held against what waits."""
    session.execute(
        update(Target)
        .where(
            Target.rule_run_id == run_id,
            Target.status == TargetState.QUEUED,
            Target.began_at.is_not(None),
        )
        .values(began_at=None)
        .execution_options(synchronize_session=False)
    )


def _work_target(row: RuleTargetRow) -> WorkTarget:
    assert row.began_at is not None  # noqa: S101  claimed a moment ago
    return WorkTarget(
        doom=final_failure_of(row),
        id=row.id,
        product_id=row.product_id,
        variant_id=row.variant_id,
        sku=row.sku_id,
        before=price_of(row.before_json),
        after=price_of(row.after_json),
        writes_compare_at=row.writes_compare_at,
        progress=AttemptProgress(row.attempts, row.rate_limit_waits, row.rate_limit_seconds),
        outcome_unknown=row.outcome_unknown,
        began_at=row.began_at,
    )


_ACTOR = "worker"


def settle(
    session: Session, run: RuleRunRow, settled: Sequence[TargetOutcome], now: datetime
) -> None:
    """Of a run that is held: all of it in a constant number of statements."""
    applied = [one for one in settled if isinstance(one, AppliedResult)]
    back = [one for one in settled if isinstance(one, RequeuedResult)]
    failed = [one for one in settled if isinstance(one, FailedResult)]
    for changes in (
        {one.target.id: _applied_columns(one, now) for one in applied},
        {one.target.id: _requeued_columns(one, now) for one in back},
        {one.target.id: _failed_columns(one) for one in failed},
    ):
        move_targets(session, TargetState.APPLYING, changes, _ACTOR, now)
    keep_price_changes(
        session, run, {_apply_key_of(one, run): one for one in applied}, "apply", now
    )


def keep_price_changes(
    session: Session,
    run: RuleRunRow,
    written: Mapping[str, AppliedResult],
    kind: str,
    now: datetime,
) -> None:
    """By their keys: one that is kept already is not kept twice."""
    rows = [
        {"event_key": key, "kind": kind, **_price_change_columns(one, run, now)}
        for key, one in written.items()
    ]
    upsert(session, PriceChangeRow, rows, key=("event_key",))


def _applied_columns(one: AppliedResult, now: datetime) -> dict[str, object]:
    return {
        "status": TargetState.APPLIED,
        "is_writing": False,
        "outcome_unknown": False,
        "applied_at": now,
        "error_message": None,
        "error_type": None,
        "error_retryable": None,
        "external_request_id": one.request_id,
        "duration_ms": one.duration_ms,
        "observed_price": price_document(one.target.after if one.was_found else one.seen),
    }


def _requeued_columns(one: RequeuedResult, now: datetime) -> dict[str, object]:
    return {
        "status": TargetState.QUEUED,
        "is_writing": False,
        "outcome_unknown": one.outcome_unknown,
        "next_attempt_at": now + timedelta(seconds=one.wait_seconds) if one.wait_seconds else None,
        # While a shop rests or is paused, nobody is late.
        "began_at": one.target.began_at if one.failure else None,
        **failure_columns(one),
        **progress_columns(one.progress),
    }


def failure_columns(one: RequeuedResult) -> dict[str, object]:
    """A kind of error on a target that waits is what it is given up for, but for a last look."""
    told = one.doom or one.failure
    return {
        "error_message": told.message if told else None,
        "error_type": one.doom.kind if one.doom else None,
        "error_retryable": one.doom.retryable if one.doom else None,
    }


def _failed_columns(one: FailedResult) -> dict[str, object]:
    failure = one.failure
    return {
        "status": TargetState.FAILED,
        "is_writing": False,
        "outcome_unknown": failure.outcome_unknown or one.target.outcome_unknown,
        "error_message": failure.message,
        "error_type": failure.kind,
        "error_retryable": worth_retrying(failure.kind, retryable=failure.retryable),
        "observed_price": price_document(one.seen) if one.seen else None,
        **progress_columns(one.progress),
    }


def progress_columns(progress: AttemptProgress) -> dict[str, object]:
    return {
        "attempts": progress.attempts,
        "rate_limit_waits": progress.rate_limit_waits,
        "rate_limit_seconds": progress.rate_limit_seconds,
    }


def _apply_key_of(one: AppliedResult, run: RuleRunRow) -> str:
    return apply_key(str(run.id), str(one.target.id), run.retry_cycle, one.target.progress.attempts)


def _price_change_columns(one: AppliedResult, run: RuleRunRow, now: datetime) -> dict[str, object]:
    target = one.target
    return {
        "tenant_id": run.tenant_id,
        "project_id": run.project_id,
        "shop": run.shop,
        "source": f"rule:{run.rule_id}",
        "rule_run_id": run.id,
        "target_id": target.id,
        "product_id": target.product_id,
        "variant_id": target.variant_id,
        "sku_id": target.sku,
        "currency": target.after.currency,
        "from_amount": one.seen.unit_amount,
        "to_amount": target.after.unit_amount,
        "compare_at_old": one.seen.compare_at,
        "compare_at_new": target.after.compare_at
        if target.writes_compare_at
        else one.seen.compare_at,
        "was_found": one.was_found,
        "applied_at": now,
    }


_TARGETS = cast("Table", RuleTargetRow.__table__)


def rollback_candidates(session: Session, run_id: int) -> list[AppliedTarget]:
    query = select(Target.id, Target.status, Target.applied_at).where(Target.rule_run_id == run_id)
    return [
        AppliedTarget(str(id_), TargetState(status), at)
        for id_, status, at in session.execute(query).tuples()
    ]


def mark_for_rollback(session: Session, target_ids: Collection[int]) -> None:
    session.execute(
        update(Target)
        .where(among(session, Target.id, target_ids))
        .values(is_wished=True, next_attempt_at=None)
        .execution_options(synchronize_session=False)
    )


def release_writing(session: Session, run_id: int) -> None:
    """What a lost worker was at. Whatever became of its calls, prices are read before they are
    written."""
    session.execute(
        update(Target)
        .where(Target.rule_run_id == run_id, Target.is_writing)
        .values(is_writing=False)
        .execution_options(synchronize_session=False)
    )


def claim_applied(session: Session, run_id: int, now: datetime) -> list[WorkTarget]:
    """Those that are due, turned round, the last applied first; whole products together as far as
    they fit. Variants that another run writes are left until it is done."""
    is_due = or_(Target.next_attempt_at.is_(None), Target.next_attempt_at <= database_now())
    due = (
        select(Target.id, Target.product_id)
        .where(*_is_marked(run_id), is_due, ~_is_written_elsewhere())
        .order_by(Target.applied_at.desc(), Target.id.desc())
        .limit(MAX_TARGETS)
    )
    chosen = _by_product(session.execute(due).tuples())
    if not chosen:
        return []
    try:
        with session.begin_nested():
            rows = session.scalars(
                update(Target)
                .where(among(session, Target.id, chosen), *_is_marked(run_id))
                .values(is_writing=True, last_attempt=now)
                .returning(Target)
                .execution_options(synchronize_session=False)
            ).all()
    except IntegrityError:
        return []
    for row in rows:
        session.expunge(row)
    return [
        reversed_target(_rollback_target(row, now))
        for row in sorted(rows, key=lambda row: chosen.index(row.id))
    ]


def open_rollback_targets(session: Session, run_id: int) -> OpenTargets:
    """`queued` are those that wait to be taken back."""
    query = select(
        func.count(), func.min(func.coalesce(Target.next_attempt_at, Target.last_attempt))
    )
    waiting, first = session.execute(query.where(*_is_marked(run_id))).tuples().one()
    return OpenTargets(waiting, 0, first)


def settle_rollback(
    session: Session, run: RuleRunRow, settled: Sequence[TargetOutcome], now: datetime
) -> None:
    """Of a run that is held: all of it in a constant number of statements. What could not be taken
    back stays applied, and says why."""
    back = [one for one in settled if isinstance(one, AppliedResult)]
    move_targets(
        session,
        TargetState.APPLIED,
        {one.target.id: _rolled_back_columns(now) for one in back},
        _rollback_actor(run),
        now,
    )
    keys = {rollback_key(str(run.id), str(one.target.id), run.rollbacks): one for one in back}
    keep_price_changes(session, run, keys, "rollback", now)
    waiting = [one for one in settled if isinstance(one, RequeuedResult)]
    _update(
        session, {one.target.id: _waiting_columns(one, now) for one in waiting if one.was_tried}
    )
    _update(session, {one.target.id: {"is_writing": False} for one in waiting if not one.was_tried})
    _update(
        session,
        {
            one.target.id: _not_rolled_back_columns(one)
            for one in settled
            if isinstance(one, FailedResult)
        },
    )


def abandon_rollback(session: Session, run_id: int, left: Mapping[str, object]) -> None:
    """Nothing more is tried."""
    session.execute(
        update(Target)
        .where(*_is_marked(run_id))
        .values(is_wished=False, is_writing=False, next_attempt_at=None, **left)
        .execution_options(synchronize_session=False)
    )


def states_of_targets(session: Session, run_id: int) -> dict[TargetState, int]:
    query = (
        select(Target.status, func.count())
        .where(Target.rule_run_id == run_id)
        .group_by(Target.status)
    )
    return {TargetState(status): count for status, count in session.execute(query).tuples()}


def _is_marked(run_id: int) -> tuple[ColumnElement[bool], ...]:
    return (
        Target.rule_run_id == run_id,
        Target.status == TargetState.APPLIED,
        Target.is_wished.is_(True),
    )


def _by_product(due: Iterable[tuple[int, str]]) -> list[int]:
    products: dict[str, list[int]] = {}
    for id_, product in due:
        products.setdefault(product, []).append(id_)
    return [id_ for ids in list(products.values())[:MAX_PRODUCTS] for id_ in ids]


def _rollback_target(row: RuleTargetRow, now: datetime) -> WorkTarget:
    """An applied target that waits for its next attempt counts those of its rollback; else it
    begins anew."""
    is_under_way = row.next_attempt_at is not None
    return WorkTarget(
        id=row.id,
        product_id=row.product_id,
        variant_id=row.variant_id,
        sku=row.sku_id,
        before=price_of(row.before_json),
        after=price_of(row.after_json),
        writes_compare_at=row.writes_compare_at,
        progress=AttemptProgress(row.attempts, row.rate_limit_waits, row.rate_limit_seconds)
        if is_under_way
        else AttemptProgress(),
        outcome_unknown=False,
        began_at=now,
        doom=final_failure_of(row) if is_under_way else None,
    )


def _rolled_back_columns(now: datetime) -> dict[str, object]:
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


def _waiting_columns(one: RequeuedResult, now: datetime) -> dict[str, object]:
    return {
        "is_writing": False,
        "next_attempt_at": now + timedelta(seconds=one.wait_seconds),
        **failure_columns(one),
        **progress_columns(one.progress),
    }


def _not_rolled_back_columns(one: FailedResult) -> dict[str, object]:
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
        raise LostRunClaimError(
            "Targets that were being taken back are not applied any more: somebody else moved them."
        )


def _rollback_actor(run: RuleRunRow) -> str:
    return run.wished_by or "worker"
