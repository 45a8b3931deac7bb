"""Plan a run: what the version of its rule would change in the shop now, one target a variant."""

import asyncio

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain.rule import RuleInput
from automation_pipeline.pricing.domain.rule_run import RuleRun
from automation_pipeline.pricing.ports import Storefront
from automation_pipeline.pricing.stages.draft_plan import draft_plan
from automation_pipeline.pricing.store.drafts import Draft
from automation_pipeline.pricing.store.holds import locked_run
from automation_pipeline.pricing.store.plans import is_to_plan, keep_plan
from automation_pipeline.pricing.store.rules import rule_at
from automation_pipeline.pricing.store.run_views import get_run
from automation_pipeline.storage.database import Database


async def plan_run(run_id: int, *, front: Storefront, database: Database, clock: Clock) -> RuleRun:
    """A run that is planned stays as it is, and so does one that was cancelled before. Of two who plan it at once the
    first to be done is the one; TransientError and PermanentError are the shop's, and leave nothing behind."""
    asked = await asyncio.to_thread(_asked, run_id, front.name, database)
    if asked is not None:
        rule, project_id = asked
        with Draft() as draft:
            await draft_plan(draft, rule, project_id, front=front, database=database, clock=clock)
            await asyncio.to_thread(_keep, run_id, rule, draft, database, clock)
    return await asyncio.to_thread(_standing, run_id, database)


def _asked(run_id: int, shop: str, database: Database) -> tuple[RuleInput, str] | None:
    """The rule and its project; None: there is nothing to plan."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        if not is_to_plan(run):
            return None
        if run.shop != shop:
            raise ConflictError(f"Rule run {run_id} is for {run.shop}, and the shop is now {shop}: preview it again.")
        return rule_at(session, run.rule_id, run.rule_version), run.project_id


def _keep(run_id: int, rule: RuleInput, draft: Draft, database: Database, clock: Clock) -> None:
    with database.transaction() as session:
        run = locked_run(session, run_id)
        if is_to_plan(run):
            keep_plan(session, run, rule, draft, clock.now())


def _standing(run_id: int, database: Database) -> RuleRun:
    with database.reading() as session:
        return get_run(session, run_id)
