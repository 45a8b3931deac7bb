"""Runs of rules: request, approve, queue, cancel, retry, roll back, sweep, start on schedule."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.events import Event
from automation_pipeline.pricing import events
from automation_pipeline.pricing.models.rules import PricingRule
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    PricingRunState,
    RuleRun,
    RuleTrigger,
    RunAction,
)
from automation_pipeline.pricing.models.shop import CANCELLED
from automation_pipeline.pricing.queries.dead_letters import (
    clear_request,
    failed_letters,
    mark_for_retry,
)
from automation_pipeline.pricing.queries.rules import (
    PlannedRule,
    author_of,
    clear_schedules,
    close_repairs,
    lock_live_runs,
    lock_planned_rules,
    lock_rule,
    policy_of,
    request_rollbacks,
)
from automation_pipeline.pricing.queries.runs import (
    NewRun,
    RuleBusyError,
    active_run_of,
    add_run,
    add_runs,
    blocking_reason,
    claim_run,
    file_run_request,
    file_run_requests,
    get_run,
    last_applied_at,
    locked_run,
    open_run_of,
    open_runs_of,
    release_claim,
)
from automation_pipeline.pricing.queries.targets import (
    mark_for_rollback,
    requeue_abandoned,
    rollback_candidates,
)
from automation_pipeline.pricing.queries.transitions import (
    begin_applying,
    check_waits,
    end_run,
    free_variants,
    give_up_rest,
    move_to_queue,
    postpone_run,
    rule_of,
    runs_without_worker,
)
from automation_pipeline.pricing.rules.monitoring import targets_to_retry
from automation_pipeline.pricing.rules.runs import (
    DueAction,
    DuePriceRules,
    PromotionOverError,
    approval_fault,
    due_action,
    rests_until,
    stale_reason,
    targets_to_roll_back,
)
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue


def request_rule_run(  # noqa: PLR0913  the collaborators by name, and who asks how
    rule_id: int,
    *,
    database: Database,
    clock: Clock,
    shop: str,
    actor: str,
    trigger: RuleTrigger,
    force: bool = False,
) -> int:
    """The run. ConflictError: the rule is disabled, has a run already, or rests; with `force` its
    rest is cut short."""
    with database.transaction() as session:
        rule, now = lock_rule(session, rule_id), clock.now()
        _refuse_unready(session, rule, None if force else now)
        run_id = add_run(
            session,
            rule,
            shop=shop,
            trigger=trigger,
            actor=actor,
            now=now,
            wish=RunAction.APPLY,
            force=force,
        )
        file_run_request(session, run_id, now)
        return run_id


def _refuse_unready(session: Session, rule: PricingRule, rested_by: datetime | None) -> None:
    if not rule.enabled:
        raise ConflictError(f"Pricing rule {rule.id} is disabled: enable it first.")
    open_run = open_run_of(session, rule.id)
    if open_run is not None:
        how = (
            f"is {open_run.status}"
            if open_run.status in ACTIVE_RUN_STATES
            else "waits to be applied"
        )
        raise ConflictError(
            f"Run {open_run.id} of pricing rule {rule.id} {how}: wait for its end, or cancel it."
        )
    if rested_by is None:
        return
    until = rests_until(last_applied_at(session, rule.id), rule.cooldown_minutes, rested_by)
    if until is not None:
        raise ConflictError(
            f"Pricing rule {rule.id} rests until {iso(until)} after its last run: wait, or ask for the run with force."
        )


def approve_run(run_id: int, *, database: Database, clock: Clock, actor: str) -> RuleRun:
    """Twice by the same person is once. ConflictError: it is no planned preview, where the project
    wants a second person its creator and the author of its rule may not approve it, or somebody
    else has approved it."""
    with database.transaction() as session:
        row = locked_run(session, run_id)
        check_waits(row)
        policy = policy_of(session, row.project_id)
        auto_apply = policy is None or policy.auto_apply
        author = author_of(session, row.rule_id, row.rule_version)
        fault_of = partial(approval_fault, created_by=row.created_by, written_by=author)
        fault = fault_of(auto_apply=auto_apply, approved_by=actor)
        if fault is not None:
            raise ConflictError(fault)
        is_approved = fault_of(auto_apply=False, approved_by=row.approved_by) is None
        if is_approved and row.approved_by != actor:
            raise ConflictError(f"Rule run {run_id} was approved by {row.approved_by} already.")
        if row.approved_by != actor:
            row.approved_by = actor
            row.approved_at = row.updated_at = clock.now()
            session.flush()
        return get_run(session, run_id)


def queue_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    actor: str,
    force: bool = False,
    asks_for_worker: bool = True,
) -> RuleRun:
    """ConflictError says what stands in the way, RuleBusyError that another run of the rule does;
    with `force`, or in a run that was asked for so, the rest of the rule does not.
    InvalidInputError: no price would change, which only a schedule may find."""
    with database.transaction() as session:
        rule = lock_rule(session, rule_of(session, run_id), deleted_too=True)
        run, now = locked_run(session, run_id), clock.now()
        _check_preview(run, rule, now)
        _check_rule(rule, run, now)
        _check_approval(session, run)
        if not force and not _is_forced(run) and run.trigger != RuleTrigger.REPAIR:
            _check_rest(session, rule, now)
        if run.total_targets == 0 and run.trigger != RuleTrigger.SCHEDULE:
            raise InvalidInputError(
                f"Rule run {run_id} has nothing to apply: no price would change."
            )
        _check_turn(session, rule)
        move_to_queue(session, run, actor, now)
        if asks_for_worker:
            file_run_request(session, run_id, now)
        return get_run(session, run_id)


def _check_preview(run: RuleRunRow, rule: PricingRule, now: datetime) -> None:
    previewed_at = check_waits(run)
    # A repair restores what was applied, whatever the rule says by now.
    its_hash = run.rule_version_hash if run.trigger == RuleTrigger.REPAIR else rule.version_hash
    fault = stale_reason(run.rule_version_hash, its_hash, previewed_at, now)
    if fault is not None:
        raise ConflictError(fault.why)


def _check_rule(rule: PricingRule, run: RuleRunRow, now: datetime) -> None:
    if rule.deleted_at is not None:
        raise ConflictError(
            f"Pricing rule {rule.id} was deleted: its previews cannot be applied any more."
        )
    if not rule.enabled:
        raise ConflictError(f"Pricing rule {rule.id} is disabled: enable it first.")
    # A repair restores what still stands, and is no part of the promotion.
    if rule.ends_at is not None and rule.ends_at <= now and run.trigger != RuleTrigger.REPAIR:
        raise PromotionOverError(
            f"The promotion of pricing rule {rule.id} is over since {iso(rule.ends_at)}: what is applied now would be "
            "taken back at once."
        )


def _check_approval(session: Session, run: RuleRunRow) -> None:
    policy = policy_of(session, run.project_id)
    auto_apply = policy is None or policy.auto_apply
    fault = approval_fault(
        auto_apply=auto_apply,
        created_by=run.created_by,
        written_by=author_of(session, run.rule_id, run.rule_version),
        approved_by=run.approved_by,
    )
    if fault is not None:
        raise ConflictError(fault)


def _is_forced(run: RuleRunRow) -> bool:
    return run.run_metadata is not None and run.run_metadata.get("force") is True


def _check_rest(session: Session, rule: PricingRule, now: datetime) -> None:
    until = rests_until(last_applied_at(session, rule.id), rule.cooldown_minutes, now)
    if until is not None:
        raise ConflictError(
            f"Pricing rule {rule.id} rests until {iso(until)} after its last run: wait, or queue it with force."
        )


def _check_turn(session: Session, rule: PricingRule) -> None:
    why = blocking_reason(session, rule.id)
    if why is not None:
        raise RuleBusyError(why)


_BRIEFLY_SECONDS = 60.0


def cancel_run(run_id: int, *, database: Database, clock: Clock, actor: str) -> RuleRun:
    """At once where nobody works on it and nothing can have been written unheard; else its worker
    looks, and stops before its next writes. Safe to repeat. ConflictError: it has ended, or is a
    mere preview."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        _refuse_what_cannot_stop(run)
        if run.cancel_requested_at is None:
            run.cancel_requested_at, run.cancelled_by, run.updated_at = (
                clock.now(),
                actor,
                clock.now(),
            )
        if run.status not in {PricingRunState.QUEUED, PricingRunState.APPLYING}:
            clear_request(session, run)
        session.flush()
        if run.status in {PricingRunState.QUEUED, PricingRunState.APPLYING}:
            _end_if_nobody_works(session, run, actor)
        return get_run(session, run_id)


