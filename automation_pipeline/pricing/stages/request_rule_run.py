"""Ask for a run of a rule: a worker plans it and applies what it has planned, as far as that is allowed."""

from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.instants import iso
from automation_pipeline.pricing.domain.preview import rests_until
from automation_pipeline.pricing.domain.pricing_rule import PricingRule
from automation_pipeline.pricing.domain.rule_run import RuleTrigger, Wish
from automation_pipeline.pricing.domain.states import ACTIVE_RUN_STATES
from automation_pipeline.pricing.store.new_runs import add_run, file_run_request
from automation_pipeline.pricing.store.rule_activity import last_applied_at, open_run_of
from automation_pipeline.pricing.store.rules import hold_rule
from automation_pipeline.storage.database import Database, Session


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
    """The run. ConflictError: the rule is disabled, has a run already, or rests; with `force` its rest is cut short."""
    with database.transaction() as session:
        rule, now = hold_rule(session, rule_id), clock.now()
        _refuse_unready(session, rule, None if force else now)
        run_id = add_run(session, rule, shop=shop, trigger=trigger, actor=actor, now=now, wish=Wish.APPLY, force=force)
        file_run_request(session, run_id, now)
        return run_id


def _refuse_unready(session: Session, rule: PricingRule, rested_by: datetime | None) -> None:
    if not rule.enabled:
        raise ConflictError(f"Pricing rule {rule.id} is disabled: enable it first.")
    open_run = open_run_of(session, rule.id)
    if open_run is not None:
        how = f"is {open_run.status}" if open_run.status in ACTIVE_RUN_STATES else "waits to be applied"
        raise ConflictError(f"Run {open_run.id} of pricing rule {rule.id} {how}: wait for its end, or cancel it.")
    if rested_by is None:
        return
    until = rests_until(last_applied_at(session, rule.id), rule.cooldown_minutes, rested_by)
    if until is not None:
        raise ConflictError(
            f"Pricing rule {rule.id} rests until {iso(until)} after its last run: wait, or ask for the run with force."
        )
