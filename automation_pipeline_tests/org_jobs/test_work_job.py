"""One attempt at a service job: its outcome, its heartbeats, and lost workers."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from automation_pipeline.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.org_jobs import runs as job_runs
from automation_pipeline.org_jobs.jobs import cancel_job, release_jobs
from automation_pipeline.org_jobs.models.jobs import (
    AttemptEnd,
    OrgJobRun,
    RetryPolicy,
    attempt_cancelled,
    attempt_failed,
    attempt_succeeded,
)
from automation_pipeline.org_jobs.ports import JobRunner
from automation_pipeline.org_jobs.queries.attempts import JobRunBusyError
from automation_pipeline.org_jobs.runs import reap_jobs, retry_write, run_with_heartbeats, work_job
from automation_pipeline.storage.database import DatabaseBusyError, DatabaseUnreachableError
from automation_pipeline.storage.run_requests import mark_taken
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests import waiting
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.org_jobs.data import ORG, SERVICE, OrgJobsData
from automation_pipeline_tests.org_jobs.runners import LocalWork, RemoteWork

LEASE_SECONDS = 3600.0
NEVER = RetryPolicy(max_retries=0)


async def attempt(
    data: OrgJobsData, job_id: int, runner: JobRunner | None, dagster_run_id: str | None = None
) -> OrgJobRun:
    return await work_job(
        data.run_row(job_id).id,
        runners={} if runner is None else {SERVICE.name: runner},
        lease_seconds=LEASE_SECONDS,
        owner="worker",
        dagster_run_id=dagster_run_id,
        **data.services,
    )


def work(
    data: OrgJobsData, job_id: int, runner: JobRunner | None, dagster_run_id: str | None = None
) -> OrgJobRun:
    return waiting.run_with_fake_time(attempt(data, job_id, runner, dagster_run_id))


def add_service_job(data: OrgJobsData, **of_job: object) -> int:
    return data.job(of_type=SERVICE, **of_job)


def test_job_succeeds_with_events(data: OrgJobsData) -> None:
    job_id, runner = (
        add_service_job(data, payload={"url": "https://example.com"}),
        LocalWork(attempt_succeeded({"status": 204})),
    )
    run = work(data, job_id, runner)
    assert (run.status, run.result, run.finished_at, run.lease_until) == (
        "success",
        {"status": 204},
        data.now,
        None,
    )
    [context] = runner.contexts
    assert (context.org_id, context.job_id, context.run_id, context.attempt_no) == (
        ORG,
        job_id,
        run.id,
        1,
    )
    assert context.payload == {"url": "https://example.com"}
    assert [event.name for event in data.events()] == ["job_run.started", "job_run.succeeded"]
    assert data.transitions("job run", run.id) == [("pending", "running"), ("running", "success")]
    [attempt] = run.attempts
    assert (attempt.status, attempt.owner, attempt.attempt_no) == ("success", "worker", 1)
    counted = data.meter.drain()
    assert counted["job_run_count_total", 'status="success",type="HTTPS_CALL"'] == 1
    assert counted["job_run_duration_ms_bucket", 'le="1000.0"'] == 1


def test_ended_run_is_not_repeated(data: OrgJobsData) -> None:
    job_id, runner = add_service_job(data), LocalWork()
    work(data, job_id, runner)
    assert work(data, job_id, runner).status == "success"
    assert len(runner.contexts) == 1


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (attempt_failed("The receiver answered 500.", "HTTP_500"), "HTTP_500"),
        (TransientError("No answer."), "FAILED"),
        (ConflictError("It is in the way."), "CONFLICT"),
    ],
)
def test_failed_run_is_retried_when_it_is_due(data: OrgJobsData, end: object, code: str) -> None:
    job_id = add_service_job(data, retry=RetryPolicy(max_retries=1, backoff_ms=60_000))
    run = work(data, job_id, LocalWork(end))
    assert (run.status, run.attempt_no, run.error_code) == ("pending", 2, code)
    assert run.next_attempt_at == data.now + timedelta(minutes=1)
    assert work(data, job_id, LocalWork()).status == "pending"
    data.advance_minutes(1)
    assert work(data, job_id, LocalWork(end)).status == "failed"
    counted = data.meter.drain()
    assert counted["job_run_retries_total", 'type="HTTPS_CALL"'] == 1
    assert counted["job_run_count_total", 'status="failed",type="HTTPS_CALL"'] == 1


def test_attempts_of_a_run_share_a_unique_key(data: OrgJobsData) -> None:
    job_id, other = (
        add_service_job(data, retry=RetryPolicy(max_retries=1, backoff_ms=0)),
        add_service_job(data),
    )
    runner = LocalWork(TransientError("No answer."))
    for one in (job_id, job_id, other):
        work(data, one, runner)
    assert [(context.attempt_no, context.key) for context in runner.contexts] == [
        (number, f"org-job-run-{data.run_row(one).id}")
        for one, number in ((job_id, 1), (job_id, 2), (other, 1))
    ]


def test_result_is_recorded_after_a_transient_database_error(
    data: OrgJobsData, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [DatabaseBusyError("It gave way."), DatabaseUnreachableError("It is away.")]
    original = job_runs.end_attempts

    def end(*given: Any) -> object:
        if faults:
            raise faults.pop(0)
        return original(*given)

    monkeypatch.setattr(job_runs, "end_attempts", end)
    monkeypatch.setattr(job_runs, "FIRST_WAIT_SECONDS", 0.0)
    job_id, runner = add_service_job(data), LocalWork()
    run = work(data, job_id, runner)
    assert (run.status, len(run.attempts), len(runner.contexts), faults) == ("success", 1, 1, [])


@pytest.mark.parametrize(
    "fault", [InvalidInputError("No such address."), NotFoundError("No such rule.")]
)
def test_validation_error_is_not_retried(data: OrgJobsData, fault: Exception) -> None:
    run = work(data, add_service_job(data), LocalWork(fault))
    assert (run.status, run.attempt_no, run.error) == ("failed", 1, str(fault))


def test_type_without_a_runner_fails(data: OrgJobsData) -> None:
    run = work(data, add_service_job(data), None)
    assert (run.status, run.error_code) == ("failed", "UNSUPPORTED")
    assert run.error == "There is no runner for jobs of the type HTTPS_CALL."


@pytest.mark.parametrize(
    "runner", [LocalWork(ValueError("secret")), RemoteWork(fault=ValueError("secret"))]
)
def test_bug_of_a_runner_ends_the_attempt_and_is_raised(
    data: OrgJobsData, runner: JobRunner
) -> None:
    job_id = add_service_job(data, retry=NEVER)
    with pytest.raises(ValueError, match="secret"):
        work(data, job_id, runner)
    run = data.run_row(job_id)
    assert (run.status, run.error_code, run.following) == ("failed", "FAILED", None)
    assert run.error == "An internal error ended it (ValueError): see the log of its worker."


def test_run_of_another_worker_is_unchanged(data: OrgJobsData) -> None:
    job_id, runner = data.running_job(of_type=SERVICE), LocalWork()
    with pytest.raises(JobRunBusyError):
        work(data, job_id, runner)
    data.expire_lease(data.run_row(job_id).id)
    assert (work(data, job_id, runner).status, runner.contexts) == ("running", [])


def test_a_worker_before_the_due_time_exits_and_another_is_requested(
    data: OrgJobsData,
) -> None:
    data.organisation(max_running=1)
    job_id = add_service_job(data)
    release_jobs(database=data.database, clock=data.clock, limit=5)
    data.organisation(suspended_at=data.now)
    assert work(data, job_id, LocalWork()).status == "pending"
    assert data.run_row(job_id).requested_at is None
    data.organisation(suspended_at=None)
    assert len(release_jobs(database=data.database, clock=data.clock, limit=5)) == 1


def test_run_stores_its_dagster_run(data: OrgJobsData) -> None:
    """The Dagster run that started the attempt is stored, not the one of the newest request."""
    job_id = add_service_job(data)
    release_jobs(database=data.database, clock=data.clock, limit=5)
    with data.database.transaction() as session:
        mark_taken(session, data.requests()[0][0], "dagster-run-8")
    assert (
        work(data, job_id, LocalWork(), dagster_run_id="dagster-run-7").dagster_run_id
        == "dagster-run-7"
    )
    assert (
        work(data, job_id, LocalWork(), dagster_run_id="dagster-run-8").dagster_run_id
        == "dagster-run-7"
    )


def during_work(
    data: OrgJobsData, job_id: int, what: Callable[[], object], runner: LocalWork
) -> OrgJobRun:
    """Call `what` during the work, then let one more heartbeat happen."""

    async def working() -> OrgJobRun:
        task = asyncio.ensure_future(attempt(data, job_id, runner))
        await waiting.wait_until_async(lambda: bool(runner.contexts))
        await asyncio.to_thread(what)
        waiting.advance_time(LEASE_SECONDS / 4 + 1)
        return await task

    runner.never_ends = True
    return waiting.run_with_fake_time(working())


def cancel(data: OrgJobsData, job_id: int, *, at_once: bool = False) -> None:
    cancel_job(job_id, reason="Not now.", at_once=at_once, **data.context())


def test_a_cancel_request_takes_effect_at_the_next_heartbeat(data: OrgJobsData) -> None:
    job_id, runner = add_service_job(data), LocalWork()
    run = during_work(data, job_id, lambda: cancel(data, job_id), runner)
    assert (run.status, run.error, run.cancelled_by) == ("cancelled", "Not now.", "user:1")
    assert runner.was_cancelled


def test_run_that_was_ended_at_once_is_not_ended_again(data: OrgJobsData) -> None:
    job_id, runner = add_service_job(data), LocalWork()
    run = during_work(data, job_id, lambda: cancel(data, job_id, at_once=True), runner)
    assert (run.status, runner.was_cancelled, len(run.attempts)) == ("cancelled", True, 1)
    assert data.transitions("job run", run.id)[1:] == [("running", "cancelled")]


def test_work_past_the_limit_of_its_type_is_stopped(data: OrgJobsData) -> None:
    job_id, runner = add_service_job(data, retry=NEVER), LocalWork()
    run = during_work(data, job_id, lambda: data.advance_minutes(3), runner)
    assert (run.status, run.error_code, runner.was_cancelled) == ("failed", "TIME_LIMIT", True)
    assert run.error == "It did not end within 180 s, the limit of its type."


def test_worker_that_lost_its_lease_writes_nothing(data: OrgJobsData) -> None:
    job_id, runner = add_service_job(data, retry=RetryPolicy(backoff_ms=0)), LocalWork()

    def lose_lease() -> None:
        data.expire_lease(data.run_row(job_id).id)
        reap_jobs(**data.services)

    run = during_work(data, job_id, lose_lease, runner)
    assert (run.status, run.attempt_no, runner.was_cancelled) == ("pending", 2, True)
    assert [attempt.error_code for attempt in run.attempts] == ["STALE"]


def test_result_after_the_start_of_another_attempt_is_dropped(data: OrgJobsData) -> None:
    job_id = add_service_job(data, retry=RetryPolicy(backoff_ms=0))

    def lose_lease() -> None:
        data.expire_lease(data.run_row(job_id).id)
        reap_jobs(**data.services)
        assert (
            work(data, job_id, LocalWork(attempt_succeeded({"by": "the second"}))).status
            == "success"
        )

    run = work(data, job_id, LocalWork(attempt_succeeded({"by": "the first"}), during=lose_lease))
    assert (run.status, run.result, run.attempt_no) == ("success", {"by": "the second"}, 2)
    assert [attempt.status for attempt in run.attempts] == ["failed", "success"]


def test_a_heartbeat_extends_the_lease(data: OrgJobsData) -> None:
    job_id, runner = add_service_job(data), LocalWork(never_ends=True)

    async def working() -> bool:
        task = asyncio.ensure_future(attempt(data, job_id, runner))
        await waiting.wait_until_async(lambda: bool(runner.contexts))
        run_id = data.run_row(job_id).id
        await asyncio.to_thread(data.set_run, run_id, lease_until=database_now(1.0))
        before = data.run_by_id(run_id).lease_until
        waiting.advance_time(LEASE_SECONDS / 4 + 1)
        await waiting.wait_until_async(
            lambda: data.run_by_id(run_id).lease_until > before + timedelta(minutes=30)
        )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return runner.was_cancelled

    assert waiting.run_with_fake_time(working())
    assert data.run_row(job_id).status == "running"


def test_remote_work_continues_without_a_worker(data: OrgJobsData) -> None:
    job_id, runner = add_service_job(data), RemoteWork()
    run = work(data, job_id, runner)
    assert (run.status, run.following, run.lease_until) == ("running", {"key": f"{run.id}:1"}, None)
    assert run.deadline_at == data.now + timedelta(seconds=180)
    assert work(data, job_id, runner).status == "running"
    assert list(runner.started) == [f"{run.id}:1"]


def test_remote_work_that_cannot_start_fails(data: OrgJobsData) -> None:
    run = work(data, add_service_job(data), RemoteWork(fault=NotFoundError("No such rule.")))
    assert (run.status, run.error_code, run.error) == ("failed", "NOT_FOUND", "No such rule.")


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_job_of_a_killed_worker_ends_once(data: OrgJobsData, kind: str) -> None:
    job_id = add_service_job(data, retry=RetryPolicy(backoff_ms=0))
    run_id = data.run_row(job_id).id
    kill_during_work(data, run_id, kind)
    assert (data.run_by_id(run_id).status, data.run_by_id(run_id).following) == (
        "running",
        None,
    )
    with pytest.raises(JobRunBusyError):
        work(data, job_id, LocalWork())
    assert reap_jobs(**data.services).stale == 0
    data.expire_lease(run_id)
    assert reap_jobs(**data.services).stale == 1
    run = work(data, job_id, LocalWork())
    assert (run.status, run.attempt_no) == ("success", 2)
    assert [(attempt.status, attempt.error_code) for attempt in run.attempts] == [
        ("failed", "STALE"),
        ("success", None),
    ]
    assert [event.name for event in data.events()].count("job_run.succeeded") == 1


SCRIPT_THAT_DIES = """
import sys
from automation_pipeline_tests.org_jobs.processes import work_and_die
work_and_die(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
"""


def kill_during_work(data: OrgJobsData, run_id: int, kind: str) -> None:
    url = data.database.url.render_as_string(hide_password=False)
    given = [url, data.now.isoformat(), str(run_id), kind]
    killed = subprocess.run([sys.executable, "-c", SCRIPT_THAT_DIES, *given], check=False)
    assert killed.returncode == -signal.SIGKILL


HEARTBEAT_LEASE_SECONDS = 400.0
STOPPED = attempt_cancelled("Enough.")


class ScriptedHeartbeats:
    """Scripted results of heartbeats. Time advances to the next heartbeat after each one; the work ends
    after the last."""

    def __init__(self, *results: AttemptEnd | Exception | None) -> None:
        self._results, self.count, self.was_cancelled = results, 0, False

    def send(self) -> AttemptEnd | None:
        result = self._results[self.count]
        self.count += 1
        if isinstance(result, Exception):
            raise result
        return result

    def run(self, work: Callable[[], object] = lambda: None) -> AttemptEnd:
        return waiting.run_with_fake_time(self._run(work), threads=1)

    async def _run(self, work: Callable[[], object]) -> AttemptEnd:
        finished = asyncio.Event()
        task = asyncio.ensure_future(
            run_with_heartbeats(
                self.work(finished, work),
                heartbeat=self.send,
                lease_seconds=HEARTBEAT_LEASE_SECONDS,
            )
        )
        while self.count < len(self._results) and not task.done():
            expected_count = self.count + 1
            await asyncio.to_thread(lambda: None)
            waiting.advance_time(HEARTBEAT_LEASE_SECONDS / 4 + 1)
            await waiting.wait_until_async(
                lambda expected_count=expected_count: self.count >= expected_count or task.done()
            )
        await asyncio.to_thread(lambda: None)
        finished.set()
        return await task

    async def work(self, finished: asyncio.Event, work: Callable[[], object]) -> AttemptEnd:
        try:
            await finished.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        work()
        return attempt_succeeded()


def test_heartbeats_continue_until_the_work_ends() -> None:
    heartbeats = ScriptedHeartbeats(None, None)
    assert heartbeats.run() == attempt_succeeded()
    assert (heartbeats.count, heartbeats.was_cancelled) == (2, False)


def test_error_of_the_work_is_raised() -> None:
    def fail() -> None:
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        ScriptedHeartbeats().run(fail)


def test_heartbeat_can_stop_the_work() -> None:
    heartbeats = ScriptedHeartbeats(None, STOPPED)
    assert heartbeats.run() == STOPPED
    assert heartbeats.was_cancelled


def test_refused_heartbeat_stops_the_work() -> None:
    heartbeats = ScriptedHeartbeats(PermanentError("Another worker has the run."))
    with pytest.raises(PermanentError, match="Another worker"):
        heartbeats.run()
    assert heartbeats.was_cancelled


def test_transient_error_of_a_heartbeat_does_not_stop_the_work() -> None:
    heartbeats = ScriptedHeartbeats(TransientError("Away."), TransientError("Away."), None)
    assert heartbeats.run() == attempt_succeeded()


def test_failed_heartbeat_is_repeated_soon() -> None:
    heartbeats = ScriptedHeartbeats(TransientError("Away."), STOPPED)

    async def run_to_the_end() -> AttemptEnd:
        working = heartbeats.work(asyncio.Event(), lambda: None)
        task = asyncio.ensure_future(
            run_with_heartbeats(
                working, heartbeat=heartbeats.send, lease_seconds=HEARTBEAT_LEASE_SECONDS
            )
        )
        for count, seconds in (
            (1, HEARTBEAT_LEASE_SECONDS / 4 + 1),
            (2, HEARTBEAT_LEASE_SECONDS / 40),
        ):
            await asyncio.to_thread(lambda: None)
            waiting.advance_time(seconds)
            await waiting.wait_until_async(lambda count=count: heartbeats.count >= count)
        return await task

    assert waiting.run_with_fake_time(run_to_the_end(), threads=1) == STOPPED


def test_errors_for_longer_than_the_lease_stop_the_work() -> None:
    heartbeats = ScriptedHeartbeats(*[TransientError("Away.") for _ in range(6)])
    with pytest.raises(TransientError, match="Away"):
        heartbeats.run()
    assert heartbeats.was_cancelled
    assert 1 < heartbeats.count < 5


def test_stopped_work_may_clean_up() -> None:
    finished: list[str] = []

    async def work() -> AttemptEnd:
        try:
            return await asyncio.Future()
        finally:
            await asyncio.sleep(0)
            finished.append("clean-up")

    async def run_to_the_end() -> list[str]:
        await run_with_heartbeats(work(), heartbeat=lambda: STOPPED, lease_seconds=0.01)
        return list(finished)

    assert asyncio.run(run_to_the_end()) == ["clean-up"]


def test_work_that_ignores_the_stop_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_runs, "STOPS_WITHIN_SECONDS", 0.01)
    finished = asyncio.Event()

    async def stubborn() -> AttemptEnd:
        while not finished.is_set():
            try:
                await finished.wait()
            except asyncio.CancelledError:
                continue
        return attempt_succeeded()

    async def run_to_the_end() -> AttemptEnd:
        end = await run_with_heartbeats(stubborn(), heartbeat=lambda: STOPPED, lease_seconds=0.01)
        finished.set()
        return end

    assert waiting.run_with_fake_time(run_to_the_end()) == STOPPED


AN_HOUR = 3600.0


class FailingWrite:
    """A write that raises these errors one after another and then succeeds."""

    def __init__(self, *faults: Exception) -> None:
        self._faults: Iterator[Exception] = iter(faults)
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        fault = next(self._faults, None)
        if fault is not None:
            raise fault
        return self.count


def transient_errors(times: int) -> list[TransientError]:
    return [TransientError("Away.") for _ in range(times)]


def test_transient_error_of_a_write_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_runs, "FIRST_WAIT_SECONDS", 0.0)
    assert (
        waiting.run_with_fake_time(retry_write(FailingWrite(*transient_errors(3)), seconds=AN_HOUR))
        == 4
    )


def test_the_waits_before_a_write_is_repeated_double_up_to_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(retry_write(FailingWrite(*transient_errors(8)), seconds=AN_HOUR))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


@every_case("fault", [PermanentError("Never."), ValueError("a fault")])
def test_permanent_error_of_a_write_is_raised(fault: Exception) -> None:
    failing_write = FailingWrite(fault)
    with pytest.raises(type(fault)):
        waiting.run_with_fake_time(retry_write(failing_write, seconds=AN_HOUR))
    assert failing_write.count == 1


def test_error_is_raised_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_runs, "FIRST_WAIT_SECONDS", 60.0)
    monkeypatch.setattr(job_runs, "LONGEST_WAIT_SECONDS", 60.0)
    failing_write = FailingWrite(*transient_errors(9))

    async def trying() -> None:
        task = asyncio.ensure_future(retry_write(failing_write, seconds=90.0))
        await waiting.wait_until_async(lambda: failing_write.count == 1)
        await asyncio.to_thread(lambda: None)
        waiting.advance_time(61.0)
        with pytest.raises(TransientError, match="Away"):
            await task

    waiting.run_with_fake_time(trying(), threads=1)
    assert failing_write.count == 2
