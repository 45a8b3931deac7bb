"""Queue a preview: from here on its prices are applied, exactly as they were previewed."""

from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.instants import iso
from automation_pipeline.pricing.domain.preview import approval_fault, rests_until, stale
from automation_pipeline.pricing.domain.pricing_rule import PricingRule
from automation_pipeline.pricing.domain.promotion import PromotionOverError
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTrigger
from automation_pipeline.pricing.store.holds import locked_run
from automation_pipeline.pricing.store.new_runs import file_run_request
from automation_pipeline.pricing.store.policies import policy_of
from automation_pipeline.pricing.store.queueing import check_waits, move_to_queue, rule_of
from automation_pipeline.pricing.store.rule_activity import RuleBusyError, last_applied_at, what_comes_first
from automation_pipeline.pricing.store.rules import author_of, hold_rule
from automation_pipeline.pricing.store.run_views import get_run
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.database import Database, Session


def queue_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    actor: str,
    force: bool = False,
    asks_for_worker: bool = True,
) -> RuleRun:
    """ConflictError says what stands in the way, RuleBusyError that another run of the rule does; with `force`, or in a
    run that was asked for so, the rest of the rule does not. InvalidInputError: no price would change, which only a
    schedule may find."""
    with database.transaction() as session:
        rule = hold_rule(session, rule_of(session, run_id), deleted_too=True)
        run, now = locked_run(session, run_id), clock.now()
        _check_preview(run, rule, now)
        _check_rule(rule, run, now)
        _check_approval(session, run)
        if not force and not _is_forced(run) and run.trigger != RuleTrigger.REPAIR:
            _check_rest(session, rule, now)
        if run.total_targets == 0 and run.trigger != RuleTrigger.SCHEDULE:
            raise InvalidInputError(f"Rule run {run_id} has nothing to apply: no price would change.")
        _check_turn(session, rule)
        move_to_queue(session, run, actor, now)
        if asks_for_worker:
            file_run_request(session, run_id, now)
        return get_run(session, run_id)


def _check_preview(run: RuleRunRow, rule: PricingRule, now: datetime) -> None:
    previewed_at = check_waits(run)
    # A repair restores what was applied, whatever the rule says by now.
    its_hash = run.rule_version_hash if run.trigger == RuleTrigger.REPAIR else rule.version_hash
    fault = stale(run.rule_version_hash, its_hash, previewed_at, now)
    if fault is not None:
        raise ConflictError(fault.why)


def _check_rule(rule: PricingRule, run: RuleRunRow, now: datetime) -> None:
    if rule.deleted_at is not None:
        raise ConflictError(f"Pricing rule {rule.id} was deleted: its previews cannot be applied any more.")
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
    why = what_comes_first(session, rule.id)
    if why is not None:
        raise RuleBusyError(why)
