"""Executes a round: requests a run over HTTP, injects the faults of the plan, and checks the result."""

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date

import httpx
from dagster import DagsterInstance

from automation_pipeline.core.errors import AutomationError
from automation_pipeline.simulator import Kind as FicheKind
from automation_pipeline.simulator import World as Calls
from automation_pipeline_tests.simulator_control import NO_CERTIFICATES
from automation_pipeline_tests.survival import checks
from automation_pipeline_tests.survival.injection import NoTargetError, inject, is_forward
from automation_pipeline_tests.survival.plan import HITS_THE_RELAY, Fault, Kind, Round
from automation_pipeline_tests.survival.progress import finished, has_ended, provider_calls
from automation_pipeline_tests.survival.world import FICHES_PER_DAY, TOKEN, World
from automation_pipeline_tests.waiting import pause, wait_until

# Enough fiches, with slow providers (`world.SLOW_SECONDS`), that a run still executes at its last fault.
FICHES = 12
PATIENCE_SECONDS = 120.0  # a run ends by itself within two minutes of recovery
POLL_SECONDS = 0.1
DAY = [
    fiche.id
    for fiche in Calls(7, FICHES_PER_DAY, vary=False).day(date(2026, 2, 4))
    if fiche.kind is FicheKind.ORDINARY and len(fiche.recordings) <= 2
]


@dataclass
class InjectedFault:
    """A fault, and the seconds until work continued. A late fault was injected after the run had ended,
    so that it could affect only events and messages."""

    kind: Kind
    at: int
    late: bool = False
    recovery_seconds: float | None = None


@dataclass
class Outcome:
    round: Round
    run_id: int = 0
    status: str = ""
    injected: list[InjectedFault] = field(default_factory=list)
    repeated: Counter[str] = field(default_factory=Counter)
    sent_again: int = 0
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Snapshot:
    """Finished work at one time, and the calls of the providers until then."""

    finished: set[str]
    provider_calls: Counter[str]

    def called_again(self, now: Counter[str]) -> dict[str, int]:
        """The calls since then for work that was finished, by work."""
        return {
            work: now[work] - self.provider_calls[work]
            for work in self.finished
            if now[work] > self.provider_calls[work]
        }

    def without(self, route: str) -> "Snapshot":
        return Snapshot(
            {work for work in self.finished if not work.startswith(route)}, self.provider_calls
        )


