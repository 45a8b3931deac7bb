"""Read queries of runs: runs, targets, skipped variants, results and logs."""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Select, Text, cast, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import (
    BLOCKED,
    RULE_RUN,
    RULE_TARGET,
    LoggedMove,
    RuleRun,
    RuleRunFilter,
    RuleTarget,
    RunResult,
    SkippedVariant,
    TargetResult,
    TargetState,
)
from automation_pipeline.pricing.models.transforms import Skip
from automation_pipeline.pricing.queries.runs import no_such_run
from automation_pipeline.pricing.queries.targets import target_counts
from automation_pipeline.pricing.tables import RuleRow, RuleRunRow, RuleTargetRow, SkippedVariantRow
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.statements import among

BLOCKED_REASON = "The project's guardrails do not allow its new price."
_COMPUTED = {"rule_name", "targets", "success_rate", "explain"}
_OF_ROW = RuleRun.model_fields.keys() - _COMPUTED


def select_runs(*which: ColumnElement[bool]) -> Select[tuple[RuleRunRow, str]]:
    """For `read_runs`."""
    return (
        select(RuleRunRow, RuleRow.name)
        .join(RuleRow, RuleRow.id == RuleRunRow.rule_id)
        .where(RuleRunRow.tenant_id == TENANT, *which)
        .execution_options(populate_existing=True)
    )


def read_runs(session: Session, query: Select[tuple[RuleRunRow, str]]) -> list[RuleRun]:
    rows = session.execute(query).tuples().all()
    counts = target_counts(session, [row.id for row, _ in rows])
    return [
        RuleRun.model_validate(
            {name: getattr(row, name) for name in _OF_ROW}
            | {
                "rule_name": rule_name,
                "targets": counts[row.id],
                "success_rate": counts[row.id].success_rate,
                "explain": row.explain_json,
            }
        )
        for row, rule_name in rows
    ]


def get_run(session: Session, run_id: int) -> RuleRun:
    runs = read_runs(session, select_runs(RuleRunRow.id == run_id))
    if not runs:
        raise no_such_run(run_id)
    return runs[0]


def runs_by_id(session: Session, run_ids: Collection[int]) -> dict[int, RuleRun]:
    """Unknown ids are omitted."""
    query = select_runs(among(session, RuleRunRow.id, run_ids))
    return {run.id: run for run in read_runs(session, query)}


def list_runs(session: Session, chosen: RuleRunFilter, limit: int, offset: int) -> list[RuleRun]:
    """Newest first."""
    which = [
        getattr(RuleRunRow, name) == value
        for name, value in vars(chosen).items()
        if value is not None
    ]
    query = select_runs(*which).order_by(RuleRunRow.id.desc())
    return read_runs(session, query.limit(limit).offset(offset))


def targets_of(
    session: Session,
    run_id: int,
    *,
    status: TargetState | None = None,
    limit: int,
    after_id: int = 0,
) -> list[RuleTarget]:
    """In the order of their ids, those of one product together; `after_id` is the last id of the
    previous page."""
    _check_exists(session, run_id)
    query = select(RuleTargetRow).where(
        RuleTargetRow.rule_run_id == run_id, RuleTargetRow.id > after_id
    )
    if status is not None:
        query = query.where(RuleTargetRow.status == status)
    query = query.order_by(RuleTargetRow.id).limit(limit)
    rows = session.scalars(query.execution_options(populate_existing=True))
    return [RuleTarget.model_validate(row, from_attributes=True) for row in rows]


def skipped_of(
    session: Session, run_id: int, *, reason: str | None = None, limit: int, offset: int = 0
) -> list[SkippedVariant]:
    """Variants that the rule skips or the guardrails block. Variants that need no change are only
    counted."""
    _check_exists(session, run_id)
    row = SkippedVariantRow
    query = select(row).where(row.rule_run_id == run_id).order_by(row.id)
    if reason is not None:
        query = query.where(row.reason == reason)
    return [
        SkippedVariant(
            product_id=one.product_id,
            variant_id=one.variant_id,
            sku_id=one.sku_id,
            title=one.title,
            reason=one.reason,
            why=BLOCKED_REASON if one.reason == BLOCKED else Skip(one.reason).why,
            checks=tuple(dict(check) for check in one.checks or ()),
            current_amount=one.current_amount,
            proposed_amount=one.proposed_amount,
            currency=one.currency,
        )
        for one in session.scalars(query.limit(limit).offset(offset))
    ]


def result_of(session: Session, run_id: int) -> RunResult:
    """The targets that are applied or failed; targets that were rolled back are neither."""
    run = get_run(session, run_id)
    row = RuleTargetRow
    query = (
        select(row.id, row.status, row.variant_id, row.after_json, row.error_message)
        .add_columns(row.duration_ms)
        .where(row.rule_run_id == run_id)
        .where(row.status.in_((TargetState.APPLIED, TargetState.FAILED)))
        .order_by(row.id)
    )
    results: list[TargetResult] = []
    for id_, status, variant_id, after, error, duration in session.execute(query):
        applied = status == TargetState.APPLIED
        results.append(
            TargetResult(
                target_id=str(id_),
                success=applied,
                external_id=variant_id,
                applied_price=after["unit_amount"] if applied else None,
                error=None if applied else error,
                duration=duration or 0,
            )
        )
    return RunResult(
        run_id=str(run_id),
        status=run.status,
        total_targets=len(results),
        applied_targets=run.targets.applied,
        failed_targets=run.targets.failed,
        duration=run.apply_ms,
        success_rate=run.success_rate,
        results=tuple(results),
    )


def transitions_of(
    session: Session, run_id: int, limit: int, after_id: int = 0
) -> list[LoggedMove]:
    """The state changes of the run and of its targets, oldest first."""
    _check_exists(session, run_id)
    targets = select(cast(RuleTargetRow.id, Text)).where(RuleTargetRow.rule_run_id == run_id)
    of_run = (TransitionRow.machine == RULE_RUN.name) & (TransitionRow.entity_id == str(run_id))
    of_target = (TransitionRow.machine == RULE_TARGET.name) & TransitionRow.entity_id.in_(targets)
    query = select(TransitionRow).where(or_(of_run, of_target), TransitionRow.id > after_id)
    rows = session.scalars(query.order_by(TransitionRow.id).limit(limit))
    return [LoggedMove.model_validate(row, from_attributes=True) for row in rows]


def _check_exists(session: Session, run_id: int) -> None:
    if session.scalar(select(RuleRunRow.id).where(RuleRunRow.id == run_id)) is None:
        raise no_such_run(run_id)
