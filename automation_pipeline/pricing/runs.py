"""Runs of rules: request, approve, queue, cancel, retry, roll back, sweep, start on schedule."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Select, Text, and_, cast, exists, literal, or_, select, update

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.pricing.models.rules import PricingRule
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    PricingRunState,
    RuleBusyError,
    RuleRun,
    RuleTrigger,
    RunAction,
    TargetState,
)
from automation_pipeline.pricing.models.shop import CANCELLED
from automation_pipeline.pricing.pricing_rules import author_of, lock_rule, policy_of
from automation_pipeline.pricing.queries.runs import (
    HAS_WORK,
    IS_ACTIVE,
    RUN_CLAIMS,
    NewRun,
    Run,
    active_run_of,
    add_run,
    begin_applying,
    blocking_reason,
    claim_run,
    end_run,
    file_run_requests,
    get_run,
    last_applied_at,
    locked_run,
    move_to_queue,
    no_such_run,
    open_runs_of,
    release_claim,
)
from automation_pipeline.pricing.queries.targets import (
    give_up_rest,
    mark_targets,
    requeue_abandoned,
    update_targets,
)
from automation_pipeline.pricing.rules.runs import (
    PromotionOverError,
    approval_fault,
    cooldown_end,
    stale_fault,
    targets_to_retry,
    targets_to_roll_back,
)
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow, ShopRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import among, database_now, database_time


def request_rule_run(  # noqa: PLR0913  the services and the request, by name
    rule_id: int,
    *,
    database: Database,
    clock: Clock,
    shop: str,
    actor: str,
    trigger: RuleTrigger,
    force: bool = False,
) -> int:
    """Return the id of the new run. Raises ConflictError if the rule is disabled, has an open run, or is in
    its cooldown; `force` skips the cooldown."""
    with database.transaction() as session:
        rule, now = lock_rule(session, rule_id), clock.now()
        if not rule.enabled:
            raise ConflictError(f"Pricing rule {rule.id} is disabled: enable it first.")
        open_run = open_runs_of(session, [rule.id]).get(rule.id)
        if open_run is not None:
            is_active = open_run.status in ACTIVE_RUN_STATES
            state = f"is {open_run.status}" if is_active else "waits to be applied"
            raise ConflictError(
                f"Run {open_run.id} of pricing rule {rule.id} {state}: wait for its end, or cancel it."
            )
        if not force:
            _check_cooldown(session, rule, now, "ask for the run with force")
        new = NewRun(
            rule=rule, shop=shop, trigger=trigger, actor=actor, wish=RunAction.APPLY, force=force
        )
        run_id = add_run(session, new, now)
        file_run_requests(session, [run_id], now)
        return run_id


def _check_cooldown(session: Session, rule: PricingRule, now: datetime, advice: str) -> None:
    until = cooldown_end(last_applied_at(session, rule.id), rule.cooldown_minutes, now)
    if until is not None:
        raise ConflictError(
            f"Pricing rule {rule.id} rests until {iso(until)} after its last run: wait, or {advice}."
        )


def approve_run(run_id: int, *, database: Database, clock: Clock, actor: str) -> RuleRun:
    """Approve a preview. Safe to repeat. Raises ConflictError if the run is not a planned preview, another
    person has approved it, or the project requires the approval of another person."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        _planned_at(run)
        fault = _approval_fault(session, run, actor)
        if fault is not None:
            raise ConflictError(fault)
        approver = run.approved_by
        if approver != actor:
            written_by = author_of(session, run.rule_id, run.rule_version)
            if approver is not None and approver not in {run.created_by, written_by}:
                raise ConflictError(f"Rule run {run_id} was approved by {approver} already.")
            run.approved_by = actor
            run.approved_at = run.updated_at = clock.now()
        return get_run(session, run_id)


def _approval_fault(session: Session, run: RuleRunRow, approver: str | None) -> str | None:
    policy = policy_of(session, run.project_id)
    return approval_fault(
        auto_apply=policy is None or policy.auto_apply,
        created_by=run.created_by,
        written_by=author_of(session, run.rule_id, run.rule_version),
        approved_by=approver,
    )


def _planned_at(run: RuleRunRow) -> datetime:
    """Return when the run was planned. Raises ConflictError if it is not a planned preview, or was cancelled."""
    if run.status != PricingRunState.PREVIEW:
        raise ConflictError(
            f"Rule run {run.id} is {run.status}: only a preview can be approved or queued."
        )
    if run.cancel_requested_at is not None:
        raise ConflictError(f"Rule run {run.id} was cancelled: preview the rule again.")
    if run.previewed_at is None:
        raise ConflictError(f"Rule run {run.id} is not planned yet: wait for its preview.")
    return run.previewed_at


