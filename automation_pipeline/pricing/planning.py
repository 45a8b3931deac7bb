"""Plan a run: read the catalogue, evaluate the rule, store targets and skipped variants."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import chain, islice
from tempfile import SpooledTemporaryFile

from sqlalchemy import insert, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.core.errors import (
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
from automation_pipeline.pricing.models.shop import PricingContext, Variant
from automation_pipeline.pricing.pricing_rules import get_rule, policy_of, rule_at
from automation_pipeline.pricing.queries.runs import NewRun, add_run, get_run, locked_run
from automation_pipeline.pricing.rules.evaluation import (
    ExcludedVariant,
    PlannedTarget,
    PlanTally,
    check_document,
    compile_selector,
    explain_plan,
    plan_target,
    price,
)
from automation_pipeline.pricing.shop import read_catalogue, used_budgets
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow, SkippedVariantRow
from automation_pipeline.storage.statements import database_time
from automation_pipeline.storage.types import Table


def _target_columns(target: PlannedTarget) -> dict[str, object]:
    outcome = target.outcome
    return _variant_columns(target.variant) | {
        "currency": target.before.currency,
        "before_json": vars(target.before),
        "after_json": vars(target.after),
        "writes_compare_at": outcome.writes_compare_at,
        "trace_json": None if outcome.trace is None else as_document(outcome.trace),
        "warnings": [warning.sentence for warning in outcome.warnings],
        "status": FIRST_TARGET_STATE.value,
    }


def _skipped_columns(skipped: ExcludedVariant) -> dict[str, object]:
    return _variant_columns(skipped.variant) | {
        "reason": str(skipped.reason),
        "checks": [check_document(check) for check in skipped.checks] or None,
        "current_amount": skipped.variant.amount,
        "proposed_amount": None if skipped.proposed is None else skipped.proposed.unit_amount,
        "currency": skipped.variant.currency,
    }


def _variant_columns(variant: Variant) -> dict[str, object]:
    return {
        "product_id": variant.product_id,
        "variant_id": variant.variant_id,
        "sku_id": variant.sku,
        "title": " · ".join(filter(None, (variant.title, variant.variant_title))) or None,
    }


_IN_MEMORY_BYTES = 4 * 1024 * 1024

Columns = Mapping[str, object]


class Draft(AbstractContextManager["Draft"]):
    """Holds a plan in a temporary file while the catalogue is read. The catalogue may change during
    that time, so that a variant occurs twice: only the first occurrence counts."""

    def __init__(self) -> None:
        self.tally = PlanTally()
        self._file = SpooledTemporaryFile[bytes](max_size=_IN_MEMORY_BYTES, mode="w+b")
        self._seen: set[str] = set()
        self._targets: dict[str, list[int]] = {}
        self._skipped: list[int] = []

    def new(self, variants: Iterable[Variant]) -> list[Variant]:
        """Return the variants that were not on an earlier page."""
        new = {one.variant_id: one for one in variants if one.variant_id not in self._seen}
        self._seen.update(new)
        self.tally.catalogue += len(new)
        return list(new.values())

    def add(self, plans: Iterable[PlannedTarget | ExcludedVariant]) -> None:
        for plan in plans:
            self.tally.count(plan)
            if isinstance(plan, PlannedTarget):
                self._targets.setdefault(plan.variant.product_id, []).append(
                    self._write(_target_columns(plan))
                )
            elif plan.is_listed:
                self._skipped.append(self._write(_skipped_columns(plan)))

    def targets(self) -> Iterator[Columns]:
        return self._read(chain.from_iterable(self._targets.values()))

    def skipped(self) -> Iterator[Columns]:
        return self._read(self._skipped)

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def _write(self, columns: Columns) -> int:
        offset = self._file.tell()
        self._file.write(json.dumps(columns).encode() + b"\n")
        return offset

    def _read(self, offsets: Iterable[int]) -> Iterator[Columns]:
        for offset in offsets:
            self._file.seek(offset)
            yield json.loads(self._file.readline())


_ROWS_AT_ONCE = 1000
# After the catalogue could not be read, the run is planned again no earlier than this.
PLAN_AGAIN_SECONDS = 300.0


def _is_to_plan(run: RuleRunRow) -> bool:
    is_new = run.status == PricingRunState.PREVIEW and run.previewed_at is None
    return is_new and run.cancel_requested_at is None


def _save_plan(
    session: Session, run: RuleRunRow, rule: RuleInput, draft: Draft, now: datetime
) -> None:
    of_run = {"rule_run_id": run.id}
    of_shop = {"tenant_id": run.tenant_id, "project_id": run.project_id, "shop": run.shop}
    _insert(
        session, RuleTargetRow, ({**of_run, **of_shop, **columns} for columns in draft.targets())
    )
    _insert(session, SkippedVariantRow, ({**of_run, **columns} for columns in draft.skipped()))
    tally = draft.tally
    run.matched, run.total_targets = tally.matched, tally.targets
    run.skipped, run.blocked = tally.skipped, tally.blocked
    explain = explain_plan(rule, tally, _conflicts(session, run))
    run.explain_json = {**(run.explain_json or {}), **explain}
    run.previewed_at = run.updated_at = now
    run.error_message = None
    session.flush()


def _conflicts(session: Session, run: RuleRunRow) -> list[int]:
    """Return the active runs that will still write a variant of this run."""
    other, own = aliased(RuleTargetRow), aliased(RuleTargetRow)
    is_shared = (
        select(other.id)
        .join(own, own.variant_id == other.variant_id)
        .where(own.rule_run_id == run.id, other.rule_run_id == RuleRunRow.id)
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


def _insert(session: Session, table: type[Table], rows: Iterator[Columns]) -> None:
    for batch in iter(lambda: [dict(row) for row in islice(rows, _ROWS_AT_ONCE)], []):
        session.connection().execute(insert(table), batch)


async def _read_draft(
    draft: Draft, rule: RuleInput, project_id: str, context: PricingContext
) -> None:
    """Add every page of the catalogue to the plan. No transaction is open while the shop is called."""
    is_selected, now = compile_selector(rule.selector), context.clock.now()

    def read_policy() -> Policy | None:
        with context.database.reading() as session:
            return policy_of(session, project_id)

    def add(variants: Sequence[Variant]) -> None:
        outcomes = [price(rule, variant) for variant in draft.new(variants) if is_selected(variant)]
        priced = [one.variant.variant_id for one in outcomes if one.after is not None]
        used = used_budgets(policy, priced, context, now)
        draft.add(
            plan_target(one, policy, used.get(one.variant.variant_id, Decimal(0)))
            for one in outcomes
        )

    policy = await asyncio.to_thread(read_policy)
    async with aclosing(read_catalogue(context)) as pages:
        async for page in pages:
            await asyncio.to_thread(add, page.variants)


async def plan_run(run_id: int, context: PricingContext) -> RuleRun:
    """Plan the run unless it is already planned or cancelled. Of two concurrent calls, the plan of
    the first to finish is stored. If the catalogue cannot be read, the run stores the reason and
    the shop's error is raised."""
    requested = await asyncio.to_thread(_rule_to_plan, run_id, context)
    if requested is not None:
        rule, project_id = requested

        def save(draft: Draft) -> None:
            with context.database.transaction() as session:
                run = locked_run(session, run_id)
                if _is_to_plan(run):
                    _save_plan(session, run, rule, draft, context.clock.now())

        with Draft() as draft:
            try:
                await _read_draft(draft, rule, project_id, context)
            except (TransientError, PermanentError) as error:
                await asyncio.to_thread(_record_planning_failure, run_id, error, context)
                raise
            await asyncio.to_thread(save, draft)
    with context.database.reading() as session:
        return get_run(session, run_id)


