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
from automation_pipeline_tests.org_jobs.data import CHANGING, READING, SERVICE, OrgJobsData


def claim_new_run(data: OrgJobsData) -> AttemptHold:
    run_id = data.run_row(data.job(of_type=SERVICE)).id
    with data.database.transaction() as session:
        claimed = claim_run(session, run_id, "worker", 60.0, data.now)
    assert claimed is not None
    return claimed.hold


def start(data: OrgJobsData, held: AttemptHold) -> None:
    deadline = data.now + timedelta(minutes=15)
    with data.database.transaction() as session:
        start_run(session, held, deadline, data.now, actor="worker")


def is_held(data: OrgJobsData, held: AttemptHold) -> bool:
    with data.database.transaction() as session:
        try:
            held_run(session, held)
        except LostLeaseError:
            return False
        return True


def test_attempt_starts_once_with_one_event(data: OrgJobsData) -> None:
    held = claim_new_run(data)
    start(data, held)
    data.advance_minutes(1)
    start(data, held)
    run = data.run_by_id(held.run_id)
    assert (run.status, data.job_row(run.job_id).status) == ("running", "running")
    assert run.deadline_at - run.started_at == timedelta(minutes=15)
    assert data.transitions("job run", held.run_id) == [("pending", "running")]
    [event] = data.events("job_run.started")
    assert event.payload["jobRunId"] == str(held.run_id)


@pytest.mark.parametrize(
    "other",
    [{"token": 2}, {"token": 0}, {"attempt_no": 2}],
    ids=["a later token", "an earlier one", "another attempt"],
)
def test_another_token_or_attempt_does_not_hold_the_attempt(
    data: OrgJobsData, other: dict[str, int]
) -> None:
    held = claim_new_run(data)
    other_hold = AttemptHold(**(vars(held) | other))
    assert (is_held(data, held), is_held(data, other_hold)) == (True, False)
    with pytest.raises(LostLeaseError):
        start(data, other_hold)
    assert data.run_by_id(held.run_id).status == "pending"


def test_unstarted_attempt_is_lost_with_its_lease(data: OrgJobsData) -> None:
    held = claim_new_run(data)
    data.expire_lease(held.run_id)
    assert not is_held(data, held)


def test_running_attempt_is_held_after_its_lease(data: OrgJobsData) -> None:
    held = claim_new_run(data)
    start(data, held)
    data.expire_lease(held.run_id)
    assert is_held(data, held)
    with data.database.transaction() as session:
        assert extend_lease(session, held, 3600.0).lease_until is not None
        follow_run(session, held_run(session, held), {"run": 1})
    run = data.run_by_id(held.run_id)
    assert (run.lease_until, run.following, is_held(data, held)) == (None, {"run": 1}, False)


def test_a_lease_is_extended_by_the_database_clock(data: OrgJobsData) -> None:
    held = claim_new_run(data)
    before = data.run_by_id(held.run_id).lease_until
    with data.database.transaction() as session:
        assert extend_lease(session, held, 3600.0).lease_until is not None
    assert data.run_by_id(held.run_id).lease_until - before > timedelta(minutes=50)


def test_busy_run_has_the_seconds_until_it_is_free(data: OrgJobsData) -> None:
    run_id = data.run_row(data.running_job(of_type=SERVICE)).id
    with (
        data.database.reading() as session,
        pytest.raises(JobRunBusyError, match=f"Job run {run_id}") as busy,
    ):
        check_unclaimed(session, run_id)
    assert busy.value.retry_after_seconds is not None
    assert 31 < busy.value.retry_after_seconds <= 61
    for gone in (database_now(-1.0), None):
        data.set_run(run_id, lease_until=gone)
        with data.database.reading() as session:
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

    def __init__(self, data: OrgJobsData, random: Random) -> None:
        self.data, self.database, self.clock, self.random = (
            data,
            data.database,
            data.clock,
            random,
        )
        self.holds: list[AttemptHold] = []
        self.started: dict[tuple[int, int], AttemptHold] = {}
        self.ended_runs: dict[int, tuple[object, ...]] = {}
        self.data.organisation(max_running=MOST_RUNNING)
        self.host_id = self.data.host()
        on_server = {"server_instance_id": self.data.server(host_id=self.host_id)}
        kinds = [
            (CHANGING, on_server),
            (CHANGING, on_server),
            (READING, on_server),
            (SERVICE, {}),
            (SERVICE, {}),
        ]
        policy = RetryPolicy(max_retries=ATTEMPTS - 1, backoff_ms=1000)
        self.jobs = [
            self.data.job(
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
            host = self.data.host_row(self.host_id)
            claimed = claim_for_host(
                session, host, "agent:box", self.random.randint(1, 3), 3600.0, self.clock.now()
            )
        self.holds += [one.hold for one in claimed]

    def worker_claims(self) -> None:
        with self.database.transaction() as session:
            run_id = self.data.run_row(self.random.choice(self.jobs[3:])).id
            claimed = claim_run(session, run_id, "worker", 3600.0, self.clock.now())
        self.holds += [] if claimed is None else [claimed.hold]

    def attempt_starts(self) -> None:
        hold, deadline = self._hold(), self.clock.now() + timedelta(minutes=15)
        if hold is not None:
            with suppress(LostLeaseError), self.database.transaction() as session:
                start_run(session, hold, deadline, self.clock.now(), actor="test")
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
        self.clock.advance(timedelta(seconds=seconds))

    def lease_expires(self) -> None:
        run = self.data.run_row(self._job())
        if run.lease_until is not None:
            self.data.expire_lease(run.id)

    def lost_attempts_are_reaped(self) -> None:
        reap_jobs(**self.data.services)

    def cancel_is_requested(self) -> None:
        with suppress(ConflictError):
            at_once = self.random.random() < 0.5
            cancel_job(self._job(), at_once=at_once, **self.data.context())

    def retry_is_requested(self) -> None:
        with suppress(ConflictError):
            retry_job(self._job(), **self.data.context())

    def check_invariants(self) -> None:
        with self.database.reading() as session:
            database_time = session.scalar(select(database_now()))
        jobs, runs = self.data.jobs(), self.data.rows(select(JobRunRow).order_by(JobRunRow.id))
        moves, attempts = defaultdict(list), defaultdict(list)
        for move in self.data.rows(select(TransitionRow).where(IS_RUN).order_by(TransitionRow.id)):
            moves[int(move.entity_id)].append((move.from_state, move.to_state))
        for attempt in self.data.rows(select(AttemptRow).order_by(AttemptRow.attempt_no)):
            attempts[attempt.run_id].append(attempt.attempt_no)
        for run in runs:
            self._check_run(run, moves[run.id], attempts[run.id])
        by_job = {job.id: [run.status for run in runs if run.job_id == job.id] for job in jobs}
        assert all(by_job[job.id][-1] == job.status for job in jobs)
        assert all(status in ENDED for states in by_job.values() for status in states[:-1])
        taken = [
            run
            for run in runs
            if run.status == "pending" and run.lease_until and run.lease_until > database_time
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


@pytest.mark.parametrize("seed", range(2))
def test_attempts_start_once_and_ended_runs_stay_ended(data: OrgJobsData, seed: int) -> None:
    lifecycle = JobLifecycle(data, Random(seed))
    for _ in range(STEPS):
        lifecycle.step()
    assert len(lifecycle.started) > 3, "too few attempts were started"
