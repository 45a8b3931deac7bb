"""Runs of rules with what became of them, as they are shown: a constant number of queries, whatever their size."""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Select, Text, cast, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.failures import FailureKind
from automation_pipeline.pricing.domain.pricing_rule import TENANT
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTarget, SkippedVariant, TargetCounts
from automation_pipeline.pricing.domain.run_filter import RunFilter
from automation_pipeline.pricing.domain.run_log import LoggedMove
from automation_pipeline.pricing.domain.run_result import RunResult, RunTimes, TargetResult, run_result
from automation_pipeline.pricing.domain.states import RULE_RUN, RULE_TARGET, TargetState
from automation_pipeline.pricing.store.holds import no_such_run
from automation_pipeline.pricing.store.run_values import (
    counts_value,
    rate_of,
    run_value,
    skipped_value,
    target_value,
)
from automation_pipeline.pricing.tables import RuleRow, RuleRunRow, RuleTargetRow, SkippedVariantRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.transitions import TransitionRow

_FRESH = {"populate_existing": True}


def get_run(session: Session, run_id: int) -> RuleRun:
    found = session.execute(_runs().where(RuleRunRow.id == run_id)).tuples().one_or_none()
    if found is None:
        raise no_such_run(run_id)
    return run_value(*found, _counts(session, [run_id]).get(run_id, TargetCounts()))


def runs_by_id(session: Session, run_ids: Collection[int]) -> dict[int, RuleRun]:
    """Those of them that exist."""
    rows = session.execute(_runs().where(among(session, RuleRunRow.id, run_ids))).tuples().all()
    counts = _counts(session, run_ids)
    return {row.id: run_value(row, name, counts.get(row.id, TargetCounts())) for row, name in rows}


def list_runs(session: Session, chosen: RunFilter, limit: int, offset: int) -> list[RuleRun]:
    """Newest first."""
    query = _runs().where(*_conditions(chosen)).order_by(RuleRunRow.id.desc()).limit(limit).offset(offset)
    rows = session.execute(query).tuples().all()
    counts = _counts(session, [row.id for row, _ in rows])
    return [run_value(row, name, counts.get(row.id, TargetCounts())) for row, name in rows]


def count_runs(session: Session, chosen: RunFilter) -> int:
    return session.scalar(select(func.count(RuleRunRow.id)).where(*_conditions(chosen))) or 0


def targets_of(
    session: Session, run_id: int, *, status: TargetState | None = None, limit: int, after_id: int = 0
) -> list[RuleTarget]:
    """In their order, those of one product together; `after_id` is the last one of the page before."""
    _check_exists(session, run_id)
    query = select(RuleTargetRow).where(RuleTargetRow.rule_run_id == run_id, RuleTargetRow.id > after_id)
    if status is not None:
        query = query.where(RuleTargetRow.status == status)
    rows = session.scalars(query.order_by(RuleTargetRow.id).limit(limit).execution_options(**_FRESH))
    return [target_value(row) for row in rows]


def skipped_of(
    session: Session, run_id: int, *, reason: str | None = None, limit: int, offset: int = 0
) -> list[SkippedVariant]:
    """Variants that the rule left alone or the guardrails blocked. Those that need no change are counted only."""
    _check_exists(session, run_id)
    query = select(SkippedVariantRow).where(*_skips(run_id, reason))
    return [
        skipped_value(row) for row in session.scalars(query.order_by(SkippedVariantRow.id).limit(limit).offset(offset))
    ]


def count_skipped(session: Session, run_id: int, *, reason: str | None = None) -> int:
    return session.scalar(select(func.count(SkippedVariantRow.id)).where(*_skips(run_id, reason))) or 0