class RoundRunner:
    """Executes the rounds of one world and reports every fault."""

    def __init__(
        self,
        world: World,
        report: Callable[[str], None],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._world, self._report, self._patience = world, report, patience_seconds
        self._instance: DagsterInstance | None = None
        self._sent_again = 0

    def instance(self) -> DagsterInstance:
        if self._instance is None:
            if self._world.postgres:
                os.environ["DAGSTER_POSTGRES_URL"] = self._world.postgres.dagster_url
            self._instance = DagsterInstance.from_config(str(self._world.home))
        return self._instance

    def run_round(self, round_: Round) -> Outcome:
        outcome = Outcome(round_)
        fiche_ids = DAY[FICHES * (round_.number - 1) :][:FICHES]
        outcome.run_id = self._request_run(round_, fiche_ids)
        before = provider_calls(self._world.provider)
        snapshots: list[Snapshot] = []
        repairs: list[Callable[[], None]] = []
        try:
            for fault in round_.faults:
                self._inject(fault, outcome, fiche_ids, snapshots, repairs)
            self._wait_for_end(outcome)
        finally:
            for repair in repairs:
                repair()
        if not outcome.violations:
            self._examine(outcome, fiche_ids, snapshots, before)
        return outcome

    def _request_run(self, round_: Round, fiche_ids: Sequence[str]) -> int:
        selection = {"mode": "manual", "ficheIds": list(fiche_ids)}
        values = {
            "webhookUrl": f"{self._world.webhooks.url}/runs",
            "notifyOnComplete": True,
            "notifyOnError": True,
        }
        work = {"runTranscription": True, "runAudits": True, "useAutomaticAudits": True}
        name = f"round {round_.number}"
        schedule = {
            "name": name,
            "scheduleType": "MANUAL",
            "ficheSelection": selection,
            **work,
            **values,
        }
        created = self._post("/api/automation/schedules", f"schedule-{round_.number}", schedule)
        schedule_id = int(created["data"]["id"])
        requested = self._post(
            "/api/automation/trigger", f"run-{round_.number}", {"scheduleId": schedule_id}
        )
        return int(requested["run_id"])

    def _post(self, path: str, key: str, posted: dict) -> dict:
        headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": f"survival-{key}"}
        answered = httpx.post(
            f"{self._world.api_url}{path}",
            json=posted,
            headers=headers,
            verify=NO_CERTIFICATES,
            timeout=60,
        )
        assert answered.is_success, answered.text
        return answered.json()

    def _inject(
        self,
        fault: Fault,
        outcome: Outcome,
        fiche_ids: Sequence[str],
        snapshots: list[Snapshot],
        repairs: list[Callable[[], None]],
    ) -> None:
        world, run_id = self._world, outcome.run_id

        def done() -> int:
            return len(finished(world.database, run_id, fiche_ids))

        if outcome.violations or not self._wait_for(
            lambda: done() >= fault.at or self._has_ended(run_id), outcome, fault
        ):
            return
        snapshots.append(self._snapshot(run_id, fiche_ids))
        late = self._has_ended(run_id)
        try:
            repair = inject(world, run_id, fault)
        except NoTargetError:
            return
        injected = InjectedFault(fault.kind, len(snapshots[-1].finished), late)
        outcome.injected.append(injected)
        if fault.kind is Kind.TWO_DAEMONS:
            repairs.append(repair)
        elif repair:
            pause(fault.seconds)
            repair()
        repaired_at, reached = time.monotonic(), done()
        if self._wait_for(lambda: done() > reached or self._has_ended(run_id), outcome, fault):
            injected.recovery_seconds = round(time.monotonic() - repaired_at, 1)
            seconds = injected.recovery_seconds
            recovery = "the run had ended" if late else f"the run continued after {seconds} s"
            self._report(f"run {outcome.run_id}: {fault.kind} at {injected.at} pieces, {recovery}")

    def _snapshot(self, run_id: int, fiche_ids: Sequence[str]) -> Snapshot:
        done = finished(self._world.database, run_id, fiche_ids)
        return Snapshot(done, provider_calls(self._world.provider))

    def _has_ended(self, run_id: int) -> bool:
        return has_ended(self._world.database, run_id)

    def _wait_for(self, condition: Callable[[], bool], outcome: Outcome, fault: Fault) -> bool:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            self._world.supervise()
            try:
                if condition():
                    return True
            except AutomationError:
                pass  # the fault affects the database
            pause(POLL_SECONDS)
        outcome.violations.append(f"no progress within {self._patience:g} s around {fault}")
        return False

    def _wait_for_end(self, outcome: Outcome) -> None:
        def ended() -> bool:
            self._world.supervise()
            return self._has_ended(outcome.run_id)

        try:
            wait_until(ended, self._patience)
        except AssertionError:
            outcome.violations.append(
                f"run {outcome.run_id} has not ended {self._patience:g} s after the last fault"
            )

    def _examine(
        self,
        outcome: Outcome,
        fiche_ids: Sequence[str],
        snapshots: Sequence[Snapshot],
        before: Counter[str],
    ) -> None:
        world = self._world
        left: list[str] = []

        def settled() -> bool:
            world.supervise()
            left[:] = [*checks.everything_left_behind(world, self.instance), *checks.unsent(world)]
            return not left

        try:
            wait_until(settled, self._patience)
        except AssertionError:
            outcome.violations += left
        with world.database.reading() as session:
            outcome.violations += checks.ledger_faults(session, outcome.run_id, fiche_ids)
        with world.database.reading() as session:
            outcome.status = session.get_one(checks.RunRow, outcome.run_id).status
        now = provider_calls(world.provider)
        if any(fault.kind is Kind.CLOCK and is_forward(fault) for fault in outcome.round.faults):
            # The stored details have expired, so they are fetched again.
            snapshots = [one.without("crm.details") for one in snapshots]
        for snapshot in snapshots:
            outcome.violations += [
                f"{work} was finished before a fault, and called {times} more times after it"
                for work, times in snapshot.called_again(now).items()
            ]
        again = {work: times - 1 for work, times in (now - before).items() if times > 1}
        outcome.repeated = Counter({work.partition(" ")[0]: 0 for work in again})
        for work, times in again.items():
            outcome.repeated[work.partition(" ")[0]] += times
        result = checks.sent_again(world)
        outcome.sent_again, self._sent_again = result - self._sent_again, result
        if outcome.sent_again and not HITS_THE_RELAY & {one.kind for one in outcome.injected}:
            outcome.violations.append(
                f"{outcome.sent_again} messages were sent twice without a fault of their sender"
            )
