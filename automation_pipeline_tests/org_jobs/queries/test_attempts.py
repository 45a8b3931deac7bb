"""Holds of attempts, and a randomised test that each attempt starts once."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest
from sqlalchemy import select

from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.jobs import cancel_job, retry_job
from automation_pipeline.org_jobs.models.jobs import (
    JOB_RUN,
    RetryPolicy,
    attempt_failed,
    attempt_succeeded,
)
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline.org_jobs.queries.attempts import (
    JobRunBusyError,
    LostLeaseError,
    check_unclaimed,
    end_attempts,
    extend_lease,
    follow_run,
    held_run,
    start_run,
)
from automation_pipeline.org_jobs.queries.queue import AttemptHold, claim_for_host, claim_run
from automation_pipeline.org_jobs.runs import reap_jobs
from automation_pipeline.org_jobs.tables import AttemptRow, JobRunRow
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.org_jobs.bench import CHANGING, READING, SERVICE, Bench


def hold(bench: Bench) -> AttemptHold:
    run_id = bench.run_row(bench.job(of_type=SERVICE)).id
    with bench.database.transaction() as session:
        claimed = claim_run(session, run_id, "worker", 60.0, bench.now)
    assert claimed is not None
    return claimed.hold


def begin(bench: Bench, held: AttemptHold) -> None:
    deadline = bench.now + timedelta(minutes=15)
    with bench.database.transaction() as session:
        start_run(session, held, deadline, bench.now, actor="worker")


def is_held(bench: Bench, held: AttemptHold) -> bool:
    with bench.database.transaction() as session:
        try:
            held_run(session, held)
        except LostLeaseError:
            return False
        return True


def test_attempt_starts_once_with_one_event(org_bench: Bench) -> None:
    held = hold(org_bench)
    begin(org_bench, held)
    org_bench.pass_minutes(1)
    begin(org_bench, held)
    run = org_bench.run_by_id(held.run_id)
    assert (run.status, org_bench.job_row(run.job_id).status) == ("running", "running")
    assert run.deadline_at - run.started_at == timedelta(minutes=15)
    assert org_bench.moves("job run", held.run_id) == [("pending", "running")]
    [event] = org_bench.events("job_run.started")
    assert event.payload["jobRunId"] == str(held.run_id)


@pytest.mark.parametrize(
    "other",
    [{"token": 2}, {"token": 0}, {"attempt_no": 2}],
    ids=["a later token", "an earlier one", "another attempt"],
)
def test_another_token_or_attempt_does_not_hold_the_attempt(
    org_bench: Bench, other: dict[str, int]
) -> None:
    held = hold(org_bench)
    strange = AttemptHold(**(vars(held) | other))
    assert (is_held(org_bench, held), is_held(org_bench, strange)) == (True, False)
    with pytest.raises(LostLeaseError):
        begin(org_bench, strange)
    assert org_bench.run_by_id(held.run_id).status == "pending"


def test_unstarted_attempt_is_lost_with_its_lease(org_bench: Bench) -> None:
    held = hold(org_bench)
    org_bench.expire_hold(held.run_id)
    assert not is_held(org_bench, held)


def test_running_attempt_is_held_after_its_lease(org_bench: Bench) -> None:
    held = hold(org_bench)
    begin(org_bench, held)
    org_bench.expire_hold(held.run_id)
    assert is_held(org_bench, held)
    with org_bench.database.transaction() as session:
        assert extend_lease(session, held, 3600.0).lease_until is not None
        follow_run(session, held_run(session, held), {"run": 1})
    run = org_bench.run_by_id(held.run_id)
    assert (run.lease_until, run.following, is_held(org_bench, held)) == (None, {"run": 1}, False)


def test_a_lease_is_extended_by_the_database_clock(org_bench: Bench) -> None:
    held = hold(org_bench)
    before = org_bench.run_by_id(held.run_id).lease_until
    with org_bench.database.transaction() as session:
        assert extend_lease(session, held, 3600.0).lease_until is not None
    assert org_bench.run_by_id(held.run_id).lease_until - before > timedelta(minutes=50)


def test_busy_run_has_the_seconds_until_it_is_free(org_bench: Bench) -> None:
    run_id = org_bench.run_row(org_bench.running_job(of_type=SERVICE)).id
    with (
        org_bench.database.reading() as session,
        pytest.raises(JobRunBusyError, match=f"Job run {run_id}") as busy,
    ):
        check_unclaimed(session, run_id)
    assert busy.value.retry_after_seconds is not None
    for gone in (database_now(-1.0), None):
        org_bench.set_run(run_id, lease_until=gone)
        with org_bench.database.reading() as session:
            check_unclaimed(session, run_id)


MOST_RUNNING, ATTEMPTS, JOBS = 3, 2, 5
ENDED = {"success", "failed", "cancelled"}
ENDS = (
    attempt_succeeded(),
    attempt_failed("It broke."),
    attempt_failed("It broke."),
    attempt_failed("It is wrong.", "VALIDATION"),
)
STEPS = 120
IS_RUN = TransitionRow.machine == JOB_RUN.name


class JobLifecycle:
    """Random operations on five jobs of one organisation, two of them serial. `started` maps each attempt
    to its hold; `ended_runs` keeps the final state of ended runs."""

    def __init__(self, bench: Bench, random: Random) -> None:
        self.bench, self.database, self.clock, self.random = (
            bench,
            bench.database,
            bench.clock,
            random,
        )
        self.holds: list[AttemptHold] = []
        self.started: dict[tuple[int, int], AttemptHold] = {}
        self.ended_runs: dict[int, tuple[object, ...]] = {}
        self.bench.organisation(max_running=MOST_RUNNING)
        self.host_id = self.bench.host()
        on_server = {"server_instance_id": self.bench.server(host_id=self.host_id)}
        kinds = [
            (CHANGING, on_server),
            (CHANGING, on_server),
            (READING, on_server),
            (SERVICE, {}),
            (SERVICE, {}),
        ]
        policy = RetryPolicy(max_retries=ATTEMPTS - 1, backoff_ms=1000)
        self.jobs = [
            self.bench.job(
                of_type=of_type, retry=policy, line="a" if number > 2 else None, **columns
            )
            for number, (of_type, columns) in enumerate(kinds)
        ]

    def step(self) -> None:
        actions = {
            self.agent_claims: 4,
            self.worker_claims: 4,
            self.attempt_starts: 8,
            self.heartbeat_arrives: 1,
            self.result_is_reported: 6,
            self.time_passes: 3,
            self.lease_expires: 1,
            self.lost_attempts_are_reaped: 3,
            self.cancel_is_requested: 1,
            self.retry_is_requested: 5,
        }
        [action] = self.random.choices(list(actions), list(actions.values()))
        action()
        self.check_invariants()

    def agent_claims(self) -> None:
        with self.database.transaction() as session:
            host = self.bench.host_row(self.host_id)
            claimed = claim_for_host(
                session, host, "agent:box", self.random.randint(1, 3), 3600.0, self.clock.now()
            )
        self.holds += [one.hold for one in claimed]

    def worker_claims(self) -> None:
        with self.database.transaction() as session:
            run_id = self.bench.run_row(self.random.choice(self.jobs[3:])).id
            claimed = claim_run(session, run_id, "worker", 3600.0, self.clock.now())
        self.holds += [] if claimed is None else [claimed.hold]

    def attempt_starts(self) -> None:
        hold, deadline = self._hold(), self.clock.now() + timedelta(minutes=15)
        if hold is not None:
            with suppress(LostLeaseError), self.database.transaction() as session:
                start_run(
                    session,
                    hold,
                    deadline,
                    self.clock.now(),
                    actor="test",
                )
                key = hold.run_id, hold.attempt_no
                assert self.started.setdefault(key, hold) == hold, "an attempt was started twice"

    def heartbeat_arrives(self) -> None:
        hold = self._hold()
        if hold is not None:
            with suppress(LostLeaseError), self.database.transaction() as session:
                extend_lease(session, hold, 3600.0)

    def result_is_reported(self) -> None:
        hold = self._hold()
        if hold is not None and (hold.run_id, hold.attempt_no) in self.started:
            with suppress(LostLeaseError), self.database.transaction() as session:
                held_run(session, hold, to_end=True)
                end_attempts(
                    session, {hold.run_id: self.random.choice(ENDS)}, "test", self.clock.now()
                )

    def time_passes(self) -> None:
        [seconds] = self.random.choices([2, 1200, 86_400], [40, 4, 1])
        self.clock.pass_time(timedelta(seconds=seconds))

    def lease_expires(self) -> None:
        run = self.bench.run_row(self._job())
        if run.lease_until is not None:
            self.bench.expire_hold(run.id)

    def lost_attempts_are_reaped(self) -> None:
        reap_jobs(database=self.database, clock=self.clock, meter=self.bench.meter)

    def cancel_is_requested(self) -> None:
        with suppress(ConflictError):
            cancel_job(
                self._job(),
                within=ALL_ORGANISATIONS,
                database=self.database,
                clock=self.clock,
                actor="user:1",
                at_once=self.random.random() < 0.5,
            )

    def retry_is_requested(self) -> None:
        with suppress(ConflictError):
            retry_job(
                self._job(),
                within=ALL_ORGANISATIONS,
                database=self.database,
                clock=self.clock,
                actor="user:1",
            )

    def check_invariants(self) -> None:
        with self.database.reading() as session:
            present = session.scalar(select(database_now()))
        jobs, runs = self.bench.jobs(), self.bench.rows(select(JobRunRow).order_by(JobRunRow.id))
        moves, attempts = defaultdict(list), defaultdict(list)
        for move in self.bench.rows(select(TransitionRow).where(IS_RUN).order_by(TransitionRow.id)):
            moves[int(move.entity_id)].append((move.from_state, move.to_state))
        for attempt in self.bench.rows(select(AttemptRow).order_by(AttemptRow.attempt_no)):
            attempts[attempt.run_id].append(attempt.attempt_no)
        for run in runs:
            self._check_run(run, moves[run.id], attempts[run.id])
        by_job = {job.id: [run.status for run in runs if run.job_id == job.id] for job in jobs}
        assert all(by_job[job.id][-1] == job.status for job in jobs)
        assert all(status in ENDED for states in by_job.values() for status in states[:-1])
        taken = [
            run
            for run in runs
            if run.status == "pending" and run.lease_until and run.lease_until > present
        ]
        at_work = [run.job_id for run in [*runs, *taken] if run.status == "running" or run in taken]
        assert len(set(at_work)) <= MOST_RUNNING
        for one_at_a_time in (self.jobs[:2], self.jobs[3:]):
            assert sum(by_job[job_id].count("running") for job_id in one_at_a_time) <= 1

    def _check_run(
        self, run: JobRunRow, moves: Sequence[tuple[str, str]], attempts: Sequence[int]
    ) -> None:
        started = moves.count(("pending", "running"))
        assert run.attempt_no <= run.max_attempts == ATTEMPTS
        assert started == len(attempts) + (run.status == "running") <= ATTEMPTS
        assert attempts == list(range(1, len(attempts) + 1))
        assert all(later[0] == earlier[1] for earlier, later in pairwise(moves))
        assert (moves[-1][1] if moves else "pending") == run.status
        if run.status in ENDED:
            assert run.lease_until is None
            result = run.status, run.attempt_no, run.finished_at, len(moves)
            assert self.ended_runs.setdefault(run.id, result) == result, "an ended run has changed"
        else:
            assert run.id not in self.ended_runs

    def _job(self) -> int:
        return self.random.choice(self.jobs)

    def _hold(self) -> AttemptHold | None:
        """One of the latest holds, which may already be lost."""
        return self.random.choice(self.holds[-4:]) if self.holds else None


@pytest.mark.parametrize("seed", range(4))
def test_attempts_start_once_and_ended_runs_stay_ended(org_bench: Bench, seed: int) -> None:
    lifecycle = JobLifecycle(org_bench, Random(seed))
    for _ in range(STEPS):
        lifecycle.step()
    assert len(lifecycle.started) > 3, "too few attempts were started"
