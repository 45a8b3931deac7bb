"""Queries of runs: claims, new runs, requests for workers, state changes, views for users."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    and_,
    case,
    cast,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.events import Event
from automation_pipeline.core.logs import correlation_id
from automation_pipeline.pricing.events import apply_key, pricing_event, request_key, run_event_key
from automation_pipeline.pricing.models.rules import TENANT, PricingRule, RuleReference
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    BLOCKED,
    FIRST_CHECKS,
    FIRST_RUN_STATE,
    FIRST_TARGET_STATE,
    LIVE_RUN_STATES,
    RULE_RUN,
    RULE_TARGET,
    LoggedMove,
    LostRunClaimError,
    PricingRunState,
    RuleBusyError,
    RuleRun,
    RuleRunFilter,
    RuleTarget,
    RuleTrigger,
    RunAction,
    RunResult,
    SkippedVariant,
    TargetResult,
    TargetState,
    final_run_state,
    run_error,
)
from automation_pipeline.pricing.models.shop import CRITICAL, FailureKind
from automation_pipeline.pricing.models.transforms import Skip
from automation_pipeline.pricing.queries.targets import (
    WORKER,
    requeue_marked,
    target_counts,
    update_targets,
)
from automation_pipeline.pricing.rules.runs import (
    PERMANENT_FAILURES,
    RETRY_END_AFTER,
    WorkTarget,
    after_rollback,
)
from automation_pipeline.pricing.tables import (
    RuleCheckRow,
    RuleRow,
    RuleRunRow,
    RuleTargetRow,
    SkippedVariantRow,
)
from automation_pipeline.storage.claims import LostClaimError, RowClaims
from automation_pipeline.storage.history import Transition, TransitionRow, record_transitions
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests
from automation_pipeline.storage.statements import (
    among,
    database_now,
    database_time,
    insert_into,
    upsert,
)
from automation_pipeline.storage.types import UtcDateTime

RUN_JOB = "rule_run"
RUN_CLAIMS = RowClaims(
    RuleRunRow,
    RuleRunRow.id,
    owner=RuleRunRow.lease_owner,
    token=RuleRunRow.lease_token,
    until=RuleRunRow.lease_until,
)

Run = RuleRunRow


@dataclass(frozen=True)
class RunClaim:
    run_id: int
    token: int


def claim_run(session: Session, run_id: int, owner: str, seconds: float) -> RunClaim | None:
    """Return None while another owner holds the claim."""
    taken = RUN_CLAIMS.take(session, [Run.id == run_id], owner, seconds)
    return RunClaim(run_id, taken[0].token) if taken else None


def claimed_run(session: Session, claim: RunClaim) -> RuleRunRow:
    """Return the run, locked until the transaction ends. Raises LostRunClaimError if another process has taken
    the claim."""
    try:
        return RUN_CLAIMS.require(session, claim.run_id, claim.token)
    except LostClaimError:
        locked_run(session, claim.run_id)  # raises NotFoundError if the run does not exist
        raise LostRunClaimError(f"Rule run {claim.run_id} belongs to another process.") from None


def extend_claim(session: Session, claim: RunClaim, seconds: float) -> RuleRunRow:
    run = claimed_run(session, claim)
    run.lease_until = database_now(seconds)  # pyright: ignore[reportAttributeAccessIssue]  an expression is accepted too
    return run


def release_claim(session: Session, claim: RunClaim) -> None:
    RUN_CLAIMS.release(session, [(claim.run_id, claim.token)])


def locked_run(session: Session, run_id: int) -> RuleRunRow:
    row = session.scalar(select(Run).where(Run.id == run_id).with_for_update())
    if row is None:
        raise no_such_run(run_id)
    return row


def no_such_run(run_id: int) -> NotFoundError:
    return NotFoundError(f"Rule run {run_id} not found")


def seconds_until_free(session: Session, run_id: int) -> float:
    until = session.scalar(select(Run.lease_until).where(Run.id == run_id))
    return 0.0 if until is None else max((until - database_time(session)).total_seconds(), 0.0)


@dataclass(frozen=True)
class OpenRun:
    """A run that prevents another run of its rule. `status` is PREVIEW while it waits to be planned,
    and an end state while it waits for its retry."""

    id: int
    status: PricingRunState


IS_ACTIVE = Run.status.in_(sorted(ACTIVE_RUN_STATES))
HAS_WORK = or_(IS_ACTIVE, Run.wish.is_not(None))


def open_runs_of(session: Session, rule_ids: Collection[int]) -> dict[int, OpenRun]:
    """Return, by rule, its newest run that is active, waits to be applied, or waits for a retry."""
    is_requested = and_(
        Run.status == PricingRunState.PREVIEW,
        Run.wish == RunAction.APPLY,
        Run.cancel_requested_at.is_(None),
    )
    query = (
        select(Run.rule_id, Run.id, Run.status)
        .where(
            among(session, Run.rule_id, rule_ids),
            or_(IS_ACTIVE, is_requested, Run.wish == RunAction.RETRY),
        )
        .order_by(Run.id)
    )
    rows = session.execute(query).tuples()
    return {rule_id: OpenRun(run_id, PricingRunState(status)) for rule_id, run_id, status in rows}


def active_run_of(session: Session, rule_id: int) -> int | None:
    """Return the run that is queued or being applied. A rule has at most one such run."""
    return session.scalar(select(Run.id).where(Run.rule_id == rule_id, IS_ACTIVE))


def blocking_reason(session: Session, rule_id: int) -> str | None:
    """Return why no other run of the rule may be queued now."""
    if active_run_of(session, rule_id) is not None:
        return f"Another run of rule {rule_id} is queued or being applied."
    retried = session.scalar(
        select(func.min(Run.id)).where(Run.rule_id == rule_id, Run.wish == RunAction.RETRY)
    )
    if retried is None:
        return None
    return f"Run {retried} of pricing rule {rule_id} waits for a retry: wait for its end, or cancel it."


def last_applied_at(session: Session, rule_id: int) -> datetime | None:
    """Return the end of the last run whose prices are in the shop."""
    is_live = Run.status.in_(sorted(LIVE_RUN_STATES))
    return session.scalar(select(func.max(Run.finished_at)).where(Run.rule_id == rule_id, is_live))


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """`force` skips the cooldown of the rule."""

    rule: PricingRule | RuleReference
    shop: str
    trigger: RuleTrigger
    actor: str
    wish: RunAction | None = None
    scheduled_for: datetime | None = None
    parent_run_id: int | None = None
    force: bool = False


def add_run(session: Session, run: NewRun, now: datetime) -> int:
    """Insert a run. Call `file_run_requests` to request a worker for it."""
    return add_runs(session, [run], now)[run.rule.id]


def add_runs(session: Session, runs: Sequence[NewRun], now: datetime) -> dict[int, int]:
    """Insert the runs, and return their ids by rule. A rule that already ran for the same scheduled
    time gets no run."""
    if not runs:
        return {}
    rows = [
        {
            "tenant_id": TENANT,
            "project_id": run.rule.project_id,
            "rule_id": run.rule.id,
            "rule_version": run.rule.version,
            "rule_version_hash": run.rule.version_hash,
            "shop": run.shop,
            "status": FIRST_RUN_STATE,
            "trigger": run.trigger,
            "wish": run.wish,
            "wished_by": run.actor if run.wish else None,
            "parent_run_id": run.parent_run_id,
            "scheduled_for": run.scheduled_for,
            "created_by": run.actor,
            "metadata": {
                "actor": run.actor,
                "correlationId": correlation_id(),
                "source": run.trigger,
                "force": run.force,
            },
            "created_at": now,
            "updated_at": now,
        }
        for run in runs
    ]
    statement = insert_into(session, Run).on_conflict_do_nothing(
        index_elements=["rule_id", "scheduled_for"]
    )
    table = Run.__table__
    return dict(
        iter(session.execute(statement.returning(table.c.rule_id, table.c.id), rows).tuples())
    )


def file_run_requests(session: Session, run_ids: Collection[int], now: datetime) -> dict[int, str]:
    """Request a worker for each run, and return the keys of the requests by run. Every request has a
    new key, because Dagster ignores keys that it already knows."""
    if not run_ids:
        return {}
    numbered = session.execute(
        update(Run)
        .where(among(session, Run.id, run_ids))
        .values(requests=Run.requests + 1)
        .returning(Run.id, Run.rule_id, Run.requests)
        .execution_options(synchronize_session=False)
    ).tuples()
    requests = {
        run_id: NewRunRequest(
            request_key(str(run_id), number),
            RUN_JOB,
            {"run_id": run_id},
            {"pricing/run_id": str(run_id), "pricing/rule_id": str(rule_id)},
        )
        for run_id, rule_id, number in numbered
    }
    file_requests(session, [requests[run_id] for run_id in run_ids if run_id in requests], now)
    return {run_id: request.key for run_id, request in requests.items()}


def move_run(
    session: Session,
    run: RuleRunRow,
    to: PricingRunState,
    actor: str,
    now: datetime,
    reason: str | None = None,
) -> None:
    """The run must be locked. Raises RuleBusyError if another run of its rule is active."""
    frm, rule_id = PricingRunState(run.status), run.rule_id
    run.status = RULE_RUN.move(frm, to)
    run.updated_at = now
    record_transitions(
        session, [Transition(RULE_RUN.name, str(run.id), frm, to, actor, now, reason)]
    )
    try:
        session.flush()
    except IntegrityError:
        raise RuleBusyError(f"Another run of rule {rule_id} is queued or being applied.") from None


def move_to_queue(session: Session, run: RuleRunRow, actor: str, now: datetime) -> None:
    """Queue the run and all its targets, in a constant number of statements."""
    run.queued_at, run.queued_by = now, actor
    run.wish = run.wished_by = run.error_message = None
    move_run(session, run, PricingRunState.QUEUED, actor, now)
    frm = FIRST_TARGET_STATE
    to = RULE_TARGET.move(frm, TargetState.QUEUED)
    which = RuleTargetRow.rule_run_id == run.id, RuleTargetRow.status == frm
    moves = (
        select(
            literal(RULE_TARGET.name),
            cast(RuleTargetRow.id, Text),
            literal(frm.value),
            literal(to.value),
            literal(actor),
            literal(now, UtcDateTime()),
        )
        .where(*which)
        .order_by(RuleTargetRow.id)
    )
    columns = ["machine", "entity_id", "from_state", "to_state", "actor", "at"]
    session.execute(insert(TransitionRow).from_select(columns, moves))
    update_targets(session, *which, status=to)
    payload: dict[str, object] = {"targets": run.total_targets, "queuedBy": actor}
    enqueue(session, [run_event(run, "rule.apply.queued", now, payload)])


def begin_applying(session: Session, run: RuleRunRow, now: datetime) -> None:
    """Start a queued run or its next cycle. `started_at` stays the first start. It is never before
    `queued_at`, which comes from another clock than the database's."""
    run.started_at = run.started_at or max(now, run.queued_at or now)
    run.finished_at = run.resume_at = None
    run.error_type = run.error_message = None
    move_run(session, run, PricingRunState.APPLYING, WORKER, now)
    enqueue(session, [run_event(run, "rule.run.started", now, {"cycle": run.retry_cycle})])