def _end_if_nobody_works(session: Session, run: RuleRunRow, actor: str) -> None:
    claim = claim_run(session, run.id, actor, _BRIEFLY_SECONDS)
    if claim is None:
        return
    session.refresh(run)
    now = database_time(session)
    if run.status == PricingRunState.QUEUED:
        begin_applying(session, run, now)
    else:
        requeue_abandoned(session, run.id, now)
    give_up_rest(session, run, CANCELLED, actor, now)
    if not end_run(session, run, now, reconciles=True):
        file_run_request(session, run.id, now)  # what may have been written is looked at first
    release_claim(session, claim)


def _refuse_what_cannot_stop(run: RuleRunRow) -> None:
    if run.cancel_requested_at is not None and run.status in {
        PricingRunState.PREVIEW,
        PricingRunState.QUEUED,
        PricingRunState.APPLYING,
    }:
        return
    if run.status == PricingRunState.PREVIEW and run.wish is None:
        raise ConflictError(
            f"Run {run.id} is a preview that nobody asked to be applied: there is nothing to cancel."
        )
    is_open = (
        run.status in {PricingRunState.PREVIEW, PricingRunState.QUEUED, PricingRunState.APPLYING}
        or run.wish is not None
    )
    if not is_open:
        raise ConflictError(f"Run {run.id} is {run.status}: there is nothing to cancel.")


