"""Queries about dead letters, and the marks of targets that are tried again."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, case, func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.pricing.models.history import DeadLetter, DeadLetterTally
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import PricingRunState, TargetState
from automation_pipeline.pricing.models.shop import FailureKind
from automation_pipeline.pricing.rules.monitoring import KEPT_FOR, STALE_AFTER
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.statements import among


def failed_letters(session: Session, run_id: int) -> list[DeadLetter]:
    query = select(RuleTargetRow).where(
        RuleTargetRow.rule_run_id == run_id, RuleTargetRow.status == TargetState.FAILED
    )
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


def mark_for_retry(session: Session, run_id: int, target_ids: Sequence[int]) -> None:
    """These, and no others of the run."""
    _mark(session, run_id, None, is_wished=False)
    _mark(session, run_id, target_ids, is_wished=True)


def clear_request(session: Session, run: RuleRunRow) -> None:
    run.wish = run.wished_by = None
    _mark(session, run.id, None, is_wished=False)


def _mark(
    session: Session, run_id: int, target_ids: Sequence[int] | None, *, is_wished: bool
) -> None:
    chosen = [] if target_ids is None else [among(session, RuleTargetRow.id, target_ids)]
    session.execute(
        update(RuleTargetRow)
        .where(RuleTargetRow.rule_run_id == run_id, RuleTargetRow.is_wished != is_wished, *chosen)
        .values(is_wished=is_wished)
        .execution_options(synchronize_session=False)
    )


Target = RuleTargetRow


def dead_letters(
    session: Session, project_id: str | None = None, *, now: datetime, limit: int, offset: int = 0
) -> list[DeadLetter]:
    """In the order in which they failed."""
    query = (
        select(Target)
        .where(*_is_dead_letter(project_id, now))
        .order_by(Target.last_attempt, Target.id)
    )
    return [letter_of(row) for row in session.scalars(query.limit(limit).offset(offset))]


def tallies_of(
    session: Session, project_id: str | None = None, *, now: datetime
) -> list[DeadLetterTally]:
    """All of them, by kind."""
    retryable, stale = Target.error_retryable.is_(True), Target.last_attempt < now - STALE_AFTER
    query = (
        select(Target.error_type, func.count(), _how_many(retryable), _how_many(stale))
        .where(*_is_dead_letter(project_id, now))
        .group_by(Target.error_type)
    )
    rows = session.execute(query).tuples()
    return [
        DeadLetterTally(FailureKind(kind or FailureKind.UNKNOWN), *counts) for kind, *counts in rows
    ]


def letters_by_run(
    session: Session, project_id: str, *, retryable_only: bool, now: datetime
) -> dict[int, list[int]]:
    """The targets of each run, the oldest run first."""
    chosen = [
        *_is_dead_letter(project_id, now),
        *([Target.error_retryable.is_(True)] if retryable_only else []),
    ]
    by_run: dict[int, list[int]] = {}
    for run_id, target_id in session.execute(
        select(Target.rule_run_id, Target.id).where(*chosen).order_by(Target.rule_run_id, Target.id)
    ).tuples():
        by_run.setdefault(run_id, []).append(target_id)
    return by_run


def mark_acknowledged(
    session: Session, project_id: str, target_ids: Collection[int] | None, actor: str, now: datetime
) -> Sequence[int]:
    """Those of the project, or those given of them; whichever is no dead letter is left out."""
    chosen = [] if target_ids is None else [among(session, Target.id, target_ids)]
    return session.scalars(
        update(Target)
        .where(*_is_dead_letter(project_id, now), *chosen)
        .values(acknowledged_at=now, acknowledged_by=actor)
        .returning(Target.id)
        .execution_options(synchronize_session=False)
    ).all()


def acknowledged_among(
    session: Session, project_id: str, target_ids: Collection[int]
) -> Sequence[int]:
    return session.scalars(
        select(Target.id).where(
            Target.project_id == project_id,
            Target.status == TargetState.FAILED,
            Target.acknowledged_at.is_not(None),
            among(session, Target.id, target_ids),
        )
    ).all()


def _is_dead_letter(project_id: str | None, now: datetime) -> list[ColumnElement[bool]]:
    is_final = select(RuleRunRow.id).where(
        RuleRunRow.id == Target.rule_run_id, RuleRunRow.status == PricingRunState.ROLLED_BACK
    )
    its_project = [] if project_id is None else [Target.project_id == project_id]
    return [
        Target.tenant_id == TENANT,
        *its_project,
        Target.status == TargetState.FAILED,
        Target.acknowledged_at.is_(None),
        Target.last_attempt >= now - KEPT_FOR,
        ~is_final.exists(),
    ]


def _how_many(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.count(case((condition, 1)))
