"""Stateful test of runs: the invariants hold after any sequence of operations, and every run ends."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.pricing import worker
from automation_pipeline.pricing.models.runs import ACTIVE_RUN_STATES
from automation_pipeline.pricing.models.shop import FailureSignal, Price, price_of
from automation_pipeline.pricing.pricing_rules import get_rule
from automation_pipeline.pricing.queries.runs import read_runs, select_runs
from automation_pipeline.pricing.rules.monitoring import broken_invariants
from automation_pipeline.pricing.rules.runs import TargetOutcome
from automation_pipeline.pricing.runs import (
    cancel_run,
    retry_run,
    roll_back_run,
    sweep_rule_runs,
)
from automation_pipeline.pricing.shop import pause_shop, resume_shop
from automation_pipeline.pricing.tables import RuleTargetRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import LOST, PRICES, FakeShop, product_variants
from automation_pipeline_tests.pricing.harness import PricingHarness

SHOP = "shop.test"
VARIANTS = ("101", "102", "201", "202")
FAULTS = [
    FailureSignal(status=500),
    FailureSignal(status=429),
    FailureSignal(status=404),
    FailureSignal(status=401),
    LOST,
]
# A failing call: its subject and signal. Without a signal, the write takes effect and its answer is lost.
FAILURES = st.one_of(
    st.tuples(st.sampled_from(["1", "2"]), st.none()),
    st.tuples(st.sampled_from(["1", "2", PRICES]), st.sampled_from(FAULTS)),
)
CRASHES = st.sampled_from(["", "", "before the first write", "before the outcome is saved"])
SHOP_OPTIONS = {"longest_pause_seconds": 0.0, "calls_at_once": 1}
# A target has at most four calls and ten rate-limit waits per cycle.
MAX_SWEEPS = 20


# The target's id, its price before, and its price after.
Prices = tuple[int, Price, Price]


class KilledError(Exception):
    """Simulates the death of the worker process."""


class RunLifecycle(RuleBasedStateMachine):
    """The runs of one rule in a small shop. `last_writer` is the run that last wrote each variant, or
    None after a manual edit."""

    def __init__(self, new_database: Callable[[], Database]) -> None:
        super().__init__()
        self.database = new_database()
        self.clock = FakeClock(datetime(2026, 5, 4, 10, 0, tzinfo=UTC))
        self.harness = PricingHarness(
            self.database, self.clock, FakeShop(*product_variants(2, 2)), SHOP_OPTIONS
        )
        self.rule_id = self.harness.rule().id
        self.expected_amounts = {one: {1000} for one in VARIANTS}
        self.last_writer: dict[str, object] = dict.fromkeys(VARIANTS)
        self.planned: dict[int, list[Prices]] = {}

    def teardown(self) -> None:
        try:
            self.every_run_ends()
        finally:
            self.database.dispose()

    @rule(crash_at=CRASHES, failures=st.lists(FAILURES, max_size=3))
    def create_run(self, crash_at: str, failures: list[tuple[str, FailureSignal | None]]) -> None:
        """Preview, queue and work on a run. Failures start after the preview."""
        with self.database.reading() as session:
            pricing_rule = get_rule(session, self.rule_id)
        self.harness.end_shop_pause()
        run = self.harness.previewed_run(pricing_rule)
        with suppress(ConflictError, InvalidInputError):
            self.harness.queue(run, force=True)
        targets = self.harness.targets(run.id)
        self.planned[run.id] = [prices_of(target) for target in targets]
        for target in targets:
            self.expected_amounts[str(target.variant_id)].add(target.after_json["unit_amount"])
        for subject, signal in failures:
            self.inject(subject, signal)
        self.work_on(run.id, crash_at)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), crash_at=CRASHES)
    def work_on_a_run(self, data: st.DataObject, crash_at: str) -> None:
        self.work_on(data.draw(st.sampled_from(self.unfinished())), crash_at)

    @precondition(lambda self: self.planned)
    @rule(
        data=st.data(),
        force=st.booleans(),
        what=st.sampled_from([cancel_run, retry_run, roll_back_run]),
        crash_at=CRASHES,
    )
    def request_action(
        self, data: st.DataObject, force: bool, what: Callable[..., object], crash_at: str
    ) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.planned)))
        how = {} if what is cancel_run else {"force": force}
        with suppress(ConflictError, InvalidInputError):
            what(run_id, database=self.database, clock=self.clock, actor="user:7", **how)
        if data.draw(st.booleans()):
            self.work_on(run_id, crash_at)

    @rule(failure=FAILURES)
    def inject_failure(self, failure: tuple[str, FailureSignal | None]) -> None:
        self.inject(*failure)

    @rule(variant=st.sampled_from(VARIANTS), amount=st.sampled_from([1000, 900, 1234]))
    def edit_by_hand(self, variant: str, amount: int) -> None:
        self.harness.shop.edit(variant, amount=amount)
        self.expected_amounts[variant].add(amount)
        self.last_writer[variant] = None

    @rule(variant=st.sampled_from(VARIANTS), is_refused=st.booleans())
    def refuse(self, variant: str, is_refused: bool) -> None:
        (self.harness.shop.refuse if is_refused else self.harness.shop.accept)(variant)

    @precondition(lambda self: self.unfinished())
    @rule(fault=st.sampled_from([FailureSignal(status=500), FailureSignal(status=429)]))
    def fail_until_the_circuit_opens(self, fault: FailureSignal) -> None:
        """Fail every call until the circuit opens."""
        self.harness.shop.refuse_everything(fault)
        for _ in range(7):
            self.work_on(self.unfinished()[0] if self.unfinished() else max(self.planned))
        self.harness.shop.refuse_everything(None)

    @precondition(lambda self: self.unfinished())
    @rule()
    def pause(self) -> None:
        before = list(self.harness.shop.written)
        pause_shop(SHOP, database=self.database, actor="user:7")
        for run_id in self.unfinished():
            self.work_on(run_id)
        assert self.harness.shop.written == before
        assert sweep_rule_runs(database=self.database, clock=self.clock) == []
        resume_shop(SHOP, database=self.database, clock=self.clock)

    def inject(self, subject: str, signal: FailureSignal | None) -> None:
        if signal is None:
            self.harness.shop.lose_answer_once(subject)
        else:
            self.harness.shop.fail_once(subject, signal)

    @invariant()
    def invariants_hold(self) -> None:
        with self.database.reading() as session:
            runs = read_runs(session, select_runs())
        for run in runs:
            assert broken_invariants(run.id, run.status, run.targets) == []
            assert [prices_of(target) for target in self.harness.targets(run.id)] == self.planned[
                run.id
            ]
        assert sum(run.status in ACTIVE_RUN_STATES for run in runs) <= 1

    @invariant()
    def every_price_was_planned_or_edited(self) -> None:
        for variant, amount in self.harness.shop.amounts().items():
            assert amount in self.expected_amounts[variant]

    def work_on(self, run_id: int, crash_at: str = "") -> None:
        """Run the worker with every pending target due."""
        self.harness.end_shop_pause()
        self.harness.make_due(run_id)
        self.harness.expire_claim(run_id)
        written_before = len(self.harness.shop.written)
        # Another run of the rule may have been queued after the retry of this one was requested.
        with suppress(KilledError, ConflictError), pytest.MonkeyPatch.context() as patch:
            arrange_crash(self.harness, patch, crash_at)
            self.harness.work_id(run_id)
        self.harness.shop._during_call = None
        row = self.harness.run_row(run_id)
        writer = run_id, row.retry_cycle, row.rollbacks
        for write in self.harness.shop.written[written_before:]:
            assert self.last_writer[write.variant_id] != writer, (
                f"{write.variant_id} was written twice by {writer}"
            )
            self.last_writer[write.variant_id] = writer

    def every_run_ends(self) -> None:
        for _ in range(MAX_SWEEPS):
            sweep_rule_runs(database=self.database, clock=self.clock)
            if not self.unfinished():
                break
            for run_id in self.unfinished():
                self.work_on(run_id)
                self.invariants_hold()
        assert self.unfinished() == []
        with self.database.reading() as session:
            left = session.scalars(
                select(RuleTargetRow.id).where(RuleTargetRow.is_writing | RuleTargetRow.is_wished)
            )
            assert left.all() == []

    def unfinished(self) -> list[int]:
        rows = [self.harness.run_row(run_id) for run_id in sorted(self.planned)]
        return [row.id for row in rows if row.status in ACTIVE_RUN_STATES or row.wish is not None]


def arrange_crash(harness: PricingHarness, patch: pytest.MonkeyPatch, crash_at: str) -> None:
    """Raise `KilledError` at the first write or when its outcome is saved."""

    async def crash_on_write(kind: str, _subject: object) -> None:
        if kind == "write":
            raise KilledError

    def crash_on_save(
        _session: object, _run: object, settled: Sequence[TargetOutcome], _now: object
    ) -> None:
        if settled:
            raise KilledError

    if crash_at == "before the first write":
        harness.shop._during_call = crash_on_write
    elif crash_at:
        patch.setattr(worker, "save_outcomes", crash_on_save)
        patch.setattr(worker, "save_rollback_outcomes", crash_on_save)


def prices_of(target: RuleTargetRow) -> Prices:
    return target.id, price_of(target.before_json), price_of(target.after_json)


@pytest.mark.timeout(600)  # seconds on an idle machine, minutes on a busy one
def test_invariants_hold_for_any_sequence_of_operations(
    sqlite_template: Path, tmp_path: Path
) -> None:
    numbers = count()

    def new_database() -> Database:
        return Database(
            f"sqlite:///{shutil.copy(sqlite_template, tmp_path / f'{next(numbers)}.db')}"
        )

    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    # A failing sequence is not shortened, because that would take minutes.
    how = settings(
        max_examples=8,
        stateful_step_count=20,
        suppress_health_check=checks,
        phases=[Phase.generate],
    )
    run_state_machine_as_test(lambda: RunLifecycle(new_database), settings=how)