def begin_retry(session: Session, run: RuleRunRow, now: datetime) -> int:
    """Start a new cycle for the marked targets, and return their number. The events of each cycle
    have their own keys."""
    count = requeue_marked(session, run.id, run.wished_by or WORKER, now)
    run.retry_cycle += 1
    run.wish = run.wished_by = None
    begin_applying(session, run, now)
    return count


def record_attempts(
    session: Session, run: RuleRunRow, targets: Sequence[WorkTarget], now: datetime
) -> None:
    """Emit an event per attempt, before the call is made."""
    attempts = [
        pricing_event(
            "automation.target.apply",
            apply_key(str(run.id), str(one.id), run.retry_cycle, one.progress.attempts),
            f"rule-run-{run.id}",
            now,
            {
                "targetId": str(one.id),
                "runId": str(run.id),
                "attempt": one.progress.attempts,
                "cycle": run.retry_cycle,
            },
        )
        for one in targets
    ]
    enqueue(session, attempts)


def run_event(run: RuleRunRow, name: str, now: datetime, payload: dict[str, object]) -> Event:
    ids = {"runId": str(run.id), "ruleId": str(run.rule_id), "projectId": run.project_id}
    key = run_event_key(str(run.id), name, run.retry_cycle)
    return pricing_event(name, key, f"rule-run-{run.id}", now, {**ids, **payload})


