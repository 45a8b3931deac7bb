"""Whatever happens to jobs, in whatever order: each attempt begins once, and what has ended stays as it is."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.domain.endings import AttemptEnd, failed, succeeded
from automation_pipeline.org_jobs.domain.retry_policy import RetryPolicy
from automation_pipeline.org_jobs.domain.tenancy import EVERYWHERE
from automation_pipeline.org_jobs.stages.cancel_job import cancel_job
from automation_pipeline.org_jobs.stages.reap_jobs import reap_jobs
from automation_pipeline.org_jobs.stages.retry_job import retry_job
from automation_pipeline.org_jobs.store.claims import Hold, claim_for_host, claim_run
from automation_pipeline.org_jobs.store.endings import end_attempts
from automation_pipeline.org_jobs.store.holds import LostLeaseError, begin_run, extend, held_run
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_now
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.org_jobs.bench import CHANGING, READING, SERVICE, Bench

MOST_RUNNING, ATTEMPTS, JOBS = 3, 2, 5
ENDED = {"success", "failed", "cancelled"}
ENDS = st.sampled_from([succeeded(), failed("It broke."), failed("It is wrong.", "VALIDATION")])
JOB = st.integers(0, JOBS - 1)
HOLD = st.integers(0, 9)


class Life(RuleBasedStateMachine):
    """Of five jobs of one organisation, two of them in one line. `begun` is who began which attempt, `gone` how runs
    ended for good."""

    def __init__(self, fresh: Callable[[], Database]) -> None:
        super().__init__()
        self.database, self.clock = fresh(), StandingClock(datetime(2026, 5, 4, 10, 0, tzinfo=UTC))
        self.bench = Bench(self.database, self.clock)
        self.holds: list[Hold] = []
        self.begun: dict[tuple[int, int], Hold] = {}
        self.gone: dict[int, tuple[object, ...]] = {}

    @initialize()
    def jobs_are_wanted(self) -> None:
        self.bench.organisation(max_running=MOST_RUNNING)
        self.host_id = self.bench.host()
        place = {"server_instance_id": self.bench.server(host_id=self.host_id)}
        kinds = [(CHANGING, place), (CHANGING, place), (READING, place), (SERVICE, {}), (SERVICE, {})]
        policy = RetryPolicy(max_retries=ATTEMPTS - 1, backoff_ms=1000)
        self.jobs = [
            self.bench.job(of_type=of_type, retry=policy, line="a" if number > 2 else None, **columns)
            for number, (of_type, columns) in enumerate(kinds)
        ]

    def teardown(self) -> None:
        self.database.dispose()

    @rule(most=st.integers(1, 3))
    def an_agent_claims(self, most: int) -> None:
        with self.database.transaction() as session:
            host = self.bench.host_row(self.host_id)
            claimed = claim_for_host(session, host, "agent:box", most, 3600.0, self.clock.now())
        self.holds += [one.hold for one in claimed]

    @rule(number=JOB)
    def a_worker_claims(self, number: int) -> None:
        with self.database.transaction() as session:
            run_id = self.bench.run_row(self.jobs[number]).id
            claimed = claim_run(session, run_id, "worker", 3600.0, self.clock.now())
        self.holds += [] if claimed is None else [claimed.hold]

    @rule(which=HOLD)
    def it_is_begun(self, which: int) -> None:
        hold, deadline = self._hold(which), self.clock.now() + timedelta(minutes=15)
        if hold is not None:
            with suppress(LostLeaseError), self.database.transaction() as session:
                begin_run(session, hold, deadline, self.clock.now(), within=EVERYWHERE, actor="test")
                key = hold.run_id, hold.attempt_no
                assert self.begun.setdefault(key, hold) == hold, "an attempt was begun by two"

    @rule(which=HOLD)
    def it_is_heard_of(self, which: int) -> None:
        hold = self._hold(which)
        if hold is not None:
            with suppress(LostLeaseError), self.database.transaction() as session:
                extend(session, hold, 3600.0, EVERYWHERE)

    @rule(which=HOLD, end=ENDS)
    def it_is_reported(self, which: int, end: AttemptEnd) -> None:
        hold = self._hold(which)
        if hold is not None and (hold.run_id, hold.attempt_no) in self.begun:
            with suppress(LostLeaseError), self.database.transaction() as session:
                held_run(session, hold, EVERYWHERE, to_end=True)
                end_attempts(session, {hold.run_id: end}, "test", self.clock.now())

    @rule(number=JOB, seconds=st.sampled_from([2, 3600, 86_400]))
    def time_passes_and_a_lease_is_over(self, number: int, seconds: int) -> None:
        self.clock.pass_time(timedelta(seconds=seconds))
        run = self.bench.run_row(self.jobs[number])
        if run.lease_until is not None:
            self.bench.set_run(run.id, lease_until=database_now(-1.0))

    @rule()
    def what_is_lost_is_given_up(self) -> None:
        reap_jobs(database=self.database, clock=self.clock, meter=self.bench.meter)

    @rule(number=JOB, at_once=st.booleans())
    def somebody_cancels(self, number: int, at_once: bool) -> None:
        with suppress(ConflictError):
            cancel_job(
                self.jobs[number],
                within=EVERYWHERE,
                database=self.database,
                clock=self.clock,
                actor="user:1",
                at_once=at_once,
            )

    @rule(number=JOB)
    def somebody_wants_it_again(self, number: int) -> None:
        with suppress(ConflictError):
            retry_job(self.jobs[number], within=EVERYWHERE, database=self.database, clock=self.clock, actor="user:1")

    @invariant()
    def what_is_always_true(self) -> None:
        with self.database.reading() as session:
            present = session.scalar(database_now().select())
        at_work = 0
        for job_id in getattr(self, "jobs", ()):
            runs = self.bench.runs(job_id)
            assert self.bench.job_row(job_id).status == runs[-1].status
            assert all(run.status in ENDED for run in runs[:-1])
            for run in runs:
                self._look_at(run)
                is_taken = run.status == "pending" and run.lease_until is not None and run.lease_until > present
                at_work += run.status == "running" or is_taken
        assert at_work <= MOST_RUNNING
        self._look_at_line()

    def _look_at(self, run: object) -> None:
        attempts = self.bench.attempts(run.id)
        moves = self.bench.moves("job run", run.id)
        begun = moves.count(("pending", "running"))
        assert run.attempt_no <= run.max_attempts == ATTEMPTS
        assert begun == len(attempts) + (run.status == "running") <= ATTEMPTS
        assert [attempt.attempt_no for attempt in attempts] == list(range(1, len(attempts) + 1))
        assert all(later[0] == earlier[1] for earlier, later in pairwise(moves))
        assert (moves[-1][1] if moves else "pending") == run.status
        if run.status in ENDED:
            assert run.lease_until is None
            said = run.status, run.attempt_no, run.finished_at, len(moves)
            assert self.gone.setdefault(run.id, said) == said, "what had ended has changed"
        else:
            assert run.id not in self.gone

    def _look_at_line(self) -> None:
        if hasattr(self, "jobs"):
            of_line = [run.status for job_id in self.jobs[3:] for run in self.bench.runs(job_id)]
            assert of_line.count("running") <= 1
            changing = [run.status for job_id in self.jobs[:2] for run in self.bench.runs(job_id)]
            assert changing.count("running") <= 1

    def _hold(self, which: int) -> Hold | None:
        """The newest first; old ones are tried too, by whoever does not know that they are lost."""
        return self.holds[-1 - which] if which < len(self.holds) else None


def test_each_attempt_begins_once_and_what_has_ended_stays_so(sqlite_template: Path, tmp_path: Path) -> None:
    numbers = count()

    def fresh() -> Database:
        return Database(f"sqlite:///{shutil.copy(sqlite_template, tmp_path / f'{next(numbers)}.db')}")

    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    run_state_machine_as_test(
        lambda: Life(fresh),
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=checks,
            phases=(Phase.explicit, Phase.generate),
        ),
    )