def retry_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    actor: str,
    target_ids: Sequence[int] | None = None,
    force: bool = False,
) -> RuleRun:
    """ConflictError: it is at work, waits for something else, is rolled back, or nothing of it is
    worth another try. InvalidInputError names chosen targets that are not failed, or are hopeless
    unless forced."""
    with database.transaction() as session:
        run, now = locked_run(session, run_id), clock.now()
        _refuse_busy(session, run)
        chosen = None if target_ids is None else [str(id_) for id_ in target_ids]
        wished = targets_to_retry(
            PricingRunState(run.status), failed_letters(session, run_id), chosen, force=force
        )
        run.wish, run.wished_by, run.cancel_requested_at = RunAction.RETRY, actor, None
        run.updated_at = now
        mark_for_retry(session, run_id, [int(id_) for id_ in wished])
        file_run_request(session, run_id, now)
        return get_run(session, run_id)


def _refuse_busy(session: Session, run: RuleRunRow) -> None:
    if run.promotion_ended_at is not None:
        raise ConflictError(
            f"The promotion of run {run.id} is over: what is applied now would stay for good."
        )
    if run.wish is not None:
        raise ConflictError(f"Run {run.id} waits to be worked on already: {run.wish}.")
    other = active_run_of(session, run.rule_id)
    if other is not None and run.status in {PricingRunState.PARTIAL, PricingRunState.FAILED}:
        raise ConflictError(
            f"Run {other} of the same rule is at work: wait for its end, or cancel it."
        )


def roll_back_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    actor: str,
    target_ids: Sequence[int] | None = None,
    force: bool = False,
) -> RuleRun:
    """What was edited in the shop since stays as it is, unless forced. ConflictError: the run is at
    work, waits for something else, or has nothing applied. InvalidInputError names chosen targets
    that are not applied."""
    with database.transaction() as session:
        run, now = locked_run(session, run_id), clock.now()
        if run.wish is not None:
            raise ConflictError(f"Run {run_id} waits to be worked on already: {run.wish}.")
        chosen = None if target_ids is None else [str(id_) for id_ in target_ids]
        wished = targets_to_roll_back(
            PricingRunState(run.status), rollback_candidates(session, run_id), chosen
        )
        if not wished:
            raise ConflictError(f"Run {run_id} has no applied price that could be taken back.")
        run.wish, run.wished_by, run.updated_at = RunAction.ROLLBACK, actor, now
        run.rollbacks += 1
        run.rollback_force = force
        mark_for_rollback(session, [int(id_) for id_ in wished])
        file_run_request(session, run_id, now)
        return get_run(session, run_id)