MAX_SHOWN_ERRORS = 10


def end_run(session: Session, run: RuleRunRow, now: datetime, *, reconciles: bool) -> bool:
    """End the run unless a target is open, and return whether it has ended. With `reconciles`, the
    checks of its prices are planned."""
    counts = target_counts(session, [run.id])[run.id]
    ended = final_run_state(counts.states)
    if ended is None:
        return False
    has_failed = RuleTargetRow.rule_run_id == run.id, RuleTargetRow.status == TargetState.FAILED
    is_critical = exists().where(*has_failed, RuleTargetRow.error_type.in_(sorted(CRITICAL)))
    error = run_error(ended, was_critical=bool(session.scalar(select(is_critical))))
    run.finished_at = max(now, run.started_at or now)
    run.resume_at = None
    run.error_type = error and error.value
    run.error_message = None
    if ended is not PricingRunState.APPLIED:
        is_cancelled = RuleTargetRow.error_type == FailureKind.CANCELLED
        messages = session.scalars(
            select(RuleTargetRow.error_message)
            .where(*has_failed)
            .order_by(case((is_cancelled, 1), else_=0), RuleTargetRow.id)
            .limit(MAX_SHOWN_ERRORS)
        )
        run.error_message = "; ".join(text.rstrip(".") for text in messages if text) or None
    results: dict[str, object] = {
        "successCount": counts.applied,
        "errorCount": counts.failed,
        "cancelledCount": counts.cancelled,
        "totalTargets": counts.total,
        "successRate": counts.success_rate,
    }
    run.explain_json = {
        **(run.explain_json or {}),
        "results": results,
        "cycles": run.retry_cycle + 1,
    }
    move_run(session, run, ended, WORKER, now, run.error_message)
    enqueue(session, [run_event(run, "rule.run.ended", now, {"status": ended.value, **results})])
    if reconciles and counts.applied:
        plan_checks(session, run.id, run.finished_at)
    return True


