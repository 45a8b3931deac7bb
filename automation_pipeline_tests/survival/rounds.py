"""Plays a round: one run asked for over HTTP, the faults of the plan at their moments, and a look
at what is left."""

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
from automation_pipeline_tests.outside import NO_CERTIFICATES
from automation_pipeline_tests.survival import checks
from automation_pipeline_tests.survival.plan import HITS_THE_RELAY, Fault, Kind, Round
from automation_pipeline_tests.survival.progress import asked, finished, has_ended
from automation_pipeline_tests.survival.strikes import NothingToStrikeError, is_forward, strike
from automation_pipeline_tests.survival.world import FICHES_PER_DAY, TOKEN, World
from automation_pipeline_tests.waiting import pause, wait_until

# So many, and so slow (`world.SLOW_SECONDS`), that a run is still at work when the last of its
# faults comes.
FICHES = 12
PATIENCE_SECONDS = 120.0  # the promise: terminal by itself within two minutes of recovery
LOOK_EVERY_SECONDS = 0.1
DAY = [
    fiche.id
    for fiche in Calls(7, FICHES_PER_DAY, vary=False).day(date(2026, 2, 4))
    if fiche.kind is FicheKind.ORDINARY and len(fiche.recordings) <= 2
]


@dataclass
class Suffered:
    """One fault, and after how long work went on. A late one came when the run had ended: all that
    it could meet were its events and messages."""

    kind: Kind
    at: int
    late: bool = False
    recovery_seconds: float | None = None


@dataclass
class Outcome:
    round: Round
    run_id: int = 0
    status: str = ""
    suffered: list[Suffered] = field(default_factory=list)
    repeated: Counter[str] = field(default_factory=Counter)
    told_again: int = 0
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Snapshot:
    """Work that was finished at some moment, and how often it had been asked for when that was
    known."""

    finished: set[str]
    asked: Counter[str]

    def asked_again(self, now: Counter[str]) -> dict[str, int]:
        """How often it was, by what it is."""
        return {
            work: now[work] - self.asked[work]
            for work in self.finished
            if now[work] > self.asked[work]
        }

    def without(self, route: str) -> "Snapshot":
        return Snapshot({work for work in self.finished if not work.startswith(route)}, self.asked)


class Player:
    """Of one world. `say` hears of every fault; whoever must not depend on a quick machine has more
    patience."""

    def __init__(
        self, world: World, say: Callable[[str], None], patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._world, self._say, self._patience = world, say, patience_seconds
        self._instance: DagsterInstance | None = None
        self._told_again = 0

    def instance(self) -> DagsterInstance:
        if self._instance is None:
            if self._world.postgres:
                os.environ["DAGSTER_POSTGRES_URL"] = self._world.postgres.dagster_url
            self._instance = DagsterInstance.from_config(str(self._world.home))
        return self._instance

    def play(self, round_: Round) -> Outcome:
        outcome = Outcome(round_)
        fiche_ids = DAY[FICHES * (round_.number - 1) :][:FICHES]
        outcome.run_id = self._ask_for_run(round_, fiche_ids)
        before = asked(self._world.provider)
        snapshots: list[Snapshot] = []
        repairs: list[Callable[[], None]] = []
        try:
            for fault in round_.faults:
                self._suffer(fault, outcome, fiche_ids, snapshots, repairs)
            self._wait_for_end(outcome)
        finally:
            for repair in repairs:
                repair()
        if not outcome.violations:
            self._examine(outcome, fiche_ids, snapshots, before)
        return outcome

    def _ask_for_run(self, round_: Round, fiche_ids: Sequence[str]) -> int:
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
        made = self._post("/api/automation/schedules", f"schedule-{round_.number}", schedule)
        schedule_id = int(made["data"]["id"])
        asked_for = self._post(
            "/api/automation/trigger", f"run-{round_.number}", {"scheduleId": schedule_id}
        )
        return int(asked_for["run_id"])

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

    def _suffer(
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

        if outcome.violations or not self._comes(
            lambda: done() >= fault.at or self._over(run_id), outcome, fault
        ):
            return
        snapshots.append(self._look(run_id, fiche_ids))
        late = self._over(run_id)
        try:
            repair = strike(world, run_id, fault)
        except NothingToStrikeError:
            return
        suffered = Suffered(fault.kind, len(snapshots[-1].finished), late)
        outcome.suffered.append(suffered)
        if fault.kind is Kind.TWO_DAEMONS:
            repairs.append(repair)
        elif repair:
            pause(fault.seconds)
            repair()
        repaired_at, reached = time.monotonic(), done()
        if self._comes(lambda: done() > reached or self._over(run_id), outcome, fault):
            suffered.recovery_seconds = round(time.monotonic() - repaired_at, 1)
            seconds = suffered.recovery_seconds
            went_on = "its run was over" if late else f"goes on after {seconds} s"
            self._say(f"run {outcome.run_id}: {fault.kind} at {suffered.at} pieces, {went_on}")

    def _look(self, run_id: int, fiche_ids: Sequence[str]) -> Snapshot:
        done = finished(self._world.database, run_id, fiche_ids)
        return Snapshot(done, asked(self._world.provider))

    def _over(self, run_id: int) -> bool:
        return has_ended(self._world.database, run_id)

    def _comes(self, condition: Callable[[], bool], outcome: Outcome, fault: Fault) -> bool:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            self._world.supervise()
            try:
                if condition():
                    return True
            except AutomationError:
                pass  # the database is what was struck
            pause(LOOK_EVERY_SECONDS)
        outcome.violations.append(f"nothing goes on within {self._patience:g} s around {fault}")
        return False

    def _wait_for_end(self, outcome: Outcome) -> None:
        def ended() -> bool:
            self._world.supervise()
            return self._over(outcome.run_id)

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
        now = asked(world.provider)
        if any(fault.kind is Kind.CLOCK and is_forward(fault) for fault in outcome.round.faults):
            snapshots = [
                one.without("crm.details") for one in snapshots
            ]  # out of date at once, they are wanted anew
        for snapshot in snapshots:
            outcome.violations += [
                f"{work} was finished before a fault, and asked for again {times} times after it"
                for work, times in snapshot.asked_again(now).items()
            ]
        again = {work: times - 1 for work, times in (now - before).items() if times > 1}
        outcome.repeated = Counter({work.partition(" ")[0]: 0 for work in again})
        for work, times in again.items():
            outcome.repeated[work.partition(" ")[0]] += times
        result = checks.told_again(world)
        outcome.told_again, self._told_again = result - self._told_again, result
        if outcome.told_again and not HITS_THE_RELAY & {one.kind for one in outcome.suffered}:
            outcome.violations.append(
                f"{outcome.told_again} messages were sent twice, and nothing had struck their sender"
            )
