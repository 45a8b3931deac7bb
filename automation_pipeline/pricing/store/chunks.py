"""The targets that a worker takes up together, and what it has to know of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, exists, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from automation_pipeline.pricing.domain.failures import Failure, FailureKind
from automation_pipeline.pricing.domain.money import price_of
from automation_pipeline.pricing.domain.retrying import Progress
from automation_pipeline.pricing.domain.states import TargetState
from automation_pipeline.pricing.domain.work import WorkTarget
from automation_pipeline.pricing.store.moves import log_target_moves
from automation_pipeline.pricing.tables import PriceChangeRow, RuleTargetRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.instants import database_now

MOST_TARGETS = 250
MOST_PRODUCTS = 25

Target = RuleTargetRow


def claim_chunk(session: Session, run_id: int, actor: str, now: datetime) -> list[WorkTarget]:
    """Those that are due, whole products together as far as they fit. Variants that another run writes are left until
    it is done. Nothing, if somebody else was quicker with one of them."""
    due = (
        select(Target.id, Target.product_id)
        .where(Target.rule_run_id == run_id, Target.status == TargetState.QUEUED, _is_due(), ~_is_written_elsewhere())
        .order_by(Target.id)
        .limit(MOST_TARGETS)
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
        session, TargetState.QUEUED, {row.id: {"status": TargetState.APPLYING} for row in rows}, actor, now
    )
    claimed = [_work_target(row) for row in sorted(rows, key=lambda row: row.id)]
    for row in rows:
        session.expunge(row)
    return claimed


@dataclass(frozen=True)
class Outlook:
    """What is left of a run: `next_at` is when the first of those that wait is due; None while one is due already, and
    only held up by another run."""

    queued: int
    applying: int
    next_at: datetime | None


def outlook(session: Session, run_id: int) -> Outlook:
    counts = session.execute(
        select(Target.status, func.count(), func.min(func.coalesce(Target.next_attempt_at, Target.last_attempt)))
        .where(Target.rule_run_id == run_id, Target.status.in_((TargetState.QUEUED, TargetState.APPLYING)))
        .group_by(Target.status)
    ).tuples()
    found = {status: (count, first) for status, count, first in counts}
    queued, first = found.get(TargetState.QUEUED, (0, None))
    return Outlook(queued, found.get(TargetState.APPLYING, (0, None))[0], first)


def queued_targets(session: Session, run_id: int) -> list[int]:
    """Those that nobody can have written."""
    its = Target.rule_run_id == run_id, Target.status == TargetState.QUEUED, ~Target.outcome_unknown
    return list(session.scalars(select(Target.id).where(*its).order_by(Target.id)))


def doom_uncertain(session: Session, run_id: int, failure: Failure) -> None:
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
    """A lost worker's targets: nobody knows what became of its calls. The time without a worker is not held against
    them."""
    back = session.scalars(
        update(Target)
        .where(Target.rule_run_id == run_id, Target.status == TargetState.APPLYING)
        .values(status=TargetState.QUEUED, is_writing=False, outcome_unknown=True, next_attempt_at=None, began_at=None)
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
    query = select(PriceChangeRow.variant_id, PriceChangeRow.from_amount, PriceChangeRow.to_amount).where(
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
    return exists().where(other.shop == Target.shop, other.variant_id == Target.variant_id, other.is_writing)


def _of_few_products(due: Sequence[tuple[int, str]]) -> list[int]:
    products = list(dict.fromkeys(product for _, product in due))[:MOST_PRODUCTS]
    kept = set(products)
    return [id_ for id_, product in due if product in kept]


def doom_of(row: RuleTargetRow) -> Failure | None:
    """What a target that waits is given up for, but for a last look."""
    if row.error_type is None:
        return None
    return Failure(FailureKind(row.error_type), row.error_message or "", retryable=bool(row.error_retryable))


def forget_beginnings(session: Session, run_id: int) -> None:
    """Nobody works on it for a while, which is not held against what waits."""
    session.execute(
        update(Target)
        .where(Target.rule_run_id == run_id, Target.status == TargetState.QUEUED, Target.began_at.is_not(None))
        .values(began_at=None)
        .execution_options(synchronize_session=False)
    )


def _work_target(row: RuleTargetRow) -> WorkTarget:
    assert row.began_at is not None  # noqa: S101  claimed a moment ago
    return WorkTarget(
        doom=doom_of(row),
        id=row.id,
        product_id=row.product_id,
        variant_id=row.variant_id,
        sku=row.sku_id,
        before=price_of(row.before_json),
        after=price_of(row.after_json),
        writes_compare_at=row.writes_compare_at,
        progress=Progress(row.attempts, row.rate_limit_waits, row.rate_limit_seconds),
        outcome_unknown=row.outcome_unknown,
        began_at=row.began_at,
    )