def plan_checks(session: Session, run_id: int, finished_at: datetime) -> None:
    rows = [
        {
            "rule_run_id": run_id,
            "name": name,
            "due_at": finished_at + after,
            "requested_at": None,
            "checked_at": None,
        }
        for name, after in FIRST_CHECKS
    ]
    fields = ("due_at", "requested_at", "checked_at")
    upsert(session, RuleCheckRow, rows, key=("rule_run_id", "name"), fields=fields)


_ROLLED_BACK = "rule.run.rolled_back"


def end_rollback(session: Session, run: RuleRunRow, now: datetime) -> None:
    """The run must be claimed, and none of its targets may be marked. A newer request stays, unless
    nothing is left to do for it. At the end of a promotion, transient failures are retried later."""
    counts = target_counts(session, [run.id])[run.id]
    before, actor = PricingRunState(run.status), run.wished_by or WORKER
    after, run.rollback_state = after_rollback(before, counts.states)
    run.rollback_force, run.resume_at = False, None
    was_rollback = run.wish == RunAction.ROLLBACK
    if was_rollback and run.promotion_ended_at is not None:
        is_transient = exists().where(
            RuleTargetRow.rule_run_id == run.id,
            RuleTargetRow.status == TargetState.APPLIED,
            RuleTargetRow.error_type.not_in(sorted(PERMANENT_FAILURES)),
        )
        if session.scalar(select(is_transient)):
            run.promotion_ended_at, run.resume_at = None, now + RETRY_END_AFTER
    if was_rollback or after is PricingRunState.ROLLED_BACK:
        run.wish = run.wished_by = None
    run.updated_at = now
    if after is not before:
        move_run(session, run, after, actor, now)
    payload: dict[str, object] = {
        "status": run.status,
        "rollbackState": run.rollback_state,
        "rolledBack": counts.rolled_back,
        "stillApplied": counts.applied,
    }
    # A run may be rolled back in several parts, each under its own claim.
    key = run_event_key(str(run.id), _ROLLED_BACK, run.lease_token)
    enqueue(session, [replace(run_event(run, _ROLLED_BACK, now, payload), key=key)])


BLOCKED_REASON = "The project's guardrails do not allow its new price."
_COMPUTED = {"rule_name", "targets", "success_rate", "explain"}
_OF_ROW = RuleRun.model_fields.keys() - _COMPUTED


def select_runs(*which: ColumnElement[bool]) -> Select[tuple[RuleRunRow, str]]:
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
    query = select_runs(among(session, RuleRunRow.id, run_ids))
    return {run.id: run for run in read_runs(session, query)}


def list_runs(session: Session, chosen: RuleRunFilter, limit: int, offset: int) -> list[RuleRun]:
    which = [
        getattr(RuleRunRow, name) == value
        for name, value in vars(chosen).items()
        if value is not None
    ]
    return read_runs(
        session, select_runs(*which).order_by(RuleRunRow.id.desc()).limit(limit).offset(offset)
    )


def targets_of(
    session: Session,
    run_id: int,
    *,
    status: TargetState | None = None,
    limit: int,
    after_id: int = 0,
) -> list[RuleTarget]:
    """Return the targets by id, so that those of a product are together. `after_id` is the last id of
    the previous page."""
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
    """Return the variants that the rule skips or the guardrails block, except those that already have
    their price: they are only counted."""
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
    """Return the result of each applied or failed target. Targets that were rolled back are left out."""
    run = get_run(session, run_id)
    row = RuleTargetRow
    query = (
        select(row.id, row.status, row.variant_id, row.after_json, row.error_message)
        .add_columns(row.duration_ms)
        .where(row.rule_run_id == run_id)
        .where(row.status.in_((TargetState.APPLIED, TargetState.FAILED)))
        .order_by(row.id)
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
    """Return the state changes of the run and of its targets, oldest first."""
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