def queue_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    actor: str,
    force: bool = False,
    requests_worker: bool = True,
) -> RuleRun:
    """Queue the run. `force`, here or in the request for the run, skips the cooldown. Raises ConflictError
    if the run cannot be applied now. Raises RuleBusyError if another run of the rule must end first.
    Raises InvalidInputError if no price would change, and the run is not scheduled."""
    with database.transaction() as session:
        rule_id = session.scalar(select(RuleRunRow.rule_id).where(RuleRunRow.id == run_id))
        if rule_id is None:
            raise no_such_run(run_id)
        # The rule is always locked before the run, which prevents deadlocks.
        rule = lock_rule(session, rule_id, deleted_too=True)
        run, now = locked_run(session, run_id), clock.now()
        _check_preview(run, rule, now)
        fault = _approval_fault(session, run, run.approved_by)
        if fault is not None:
            raise ConflictError(fault)
        is_forced = force or bool((run.run_metadata or {}).get("force"))
        if not is_forced and run.trigger != RuleTrigger.REPAIR:
            _check_cooldown(session, rule, now, "queue it with force")
        if run.total_targets == 0 and run.trigger != RuleTrigger.SCHEDULE:
            raise InvalidInputError(
                f"Rule run {run_id} has nothing to apply: no price would change."
            )
        reason = blocking_reason(session, rule.id)
        if reason is not None:
            raise RuleBusyError(reason)
        move_to_queue(session, run, actor, now)
        if requests_worker:
            file_run_requests(session, [run_id], now)
        return get_run(session, run_id)


def _check_preview(run: RuleRunRow, rule: PricingRule, now: datetime) -> None:
    """A repair may be applied although the rule has changed or its promotion is over, because it
    restores applied prices."""
    is_repair = run.trigger == RuleTrigger.REPAIR
    rule_hash = run.rule_version_hash if is_repair else rule.version_hash
    fault = stale_fault(run.rule_version_hash, rule_hash, _planned_at(run), now)
    if fault is not None:
        raise ConflictError(fault)
    if rule.deleted_at is not None:
        raise ConflictError(
            f"Pricing rule {rule.id} was deleted: its previews can no longer be applied."
        )
    if not rule.enabled:
        raise ConflictError(f"Pricing rule {rule.id} is disabled: enable it first.")
    if rule.ends_at is not None and rule.ends_at <= now and not is_repair:
        raise PromotionOverError(
            f"The promotion of pricing rule {rule.id} ended at {iso(rule.ends_at)}: prices applied now "
            "would be rolled back at once."
        )


_CANCEL_SECONDS = 60.0