REST_SECONDS = 300.0


def postpone_failed_run(run_id: int, reason: str, *, database: Database) -> bool:
    """Whether it was. The reason is shown with the run; the sweep asks for another worker when the
    rest is over."""
    with database.transaction() as session:
        return postpone_run(session, run_id, REST_SECONDS, reason)


def sweep_rule_runs(*, database: Database, clock: Clock) -> Sequence[int]:
    """The runs. Beside another copy of itself a run may be asked for twice: its second worker finds
    the first."""
    with database.transaction() as session:
        free_variants(session)
        runs = runs_without_worker(session)
        file_run_requests(session, runs, clock.now())
        return runs


_ACTOR = "schedule"


def start_due_rules(*, database: Database, clock: Clock, shop: str) -> DuePriceRules:
    """Safe beside another copy of itself and beside runs asked for by hand. A rule that has a run
    already starts once that is over; so does the end of a promotion whose run is still being
    applied."""
    now = clock.now()
    with database.transaction() as session:
        rules = lock_planned_rules(session, now)
        whose = {
            what: [rule for rule in rules if due_action(rule.plan, now) is what]
            for what in DueAction
        }
        # Asked after the rules are held, so that a run filed for one of them before is seen.
        is_busy = open_runs_of(session, [rule.id for rule in whose[DueAction.START]])
        free = [rule for rule in whose[DueAction.START] if rule.id not in is_busy]
        started = _start_rules(session, free, shop, now)
        ended = _end_promotions(session, whose[DueAction.END], now)
        enqueue(session, list(_missed_events(whose[DueAction.MISSED], now)))
        clear_schedules(session, [rule.id for rule in [*free, *whose[DueAction.MISSED]]], now)
    return DuePriceRules(
        started=tuple(started.values()),
        missed=tuple(rule.id for rule in whose[DueAction.MISSED]),
        ended=tuple(ended),
        put_off=tuple(sorted(is_busy)),
        before=tuple(rule.id for rule in free if rule.id not in started),
    )


def _start_rules(
    session: Session, rules: list[PlannedRule], shop: str, now: datetime
) -> dict[int, int]:
    """The runs by rule."""
    runs = [
        NewRun(
            rule=rule,
            shop=shop,
            trigger=RuleTrigger.SCHEDULE,
            actor=_ACTOR,
            wish=RunAction.APPLY,
            scheduled_for=rule.plan.schedule_at,
        )
        for rule in rules
    ]
    started = add_runs(session, runs, now)
    file_run_requests(session, list(started.values()), now)
    enqueue(
        session,
        [
            events.run_scheduled(
                rule.id, rule.project_id, started[rule.id], rule.plan.schedule_at, now
            )
            for rule in rules
            if rule.id in started and rule.plan.schedule_at
        ],
    )
    return started


def _end_promotions(session: Session, rules: list[PlannedRule], now: datetime) -> list[int]:
    """The runs that are to be rolled back."""
    by_id = {rule.id: rule for rule in rules}
    close_repairs(session, list(by_id), now)
    runs = lock_live_runs(session, list(by_id))
    run_ids = [run_id for run_id, _ in runs]
    request_rollbacks(session, run_ids, _ACTOR, now)
    file_run_requests(session, run_ids, now)
    ends = [(run_id, by_id[rule_id]) for run_id, rule_id in runs]
    enqueue(
        session,
        [
            events.promotion_ended(rule.id, rule.project_id, run_id, rule.plan.ends_at, now)
            for run_id, rule in ends
            if rule.plan.ends_at
        ],
    )
    return run_ids


def _missed_events(rules: Iterable[PlannedRule], now: datetime) -> Iterable[Event]:
    return (
        events.schedule_missed(rule.id, rule.project_id, rule.plan.schedule_at, now)
        for rule in rules
        if rule.plan.schedule_at
    )
