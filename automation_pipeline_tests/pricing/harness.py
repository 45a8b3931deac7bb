"""Test harness for pricing: creates rules and runs, works on runs with a fake shop, reads the results."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from sqlalchemy import select, update

from automation_pipeline.core.events import Event
from automation_pipeline.core.metrics import Meter
from automation_pipeline.pricing import worker
from automation_pipeline.pricing.models.rules import PricingRule
from automation_pipeline.pricing.models.runs import RuleRun, RuleTrigger, RunAction
from automation_pipeline.pricing.models.shop import PricingContext, Storefront
from automation_pipeline.pricing.planning import plan_run, preview_rule
from automation_pipeline.pricing.pricing_rules import create_rule, put_policy
from automation_pipeline.pricing.queries.runs import NewRun, add_run, get_run
from automation_pipeline.pricing.runs import approve_run, queue_run, request_rule_run
from automation_pipeline.pricing.tables import (
    PriceChangeRow,
    RuleCheckRow,
    RuleRunRow,
    RuleTargetRow,
    ShopRow,
    SkippedVariantRow,
)
from automation_pipeline.pricing.worker import work_run
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.outbox import OutboxRow, event_in
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import FakeShop, storefront
from automation_pipeline_tests.waiting import run_with_fake_time as run_loop
from automation_pipeline_tests.waiting import wait_until_async

Result = TypeVar("Result")

CREATOR, APPROVER = "user:1", "user:2"
UNLIMITED = 1e9
_TENTH_OFF: dict[str, object] = {
    "name": "A tenth off",
    "selector": {"all": True},
    "transform": {"op": "percent", "value": -10},
    "currency": "EUR",
}


@dataclass
class PricingHarness:
    """`shop_options` are options of the storefront. The bucket is so large that no call waits for points."""

    database: Database
    clock: FakeClock
    shop: FakeShop = field(default_factory=FakeShop)
    shop_options: dict[str, Any] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)

    def __post_init__(self) -> None:
        bucket = {"available": UNLIMITED, "maximum": UNLIMITED, "restore_rate": UNLIMITED}
        with self.database.transaction() as session:
            if session.get(ShopRow, self.storefront.name) is None:
                session.add(
                    ShopRow(
                        shop=self.storefront.name,
                        measured_at=self.clock.now(),
                        refusals=[],
                        **bucket,
                    )
                )

    @property
    def storefront(self) -> Storefront:
        return storefront(self.shop, meter=self.meter, **self.shop_options)

    @property
    def context(self) -> PricingContext:
        return PricingContext(self.storefront, self.database, self.clock)

    @staticmethod
    def run_async(work: Coroutine[object, object, Result]) -> Result:
        return run_loop(work)

    def rule(self, *, project_id: str = "default", **fields: object) -> PricingRule:
        """Create a rule, by default 10 % off everything in EUR. `fields` override fields of its document."""
        given = _TENTH_OFF | fields
        return create_rule(
            given, project_id=project_id, database=self.database, clock=self.clock, actor=CREATOR
        )

    def set_policy(self, project_id: str = "default", **policy: object) -> None:
        put_policy(project_id, policy, database=self.database, clock=self.clock, actor=CREATOR)

    def request_run(
        self,
        rule: PricingRule,
        *,
        trigger: RuleTrigger = RuleTrigger.LAUNCHPAD,
        force: bool = False,
    ) -> int:
        """Request a run, which a worker plans and queues; return its id."""
        return request_rule_run(
            rule.id,
            database=self.database,
            clock=self.clock,
            shop=self.storefront.name,
            actor=CREATOR,
            trigger=trigger,
            force=force,
        )

    def plan(self, run_id: int) -> RuleRun:
        return self.run_async(plan_run(run_id, self.context))

    def previewed_run(self, rule: PricingRule | None = None, *, actor: str = CREATOR) -> RuleRun:
        rule = rule or self.rule()
        return self.run_async(
            preview_rule(rule.id, self.context, actor=actor, trigger=RuleTrigger.API)
        )

    def approve(self, run: RuleRun, *, actor: str = APPROVER) -> RuleRun:
        return approve_run(run.id, database=self.database, clock=self.clock, actor=actor)

    def queue(self, run: RuleRun, *, actor: str = CREATOR, force: bool = False) -> RuleRun:
        return queue_run(run.id, database=self.database, clock=self.clock, actor=actor, force=force)

    def queued_run(self, rule: PricingRule | None = None, *, force: bool = False) -> RuleRun:
        """Preview and queue a run."""
        return self.queue(self.previewed_run(rule), force=force)

    def work(self, run: RuleRun) -> RuleRun:
        """Work on the run like a Dagster worker."""
        return self.work_id(run.id)

    def work_id(self, run_id: int) -> RuleRun:
        return self.run_async(work_run(run_id, self.context, "harness"))

    def scheduled_run(self, rule: PricingRule) -> int:
        """Insert a run requested by its schedule; return its id."""
        with self.database.transaction() as session:
            now = self.clock.now()
            new = NewRun(
                rule=rule,
                shop=self.storefront.name,
                trigger=RuleTrigger.SCHEDULE,
                actor="schedule",
                wish=RunAction.APPLY,
                scheduled_for=now,
            )
            return add_run(session, new, now)

    def end_shop_pause(self) -> None:
        """End the pause that a retry-after or an open circuit caused."""
        with self.database.transaction() as session:
            session.execute(update(ShopRow).values(until=database_now(-1.0)))

    def run(self, run_id: int) -> RuleRun:
        with self.database.reading() as session:
            return get_run(session, run_id)

    def run_row(self, run_id: int) -> RuleRunRow:
        with self.database.reading() as session:
            return session.get_one(RuleRunRow, run_id)

    def set_run(self, run_id: int, **columns: Any) -> None:
        with self.database.transaction() as session:
            session.execute(update(RuleRunRow).where(RuleRunRow.id == run_id).values(**columns))

    def targets(self, run_id: int) -> list[RuleTargetRow]:
        return self._rows(
            select(RuleTargetRow)
            .where(RuleTargetRow.rule_run_id == run_id)
            .order_by(RuleTargetRow.id)
        )

    def statuses(self, run_id: int) -> dict[str, str]:
        """The status of each target, by variant."""
        return {target.variant_id or "": target.status for target in self.targets(run_id)}

    def skipped(self, run_id: int) -> list[SkippedVariantRow]:
        of_run = SkippedVariantRow.rule_run_id == run_id
        return self._rows(select(SkippedVariantRow).where(of_run).order_by(SkippedVariantRow.id))

    def changes(self, run_id: int) -> list[PriceChangeRow]:
        of_run = PriceChangeRow.rule_run_id == run_id
        return self._rows(select(PriceChangeRow).where(of_run).order_by(PriceChangeRow.id))

    def checks(self, run_id: int) -> list[RuleCheckRow]:
        return self._rows(
            select(RuleCheckRow).where(RuleCheckRow.rule_run_id == run_id).order_by(RuleCheckRow.id)
        )

    def transitions(self, machine: str, entity_id: int) -> list[tuple[str, str]]:
        of_entity = TransitionRow.machine == machine, TransitionRow.entity_id == str(entity_id)
        rows = self._rows(select(TransitionRow).where(*of_entity).order_by(TransitionRow.id))
        return [(row.from_state, row.to_state) for row in rows]

    def events(self, name: str | None = None) -> list[Event]:
        found = [event_in(row) for row in self._rows(select(OutboxRow).order_by(OutboxRow.id))]
        return [event for event in found if name in {None, event.name}]

    def requests(self) -> list[tuple[str, Mapping[str, object]]]:
        """Keys and configs of the Dagster run requests."""
        return [
            (row.request_key, row.config)
            for row in self._rows(select(RunRequestRow).order_by(RunRequestRow.id))
        ]

    def set_target(self, target_id: int, **columns: Any) -> None:
        with self.database.transaction() as session:
            session.execute(
                update(RuleTargetRow).where(RuleTargetRow.id == target_id).values(**columns)
            )

    def renew_claim(self, run_id: int) -> None:
        """Renew the claim of the last worker."""
        self.set_run(run_id, lease_until=database_now(60.0))

    def make_due(self, run_id: int) -> None:
        """Make the run and its waiting targets due now."""
        with self.database.transaction() as session:
            waiting = (
                RuleTargetRow.rule_run_id == run_id,
                RuleTargetRow.next_attempt_at.is_not(None),
            )
            session.execute(
                update(RuleTargetRow).where(*waiting).values(next_attempt_at=database_now(-1.0))
            )
            postponed = RuleRunRow.id == run_id, RuleRunRow.resume_at.is_not(None)
            session.execute(
                update(RuleRunRow).where(*postponed).values(resume_at=database_now(-1.0))
            )

    def expire_claim(self, run_id: int) -> None:
        """Expire the claim, as after missing heartbeats."""
        self.set_run(run_id, lease_until=database_now(-1.0))

    def pass_minutes(self, minutes: float) -> None:
        self.clock.advance(timedelta(minutes=minutes))

    def _rows(self, query: Any) -> Sequence[Any]:
        with self.database.reading() as session:
            return list(session.scalars(query))


def during_first_write(harness: PricingHarness, action: Callable[[], object]) -> None:
    """Call `action` once in a thread, during the first write, which waits for it."""
    pending = [action]

    async def during_call(kind: str, _subject: object) -> None:
        if kind == "write" and pending:
            await asyncio.to_thread(pending.pop())

    harness.shop._during_call = during_call


def stop_during_first_write(
    harness: PricingHarness, action: Callable[[], object], patch: pytest.MonkeyPatch
) -> None:
    """Call `action`, which stops the worker, once during the first write. The write continues after the
    worker has noticed the stop."""
    results: list[bool] = []
    keep = worker.TargetWork.keep

    def recorded_keep(applying: worker.TargetWork) -> bool:
        results.append(keep(applying))
        return results[-1]

    pending = [action]

    async def during_call(kind: str, _subject: object) -> None:
        if kind == "write" and pending:
            await asyncio.to_thread(pending.pop())
            # The second check happens after the worker has processed the first.
            await wait_until_async(lambda: results.count(False) > 1)

    patch.setattr(worker.TargetWork, "keep", recorded_keep)
    patch.setattr(worker, "POLL_SECONDS", 0.02)
    harness.shop._during_call = during_call


def run_with_failures(
    harness: PricingHarness, kinds: dict[str, str], *, hours: float = 0.0, **rule: object
) -> RuleRun:
    """Work on a run whose variants fail with these kinds of errors, `hours` ago."""
    run = harness.queued_run(harness.rule(**rule))
    for variant_id in kinds:
        harness.shop.refuse(variant_id)
    run = harness.work(run)
    at = harness.clock.now() - timedelta(hours=hours)
    for target in harness.targets(run.id):
        kind = kinds.get(str(target.variant_id))
        if kind is not None:
            retryable = kind in {"server", "network", "rate_limit", "cancelled"}
            harness.set_target(
                target.id, error_type=kind, error_retryable=retryable, last_attempt=at
            )
    return run


def failed_target_ids(harness: PricingHarness, run: RuleRun) -> list[int]:
    return [target.id for target in harness.targets(run.id) if target.status == "FAILED"]