def result_of(session: Session, run_id: int) -> RunResult:
    """Of the targets that are applied or have failed; those that were taken back are in neither."""
    run = get_run(session, run_id)
    ended = RuleTargetRow.status.in_((TargetState.APPLIED, TargetState.FAILED))
    query = (
        select(RuleTargetRow.id, RuleTargetRow.status, RuleTargetRow.variant_id)
        .add_columns(RuleTargetRow.after_json, RuleTargetRow.error_message, RuleTargetRow.duration_ms)
        .where(RuleTargetRow.rule_run_id == run_id, ended)
        .order_by(RuleTargetRow.id)
    )
    results = [
        TargetResult(
            target_id=str(id_),
            success=status == TargetState.APPLIED,
            external_id=variant_id,
            applied_price=after["unit_amount"] if status == TargetState.APPLIED else None,
            error=error if status == TargetState.FAILED else None,
            duration=duration or 0,
        )
        for id_, status, variant_id, after, error, duration in session.execute(query)
    ]
    told = run_result(str(run_id), run.status, RunTimes(run.queued_at, run.started_at, run.finished_at), results)
    return told.model_copy(update={"success_rate": rate_of(run.targets)})


def transitions_of(session: Session, run_id: int, limit: int, after_id: int = 0) -> list[LoggedMove]:
    """The moves of the run and of its targets, in the order in which they were made."""
    _check_exists(session, run_id)
    targets = select(cast(RuleTargetRow.id, Text)).where(RuleTargetRow.rule_run_id == run_id)
    of_run = (TransitionRow.machine == RULE_RUN.name) & (TransitionRow.entity_id == str(run_id))
    of_target = (TransitionRow.machine == RULE_TARGET.name) & TransitionRow.entity_id.in_(targets)
    query = select(TransitionRow).where(or_(of_run, of_target), TransitionRow.id > after_id)
    rows = session.scalars(query.order_by(TransitionRow.id).limit(limit))
    return [LoggedMove.model_validate({name: getattr(row, name) for name in LoggedMove.model_fields}) for row in rows]


def _runs() -> Select[tuple[RuleRunRow, str]]:
    return select(RuleRunRow, RuleRow.name).join(RuleRow, RuleRow.id == RuleRunRow.rule_id).execution_options(**_FRESH)


def _conditions(chosen: RunFilter) -> list[ColumnElement[bool]]:
    conditions = [RuleRunRow.tenant_id == TENANT]
    if chosen.project_id is not None:
        conditions.append(RuleRunRow.project_id == chosen.project_id)
    if chosen.rule_id is not None:
        conditions.append(RuleRunRow.rule_id == chosen.rule_id)
    if chosen.status is not None:
        conditions.append(RuleRunRow.status == chosen.status)
    if chosen.trigger is not None:
        conditions.append(RuleRunRow.trigger == chosen.trigger)
    return conditions


def _counts(session: Session, run_ids: Collection[int]) -> dict[int, TargetCounts]:
    is_cancelled = func.coalesce(RuleTargetRow.error_type, "") == FailureKind.CANCELLED
    failed_so = (RuleTargetRow.status == TargetState.FAILED) & is_cancelled
    its = (RuleTargetRow.rule_run_id, RuleTargetRow.status, failed_so)
    query = select(*its, func.count()).where(among(session, RuleTargetRow.rule_run_id, run_ids)).group_by(*its)
    counted: dict[int, list[tuple[str, bool, int]]] = {}
    for run_id, status, cancelled, count in session.execute(query).tuples():
        counted.setdefault(run_id, []).append((status, bool(cancelled), count))
    return {run_id: counts_value(rows) for run_id, rows in counted.items()}


def _skips(run_id: int, reason: str | None) -> list[ColumnElement[bool]]:
    its: list[ColumnElement[bool]] = [SkippedVariantRow.rule_run_id == run_id]
    return its if reason is None else [*its, SkippedVariantRow.reason == reason]


def _check_exists(session: Session, run_id: int) -> None:
    if session.scalar(select(RuleRunRow.id).where(RuleRunRow.id == run_id)) is None:
        raise no_such_run(run_id)