def _rule_to_plan(run_id: int, context: PricingContext) -> tuple[RuleInput, str] | None:
    """Return the rule and its project, or None if there is nothing to plan."""
    name = context.storefront.name
    with context.database.transaction() as session:
        run = locked_run(session, run_id)
        if not _is_to_plan(run):
            return None
        if run.shop != name:
            raise ConflictError(
                f"Rule run {run_id} is for {run.shop}, and the shop is now {name}: preview it again."
            )
        return rule_at(session, run.rule_id, run.rule_version), run.project_id


def _record_planning_failure(
    run_id: int, error: TransientError | PermanentError, context: PricingContext
) -> None:
    """Store why planning failed. A requested run is planned again after its `resume_at`."""
    with context.database.transaction() as session:
        run = locked_run(session, run_id)
        if not _is_to_plan(run):
            return
        run.error_message = sentence_of(error)
        if run.wish is not None:
            retry_after = error.retry_after_seconds if isinstance(error, TransientError) else None
            run.resume_at = database_time(session) + timedelta(
                seconds=max(PLAN_AGAIN_SECONDS, retry_after or 0.0)
            )


async def preview_rule(
    rule_id: int, context: PricingContext, *, actor: str, trigger: RuleTrigger
) -> RuleRun:
    """Plan a new run, even of a disabled rule. If the catalogue cannot be read, no run is created. A
    concurrent change of the rule does not affect the preview."""

    def read_rule() -> PricingRule:
        with context.database.reading() as session:
            return get_rule(session, rule_id)

    def save(rule: PricingRule, draft: Draft) -> RuleRun:
        shop = context.storefront.name
        with context.database.transaction() as session:
            now = context.clock.now()
            run_id = add_run(
                session, NewRun(rule=rule, shop=shop, trigger=trigger, actor=actor), now
            )
            _save_plan(session, locked_run(session, run_id), rule.as_input, draft, now)
            return get_run(session, run_id)

    rule = await asyncio.to_thread(read_rule)
    with Draft() as draft:
        await _read_draft(draft, rule.as_input, rule.project_id, context)
        return await asyncio.to_thread(save, rule, draft)