def cancel_run(run_id: int, *, database: Database, clock: Clock, actor: str) -> RuleRun:
    """Cancel the run. Without a worker and without a price that may have been written, it ends at
    once; otherwise its worker stops before its next write. Safe to repeat. Raises ConflictError if the run
    has ended, or is a preview without a request to apply it."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        is_active = run.status in ACTIVE_RUN_STATES
        is_preview = run.status == PricingRunState.PREVIEW
        is_cancelled = run.cancel_requested_at is not None and (is_active or is_preview)
        if not is_cancelled and not is_active and run.wish is None:
            raise ConflictError(
                f"Run {run.id} is a preview without a request to apply it: there is nothing to cancel."
                if is_preview
                else f"Run {run.id} is {run.status}: there is nothing to cancel."
            )
        if run.cancel_requested_at is None:
            run.cancel_requested_at = run.updated_at = clock.now()
            run.cancelled_by = actor
        if is_active:
            _end_without_worker(session, run, actor)
        else:
            run.wish = run.wished_by = None
            is_marked = RuleTargetRow.rule_run_id == run.id, RuleTargetRow.is_wished
            update_targets(session, *is_marked, is_wished=False)
        return get_run(session, run_id)


def _end_without_worker(session: Session, run: RuleRunRow, actor: str) -> None:
    claim = claim_run(session, run.id, actor, _CANCEL_SECONDS)
    if claim is None:
        return
    session.refresh(run)
    now = database_time(session)
    if run.status == PricingRunState.QUEUED:
        begin_applying(session, run, now)
    else:
        requeue_abandoned(session, run.id, now)
    give_up_rest(session, run.id, CANCELLED, actor, now)
    if not end_run(session, run, now, reconciles=True):
        # A worker must read the prices that may have been written.
        file_run_requests(session, [run.id], now)
    release_claim(session, claim)


def retry_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    actor: str,
    target_ids: Sequence[int] | None = None,
    force: bool = False,
) -> RuleRun:
    """Retry failed targets: the given ones, or all retryable ones. Raises ConflictError if the run or
    another run of the rule has work, or no target is retryable. Raises InvalidInputError, which names targets
    that are not failed, or that are not retryable without `force`."""
    with database.transaction() as session:
        run, now = locked_run(session, run_id), clock.now()
        if run.promotion_ended_at is not None:
            raise ConflictError(
                f"The promotion of run {run.id} is over: prices applied now would never be rolled back."
            )
        _check_idle(run)
        other = active_run_of(session, run.rule_id)
        if other is not None and run.status in {PricingRunState.PARTIAL, PricingRunState.FAILED}:
            raise ConflictError(
                f"Run {other} of the same rule is running: wait for its end, or cancel it."
            )
        query = _targets_in(run_id, TargetState.FAILED)
        failed = {id_: bool(retryable) for id_, retryable in session.execute(query).tuples()}
        chosen = targets_to_retry(PricingRunState(run.status), failed, target_ids, force=force)
        run.cancel_requested_at = None
        return _request(session, run, RunAction.RETRY, chosen, actor, now)


def roll_back_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    actor: str,
    target_ids: Sequence[int] | None = None,
    force: bool = False,
) -> RuleRun:
    """Roll applied targets back: the given ones, or all. Prices that were edited since then stay,
    unless `force` is set. Raises ConflictError if the run has work, or no applied target. Raises InvalidInputError,
    which names targets that are not applied."""
    with database.transaction() as session:
        run, now = locked_run(session, run_id), clock.now()
        _check_idle(run)
        applied = [
            id_ for id_, _ in session.execute(_targets_in(run_id, TargetState.APPLIED)).tuples()
        ]
        chosen = targets_to_roll_back(PricingRunState(run.status), applied, target_ids)
        if not chosen:
            raise ConflictError(f"Run {run_id} has no applied price to roll back.")
        run.rollbacks += 1
        run.rollback_force = force
        return _request(session, run, RunAction.ROLLBACK, chosen, actor, now)


def _check_idle(run: RuleRunRow) -> None:
    if run.wish is not None:
        raise ConflictError(f"Run {run.id} already waits for a worker: {run.wish}.")


def _targets_in(run_id: int, state: TargetState) -> Select[tuple[int, bool | None]]:
    return (
        select(RuleTargetRow.id, RuleTargetRow.error_retryable)
        .where(RuleTargetRow.rule_run_id == run_id, RuleTargetRow.status == state)
        .order_by(RuleTargetRow.id)
    )


def _request(
    session: Session,
    run: RuleRunRow,
    request: RunAction,
    target_ids: Sequence[int],
    actor: str,
    now: datetime,
) -> RuleRun:
    run.wish, run.wished_by, run.updated_at = request, actor, now
    mark_targets(session, run.id, target_ids)
    file_run_requests(session, [run.id], now)
    return get_run(session, run.id)


POSTPONED_SECONDS = 300.0


def postpone_failed_run(run_id: int, reason: str, *, database: Database) -> bool:
    """Postpone a run whose worker failed, and return whether it was postponed. The run shows the
    reason, and the sweep requests a worker afterwards. A run without work, a claimed run and a run
    that already waits longer are not postponed."""
    waits_less = or_(Run.resume_at.is_(None), Run.resume_at < database_now(POSTPONED_SECONDS))
    postponing = (
        update(Run)
        .where(Run.id == run_id, HAS_WORK, RUN_CLAIMS.is_free(), waits_less)
        .values(resume_at=database_now(POSTPONED_SECONDS), error_message=reason)
        .returning(Run.id)
        .execution_options(synchronize_session=False)
    )
    with database.transaction() as session:
        return session.scalar(postponing) is not None


MAX_RUNS = 100
# A requested worker that has not claimed its run within this time is requested again.
STARTS_WITHIN_SECONDS = 60.0


def runs_without_worker(session: Session, *, shop: str | None = None) -> list[int]:
    """Return the runs that have work now, no worker, and no recent request for one. In a paused shop
    these are only runs that must be cancelled."""
    is_due = or_(Run.resume_at.is_(None), Run.resume_at <= database_now())
    is_paused = exists().where(ShopRow.shop == Run.shop, ShopRow.paused_at.is_not(None))
    may_continue = or_(~is_paused, and_(IS_ACTIVE, Run.cancel_requested_at.is_not(None)))
    key = literal("rule-run-") + cast(Run.id, Text) + literal("-") + cast(Run.requests, Text)
    was_just_taken = and_(
        RunRequestRow.state == "taken",
        RunRequestRow.offered_at > database_now(-STARTS_WITHIN_SECONDS),
    )
    is_requested = exists().where(
        RunRequestRow.request_key == key, or_(RunRequestRow.state == "waiting", was_just_taken)
    )
    query = select(Run.id).where(
        HAS_WORK, RUN_CLAIMS.is_free(), is_due, may_continue, ~is_requested
    )
    if shop is not None:
        query = query.where(Run.shop == shop)
    return list(
        session.scalars(query.order_by(Run.id).limit(MAX_RUNS).with_for_update(skip_locked=True))
    )


def sweep_rule_runs(*, database: Database, clock: Clock) -> Sequence[int]:
    """Request a worker for each run that needs one, and return the runs. Two concurrent sweeps may
    request two workers for one run; the second worker finds the claim of the first."""
    has_writes = Run.id.in_(select(RuleTargetRow.rule_run_id).where(RuleTargetRow.is_writing))
    ended = select(Run.id).where(has_writes, ~HAS_WORK, RUN_CLAIMS.is_free())
    with database.transaction() as session:
        # An ended run gets no other worker that would release the variants of its lost worker.
        lost = session.scalars(ended.with_for_update(skip_locked=True)).all()
        if lost:
            of_lost = among(session, RuleTargetRow.rule_run_id, lost)
            update_targets(session, of_lost, RuleTargetRow.is_writing, is_writing=False)
        runs = runs_without_worker(session)
        file_run_requests(session, runs, clock.now())
        return runs
