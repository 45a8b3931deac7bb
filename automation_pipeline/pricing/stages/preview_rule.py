"""Preview a rule: a run of it that is planned and waits for somebody to apply it."""

import asyncio
from dataclasses import dataclass

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.domain.pricing_rule import PricingRule
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTrigger
from automation_pipeline.pricing.ports import Storefront
from automation_pipeline.pricing.stages.draft_plan import draft_plan
from automation_pipeline.pricing.store.drafts import Draft
from automation_pipeline.pricing.store.holds import locked_run
from automation_pipeline.pricing.store.new_runs import add_run
from automation_pipeline.pricing.store.plans import keep_plan
from automation_pipeline.pricing.store.rules import get_rule
from automation_pipeline.pricing.store.run_views import get_run
from automation_pipeline.storage.database import Database


async def preview_rule(
    rule_id: int, *, front: Storefront, database: Database, clock: Clock, actor: str, trigger: RuleTrigger
) -> RuleRun:
    """Of a disabled rule too; NotFoundError for one that is deleted. Where the shop fails there is no run."""
    rule = await asyncio.to_thread(_rule, rule_id, database)
    with Draft() as draft:
        await draft_plan(draft, rule.as_input, rule.project_id, front=front, database=database, clock=clock)
        return await asyncio.to_thread(_keep, draft, _Previewed(rule, front.name, actor, trigger), database, clock)


@dataclass(frozen=True)
class _Previewed:
    rule: PricingRule
    shop: str
    actor: str
    trigger: RuleTrigger


def _rule(rule_id: int, database: Database) -> PricingRule:
    with database.reading() as session:
        return get_rule(session, rule_id)


def _keep(draft: Draft, its: _Previewed, database: Database, clock: Clock) -> RuleRun:
    """A rule that was changed meanwhile is another version: the run is of the one that was looked at."""
    with database.transaction() as session:
        now = clock.now()
        run_id = add_run(session, its.rule, shop=its.shop, trigger=its.trigger, actor=its.actor, now=now)
        keep_plan(session, locked_run(session, run_id), its.rule.as_input, draft, now)
        return get_run(session, run_id)
