"""Plan a run: read the catalogue, evaluate the rule, keep targets and skipped variants."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from tempfile import SpooledTemporaryFile
from types import TracebackType

from sqlalchemy import insert, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import Policy, PricingRule, RuleInput
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    FIRST_TARGET_STATE,
    OPEN_TARGET_STATES,
    PricingRunState,
    RuleRun,
    RuleTrigger,
)
from automation_pipeline.pricing.models.shop import Variant, price_document
from automation_pipeline.pricing.models.transforms import PriceOutcome
from automation_pipeline.pricing.ports import Storefront
from automation_pipeline.pricing.queries.rules import get_rule, policy_of, rule_at
from automation_pipeline.pricing.queries.runs import add_run, get_run, locked_run
from automation_pipeline.pricing.queries.targets import changes_since
from automation_pipeline.pricing.rules.evaluation import (
    ExcludedVariant,
    PlannedTarget,
    PlanTally,
    VariantTest,
    check_document,
    compile_selector,
    explain_plan,
    plan_target,
    price,
    used_budget,
)
from automation_pipeline.pricing.rules.runs import start_of_day
from automation_pipeline.pricing.shop_calls import read_catalogue
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow, SkippedVariantRow
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.types import Table


def target_columns(target: PlannedTarget) -> dict[str, object]:
    outcome = target.outcome
    return _of_variant(target.variant) | {
        "currency": target.before.currency,
        "before_json": price_document(target.before),
        "after_json": price_document(target.after),
        "writes_compare_at": outcome.writes_compare_at,
        "trace_json": None if outcome.trace is None else as_document(outcome.trace),
        "warnings": [warning.words for warning in outcome.warnings],
        "status": FIRST_TARGET_STATE.value,
    }


def skipped_columns(left: ExcludedVariant) -> dict[str, object]:
    return _of_variant(left.variant) | {
        "reason": str(left.reason),
        "checks": [check_document(check) for check in left.checks] or None,
        "current_amount": left.variant.amount,
        "proposed_amount": None if left.proposed is None else left.proposed.unit_amount,
        "currency": left.variant.currency,
    }


def _of_variant(variant: Variant) -> dict[str, object]:
    return {
        "product_id": variant.product_id,
        "variant_id": variant.variant_id,
        "sku_id": variant.sku,
        "title": _title(variant),
    }


def _title(variant: Variant) -> str | None:
    """As a person knows it: the product, and which of its variants."""
    return " · ".join(part for part in (variant.title, variant.variant_title) if part) or None


_IN_MEMORY_BYTES = 4 * 1024 * 1024

Columns = Mapping[str, object]


class Draft(AbstractContextManager["Draft"]):
    """A catalogue that changes while it is read may tell of a variant twice: the first time
    counts."""

    def __init__(self) -> None:
        self.tally = PlanTally()
        self._file = SpooledTemporaryFile[bytes](max_size=_IN_MEMORY_BYTES, mode="w+b")
        self._seen: set[str] = set()
        self._targets: dict[str, list[int]] = {}
        self._skipped: list[int] = []

    def new(self, variants: Iterable[Variant]) -> list[Variant]:
        """Those that were not told of before."""
        fresh = list(
            {one.variant_id: one for one in variants if one.variant_id not in self._seen}.values()
        )
        self._seen.update(one.variant_id for one in fresh)
        self.tally.catalogue += len(fresh)
        return fresh

    def add(self, plans: Iterable[PlannedTarget | ExcludedVariant]) -> None:
        for plan in plans:
            self.tally.count(plan)
            if isinstance(plan, PlannedTarget):
                places = self._targets.setdefault(plan.variant.product_id, [])
                places.append(self._written(target_columns(plan)))
            elif plan.is_listed:
                self._skipped.append(self._written(skipped_columns(plan)))

    def targets(self) -> Iterator[Columns]:
        """The variants of a product one after the other."""
        return self._read(chain.from_iterable(self._targets.values()))

    def skipped(self) -> Iterator[Columns]:
        return self._read(self._skipped)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def _written(self, columns: Columns) -> int:
        place = self._file.tell()
        self._file.write(json.dumps(columns).encode() + b"\n")
        return place

    def _read(self, places: Iterable[int]) -> Iterator[Columns]:
        for place in places:
            self._file.seek(place)
            yield json.loads(self._file.readline())


_AT_ONCE = 1000
# After a catalogue that could not be read.
PLAN_AGAIN_SECONDS = 300.0


def is_to_plan(run: RuleRunRow) -> bool:
    """Not once it is planned, and not after somebody has cancelled it."""
    return (
        run.status == PricingRunState.PREVIEW
        and run.previewed_at is None
        and run.cancel_requested_at is None
    )


def save_plan(
    session: Session, run: RuleRunRow, rule: RuleInput, draft: Draft, now: datetime
) -> None:
    """Of a run that is locked and is to be planned."""
    of_run = {"rule_run_id": run.id}
    whose = {"tenant_id": run.tenant_id, "project_id": run.project_id, "shop": run.shop}
    _insert(session, RuleTargetRow, ({**of_run, **whose, **columns} for columns in draft.targets()))
    _insert(session, SkippedVariantRow, ({**of_run, **columns} for columns in draft.skipped()))
    tally = draft.tally
    run.matched, run.total_targets = tally.matched, tally.targets
    run.skipped, run.blocked = tally.skipped, tally.blocked
    run.explain_json = {
        **(run.explain_json or {}),
        **explain_plan(rule, tally, _conflicts(session, run)),
    }
    run.previewed_at = run.updated_at = now
    run.error_message = None
    session.flush()


def _conflicts(session: Session, run: RuleRunRow) -> list[int]:
    """Other runs that wait to change, or are changing, some of its variants."""
    other, mine = aliased(RuleTargetRow), aliased(RuleTargetRow)
    is_shared = (
        select(other.id)
        .join(mine, mine.variant_id == other.variant_id)
        .where(mine.rule_run_id == run.id, other.rule_run_id == RuleRunRow.id)
        .where(other.status.in_(sorted(OPEN_TARGET_STATES)))
        .exists()
    )
    query = select(RuleRunRow.id).where(
        RuleRunRow.shop == run.shop,
        RuleRunRow.status.in_(sorted(ACTIVE_RUN_STATES)),
        RuleRunRow.id != run.id,
        is_shared,
    )
    return list(session.scalars(query.order_by(RuleRunRow.id)))


def _insert(session: Session, table: type[Table], rows: Iterator[Mapping[str, object]]) -> None:
    for some in iter(lambda: [dict(row) for row in islice(rows, _AT_ONCE)], []):
        session.connection().execute(insert(table), some)


async def draft_plan(
    draft: Draft,
    rule: RuleInput,
    project_id: str,
    *,
    front: Storefront,
    database: Database,
    clock: Clock,
) -> None:
    """All of it, or an error. Nothing is written, and no transaction is open while the shop is
    asked."""
    policy = await asyncio.to_thread(_policy_of_project, project_id, database)
    since = start_of_day(clock.now(), front.options.time_zone)
    terms = _PlanTerms(rule, compile_selector(rule.selector), policy, front.name, since)
    async with aclosing(read_catalogue(front=front, database=database)) as pages:
        async for page in pages:
            await asyncio.to_thread(_add_page, draft, page.variants, terms, database)


@dataclass(frozen=True)
class _PlanTerms:
    rule: RuleInput
    picked: VariantTest
    policy: Policy | None
    shop: str
    day_began: datetime


def _policy_of_project(project_id: str, database: Database) -> Policy | None:
    with database.reading() as session:
        return policy_of(session, project_id)


def _add_page(
    draft: Draft, variants: Sequence[Variant], terms: _PlanTerms, database: Database
) -> None:
    outcomes = [
        price(terms.rule, variant) for variant in draft.new(variants) if terms.picked(variant)
    ]
    changes = _changes_today(outcomes, terms, database)
    draft.add(
        plan_target(one, terms.policy, used_budget(changes.get(one.variant.variant_id, ())))
        for one in outcomes
    )


def _changes_today(
    outcomes: Sequence[PriceOutcome], terms: _PlanTerms, database: Database
) -> dict[str, list[tuple[int, int]]]:
    """Asked only where there is a budget for them."""
    priced = [one.variant.variant_id for one in outcomes if one.after is not None]
    if terms.policy is None or terms.policy.daily_change_budget_pct is None or not priced:
        return {}
    with database.reading() as session:
        return dict(changes_since(session, terms.shop, priced, terms.day_began))


async def plan_run(run_id: int, *, front: Storefront, database: Database, clock: Clock) -> RuleRun:
    """Plan the run unless it is planned or cancelled already. Of two concurrent calls the first that
    ends wins. When the catalogue cannot be read, the run keeps the reason and the shop's error
    propagates."""
    asked = await asyncio.to_thread(_rule_to_plan, run_id, front.name, database)
    if asked is not None:
        rule, project_id = asked
        with Draft() as draft:
            try:
                await draft_plan(
                    draft, rule, project_id, front=front, database=database, clock=clock
                )
            except (TransientError, PermanentError) as error:
                await asyncio.to_thread(_record_planning_failure, run_id, error, database)
                raise
            await asyncio.to_thread(_save_run_plan, run_id, rule, draft, database, clock)
    return await asyncio.to_thread(_run, run_id, database)


def _rule_to_plan(run_id: int, shop: str, database: Database) -> tuple[RuleInput, str] | None:
    """The rule and its project; None: there is nothing to plan."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        if not is_to_plan(run):
            return None
        if run.shop != shop:
            raise ConflictError(
                f"Rule run {run_id} is for {run.shop}, and the shop is now {shop}: preview it again."
            )
        return rule_at(session, run.rule_id, run.rule_version), run.project_id


