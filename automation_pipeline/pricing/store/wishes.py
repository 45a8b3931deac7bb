"""What is wanted of a run's targets: a mark that the worker looks for."""

from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.dead_letters import DeadLetter
from automation_pipeline.pricing.domain.failures import FailureKind
from automation_pipeline.pricing.domain.states import TargetState
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.bulk import among


def failed_letters(session: Session, run_id: int) -> list[DeadLetter]:
    query = select(RuleTargetRow).where(RuleTargetRow.rule_run_id == run_id, RuleTargetRow.status == TargetState.FAILED)
    return [letter_of(row) for row in session.scalars(query.order_by(RuleTargetRow.id))]


def letter_of(row: RuleTargetRow) -> DeadLetter:
    assert row.last_attempt is not None  # noqa: S101  what failed was tried, or given up at an instant
    return DeadLetter(
        target_id=str(row.id),
        run_id=str(row.rule_run_id),
        product_id=row.product_id,
        variant_id=row.variant_id,
        failed_at=row.last_attempt,
        error_type=FailureKind(row.error_type or FailureKind.UNKNOWN),
        error=row.error_message or "",
        retryable=bool(row.error_retryable),
    )


def wish_for(session: Session, run_id: int, target_ids: Sequence[int]) -> None:
    """These, and no others of the run."""
    _mark(session, run_id, None, is_wished=False)
    _mark(session, run_id, target_ids, is_wished=True)


def forget_wish(session: Session, run: RuleRunRow) -> None:
    run.wish = run.wished_by = None
    _mark(session, run.id, None, is_wished=False)


def _mark(session: Session, run_id: int, target_ids: Sequence[int] | None, *, is_wished: bool) -> None:
    chosen = [] if target_ids is None else [among(session, RuleTargetRow.id, target_ids)]
    session.execute(
        update(RuleTargetRow)
        .where(RuleTargetRow.rule_run_id == run_id, RuleTargetRow.is_wished != is_wished, *chosen)
        .values(is_wished=is_wished)
        .execution_options(synchronize_session=False)
    )
