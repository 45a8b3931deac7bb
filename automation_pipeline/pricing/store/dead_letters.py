"""Failed targets that still want somebody's attention: not acknowledged, not too old, of runs that can be retried."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, case, func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.dead_letters import KEPT_FOR, STALE_AFTER, DeadLetter, Tally
from automation_pipeline.pricing.domain.failures import FailureKind
from automation_pipeline.pricing.domain.pricing_rule import TENANT
from automation_pipeline.pricing.domain.states import RunState, TargetState
from automation_pipeline.pricing.store.wishes import letter_of
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.bulk import among

Target = RuleTargetRow


def dead_letters(
    session: Session, project_id: str | None = None, *, now: datetime, limit: int, offset: int = 0
) -> list[DeadLetter]:
    """In the order in which they failed."""
    query = select(Target).where(*_is_dead_letter(project_id, now)).order_by(Target.last_attempt, Target.id)
    return [letter_of(row) for row in session.scalars(query.limit(limit).offset(offset))]


def tallies_of(session: Session, project_id: str | None = None, *, now: datetime) -> list[Tally]:
    """All of them, by kind."""
    retryable, stale = Target.error_retryable.is_(True), Target.last_attempt < now - STALE_AFTER
    query = (
        select(Target.error_type, func.count(), _how_many(retryable), _how_many(stale))
        .where(*_is_dead_letter(project_id, now))
        .group_by(Target.error_type)
    )
    rows = session.execute(query).tuples()
    return [Tally(FailureKind(kind or FailureKind.UNKNOWN), *counts) for kind, *counts in rows]


def letters_by_run(session: Session, project_id: str, *, retryable_only: bool, now: datetime) -> dict[int, list[int]]:
    """The targets of each run, the oldest run first."""
    chosen = [*_is_dead_letter(project_id, now), *([Target.error_retryable.is_(True)] if retryable_only else [])]
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


def acknowledged_among(session: Session, project_id: str, target_ids: Collection[int]) -> Sequence[int]:
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
        RuleRunRow.id == Target.rule_run_id, RuleRunRow.status == RunState.ROLLED_BACK
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
