"""Draft what a rule would change: the whole catalogue, read and priced page by page, under the project's guardrails."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.domain.evaluation import price
from automation_pipeline.pricing.domain.outcome import Outcome
from automation_pipeline.pricing.domain.plan import planned
from automation_pipeline.pricing.domain.policy import Policy, used_today
from automation_pipeline.pricing.domain.rule import RuleInput
from automation_pipeline.pricing.domain.selecting import Pick, picks
from automation_pipeline.pricing.domain.variant import Variant
from automation_pipeline.pricing.domain.work import day_began
from automation_pipeline.pricing.ports import Storefront
from automation_pipeline.pricing.stages.read_catalogue import read_catalogue
from automation_pipeline.pricing.store.chunks import changes_since
from automation_pipeline.pricing.store.drafts import Draft
from automation_pipeline.pricing.store.policies import policy_of
from automation_pipeline.storage.database import Database


async def draft_plan(
    draft: Draft, rule: RuleInput, project_id: str, *, front: Storefront, database: Database, clock: Clock
) -> None:
    """All of it, or an error. Nothing is written, and no transaction is open while the shop is asked."""
    policy = await asyncio.to_thread(_policy, project_id, database)
    since = day_began(clock.now(), front.knobs.time_zone)
    terms = _Terms(rule, picks(rule.selector), policy, front.name, since)
    async with aclosing(read_catalogue(front=front, database=database)) as pages:
        async for page in pages:
            await asyncio.to_thread(_add, draft, page.variants, terms, database)


@dataclass(frozen=True)
class _Terms:
    rule: RuleInput
    picked: Pick
    policy: Policy | None
    shop: str
    day_began: datetime


def _policy(project_id: str, database: Database) -> Policy | None:
    with database.reading() as session:
        return policy_of(session, project_id)


def _add(draft: Draft, variants: Sequence[Variant], terms: _Terms, database: Database) -> None:
    outcomes = [price(terms.rule, variant) for variant in draft.new(variants) if terms.picked(variant)]
    changes = _changes_today(outcomes, terms, database)
    draft.add(planned(one, terms.policy, used_today(changes.get(one.variant.variant_id, ()))) for one in outcomes)


def _changes_today(outcomes: Sequence[Outcome], terms: _Terms, database: Database) -> dict[str, list[tuple[int, int]]]:
    """Asked only where there is a budget for them."""
    priced = [one.variant.variant_id for one in outcomes if one.after is not None]
    if terms.policy is None or terms.policy.daily_change_budget_pct is None or not priced:
        return {}
    with database.reading() as session:
        return dict(changes_since(session, terms.shop, priced, terms.day_began))