def _record_planning_failure(run_id: int, error: AutomationError, database: Database) -> None:
    """A run that a worker is to apply is planned again when its `resume_at` has passed."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        if not is_to_plan(run):
            return
        run.error_message = sentence_of(error)
        if run.wish is not None:
            told = error.retry_after_seconds if isinstance(error, TransientError) else None
            pause = timedelta(seconds=max(PLAN_AGAIN_SECONDS, told or 0.0))
            run.resume_at = database_time(session) + pause


def _save_run_plan(
    run_id: int, rule: RuleInput, draft: Draft, database: Database, clock: Clock
) -> None:
    with database.transaction() as session:
        run = locked_run(session, run_id)
        if is_to_plan(run):
            save_plan(session, run, rule, draft, clock.now())


def _run(run_id: int, database: Database) -> RuleRun:
    with database.reading() as session:
        return get_run(session, run_id)


async def preview_rule(
    rule_id: int,
    *,
    front: Storefront,
    database: Database,
    clock: Clock,
    actor: str,
    trigger: RuleTrigger,
) -> RuleRun:
    """Of a disabled rule too; NotFoundError for one that is deleted. Where the shop fails there is
    no run."""
    rule = await asyncio.to_thread(_rule, rule_id, database)
    with Draft() as draft:
        await draft_plan(
            draft, rule.as_input, rule.project_id, front=front, database=database, clock=clock
        )
        return await asyncio.to_thread(
            _save_preview, draft, _Preview(rule, front.name, actor, trigger), database, clock
        )


@dataclass(frozen=True)
class _Preview:
    rule: PricingRule
    shop: str
    actor: str
    trigger: RuleTrigger


def _rule(rule_id: int, database: Database) -> PricingRule:
    with database.reading() as session:
        return get_rule(session, rule_id)


def _save_preview(draft: Draft, its: _Preview, database: Database, clock: Clock) -> RuleRun:
    """A rule that was changed meanwhile is another version: the run is of the one that was looked
    at."""
    with database.transaction() as session:
        now = clock.now()
        run_id = add_run(
            session, its.rule, shop=its.shop, trigger=its.trigger, actor=its.actor, now=now
        )
        save_plan(session, locked_run(session, run_id), its.rule.as_input, draft, now)
        return get_run(session, run_id)
