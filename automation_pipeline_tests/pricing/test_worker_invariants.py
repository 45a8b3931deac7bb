"""Whatever happens to runs, in whatever order: what is always true of them stays true, and they
come to an end."""

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
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import LOST, PRICES, FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench

SHOP = "shop.test"
VARIANTS = ("101", "102", "201", "202")
FAULTS = [
    FailureSignal(status=500),
    FailureSignal(status=429),
    FailureSignal(status=404),
    FailureSignal(status=401),
    LOST,
]
# A call that fails; without a signal a write that takes effect, and its answer is lost.
TROUBLE = st.one_of(
    st.tuples(st.sampled_from(["1", "2"]), st.none()),
    st.tuples(st.sampled_from(["1", "2", PRICES]), st.sampled_from(FAULTS)),
)
DEATHS = st.sampled_from(["", "", "before it is written", "before it is noted"])
KNOBS = {"longest_pause_seconds": 0.0, "calls_at_once": 1}
# A target has four calls and ten waits at most in a cycle.
ENOUGH = 20


# A target, its price before, and its price after.
Prices = tuple[int, Price, Price]


class KilledError(Exception):
    """The worker's process is gone."""


class Life(RuleBasedStateMachine):
    """Of one rule's runs in a small shop. `last_by` is who wrote a variant last, None after a hand
    has edited it."""

    def __init__(self, fresh: Callable[[], Database]) -> None:
        super().__init__()
        self.database = fresh()
        self.clock = StandingClock(datetime(2026, 5, 4, 10, 0, tzinfo=UTC))
        self.bench = Bench(self.database, self.clock, FakeShop(*shelf(2, 2)), KNOBS)
        self.rule_id = self.bench.rule().id
        self.known = {one: {1000} for one in VARIANTS}
        self.last_by: dict[str, object] = dict.fromkeys(VARIANTS)
        self.planned: dict[int, list[Prices]] = {}

    def teardown(self) -> None:
        try:
            self.all_comes_to_an_end()
        finally:
            self.database.dispose()

    @rule(die=DEATHS, trouble=st.lists(TROUBLE, max_size=3))
    def begin(self, die: str, trouble: list[tuple[str, FailureSignal | None]]) -> None:
        """A run of the rule, as the shop stands; whatever is in its way comes after its preview."""
        with self.database.reading() as session:
            its_rule = get_rule(session, self.rule_id)
        self.bench.rested()
        run = self.bench.previewed(its_rule)
        with suppress(ConflictError, InvalidInputError):
            self.bench.queue(run, force=True)
        targets = self.bench.targets(run.id)
        self.planned[run.id] = [priced(target) for target in targets]
        for target in targets:
            self.known[str(target.variant_id)].add(target.after_json["unit_amount"])
        for subject, signal in trouble:
            self.meet(subject, signal)
        self.work_on(run.id, die)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), die=DEATHS)
    def go_on(self, data: st.DataObject, die: str) -> None:
        self.work_on(data.draw(st.sampled_from(self.unfinished())), die)

    @precondition(lambda self: self.planned)
    @rule(
        data=st.data(),
        force=st.booleans(),
        what=st.sampled_from([cancel_run, retry_run, roll_back_run]),
        die=DEATHS,
    )
    def ask(self, data: st.DataObject, force: bool, what: Callable[..., object], die: str) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.planned)))
        how = {} if what is cancel_run else {"force": force}
        with suppress(ConflictError, InvalidInputError):
            what(run_id, database=self.database, clock=self.clock, actor="user:7", **how)
        if data.draw(st.booleans()):
            self.work_on(run_id, die)

    @rule(trouble=TROUBLE)
    def meet_trouble(self, trouble: tuple[str, FailureSignal | None]) -> None:
        self.meet(*trouble)

    @rule(variant=st.sampled_from(VARIANTS), amount=st.sampled_from([1000, 900, 1234]))
    def edit_by_hand(self, variant: str, amount: int) -> None:
        self.bench.shop.edit(variant, amount=amount)
        self.known[variant].add(amount)
        self.last_by[variant] = None

    @rule(variant=st.sampled_from(VARIANTS), is_refused=st.booleans())
    def refuse(self, variant: str, is_refused: bool) -> None:
        (self.bench.shop.refuse if is_refused else self.bench.shop.accept)(variant)

    @precondition(lambda self: self.unfinished())
    @rule(fault=st.sampled_from([FailureSignal(status=500), FailureSignal(status=429)]))
    def storm(self, fault: FailureSignal) -> None:
        """So long that the circuit opens."""
        self.bench.shop.refuse_everything(fault)
        for _ in range(7):
            self.work_on(self.unfinished()[0] if self.unfinished() else max(self.planned))
        self.bench.shop.refuse_everything(None)

    @precondition(lambda self: self.unfinished())
    @rule()
    def pause(self) -> None:
        before = list(self.bench.shop.written)
        pause_shop(SHOP, database=self.database, actor="user:7")
        for run_id in self.unfinished():
            self.work_on(run_id)
        assert self.bench.shop.written == before
        assert sweep_rule_runs(database=self.database, clock=self.clock) == []
        resume_shop(SHOP, database=self.database, clock=self.clock)

    def meet(self, subject: str, signal: FailureSignal | None) -> None:
        if signal is None:
            self.bench.shop.lose_answer_once(subject)
        else:
            self.bench.shop.fail_once(subject, signal)

    @invariant()
    def promises_are_kept(self) -> None:
        with self.database.reading() as session:
            runs = read_runs(session, select_runs())
        for run in runs:
            assert broken_invariants(run.id, run.status, run.targets) == []
            assert [priced(target) for target in self.bench.targets(run.id)] == self.planned[run.id]
        assert sum(run.status in ACTIVE_RUN_STATES for run in runs) <= 1

    @invariant()
    def every_price_is_one_that_somebody_wanted(self) -> None:
        for variant, amount in self.bench.shop.amounts().items():
            assert amount in self.known[variant]

    def work_on(self, run_id: int, die: str = "") -> None:
        """A worker that comes when everything that waits is due."""
        self.bench.rested()
        self.bench.make_due(run_id)
        self.bench.expire_hold(run_id)
        began = len(self.bench.shop.written)
        # Another run of the rule may have been queued since the request for this one to be tried
        # again.
        with suppress(KilledError, ConflictError), pytest.MonkeyPatch.context() as patch:
            kill(self.bench, patch, die)
            self.bench.work_id(run_id)
        self.bench.shop._during_call = None
        row = self.bench.run_row(run_id)
        writer = run_id, row.retry_cycle, row.rollbacks
        for write in self.bench.shop.written[began:]:
            assert self.last_by[write.variant_id] != writer, (
                f"{write.variant_id} was written twice by {writer}"
            )
            self.last_by[write.variant_id] = writer

    def all_comes_to_an_end(self) -> None:
        for _ in range(ENOUGH):
            sweep_rule_runs(database=self.database, clock=self.clock)
            if not self.unfinished():
                break
            for run_id in self.unfinished():
                self.work_on(run_id)
                self.promises_are_kept()
        assert self.unfinished() == []
        with self.database.reading() as session:
            left = session.scalars(
                select(RuleTargetRow.id).where(RuleTargetRow.is_writing | RuleTargetRow.is_wished)
            )
            assert left.all() == []

    def unfinished(self) -> list[int]:
        rows = [self.bench.run_row(run_id) for run_id in sorted(self.planned)]
        return [row.id for row in rows if row.status in ACTIVE_RUN_STATES or row.wish is not None]


def kill(bench: Bench, patch: pytest.MonkeyPatch, die: str) -> None:
    """At the first write, or when what became of it is to be noted."""

    async def killed(kind: str, _subject: object) -> None:
        if kind == "write":
            raise KilledError

    def killed_too(
        _session: object, _run: object, settled: Sequence[TargetOutcome], _now: object
    ) -> None:
        if settled:
            raise KilledError

    if die == "before it is written":
        bench.shop._during_call = killed
    elif die:
        patch.setattr(worker, "save_outcomes", killed_too)
        patch.setattr(worker, "save_rollback_outcomes", killed_too)


def priced(target: RuleTargetRow) -> Prices:
    return target.id, price_of(target.before_json), price_of(target.after_json)


@pytest.mark.timeout(600)  # seconds on a quiet machine, minutes on a busy one
def test_invariants_hold_for_any_sequence_of_operations(
    sqlite_template: Path, tmp_path: Path
) -> None:
    numbers = count()

    def fresh() -> Database:
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
    run_state_machine_as_test(lambda: Life(fresh), settings=how)
