"""Use cases of job runs: work on an attempt, follow work of other packages, end abandoned runs."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, TransientError
from automation_pipeline.core.logs import log
from automation_pipeline.core.metrics import Meter, observe
from automation_pipeline.org_jobs.events import ENDED_RUNS, RETRIES, RUN_DURATION_MS, STALE_RUNS
from automation_pipeline.org_jobs.models.jobs import (
    AGENT_LEASE_SECONDS,
    EXPIRED,
    STALE,
    TIME_LIMIT,
    UNSUPPORTED,
    AttemptEnd,
    OrgJobRun,
    OrgJobsRunState,
    Performer,
    attempt_cancelled,
    attempt_failed,
    attempt_too_long,
    end_of_error,
    run_key,
)
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline.org_jobs.ports import InProcessRunner, JobContext, JobRunner, RemoteRunner
from automation_pipeline.org_jobs.queries.attempts import (
    EndedRun,
    FollowedRun,
    LostLeaseError,
    abandoned_runs,
    check_unclaimed,
    end_attempts,
    extend_lease,
    follow_run,
    followed_runs,
    held_run,
    lock_followed_runs,
    release_unstarted,
    start_run,
)
from automation_pipeline.org_jobs.queries.jobs import get_run
from automation_pipeline.org_jobs.queries.queue import (
    AttemptHold,
    ClaimedRun,
    claim_run,
    clear_request,
    extend_expiry_of_closed,
)
from automation_pipeline.org_jobs.tables import JobRunRow
from automation_pipeline.storage.database import Database


def count_ended_runs(ended: Sequence[EndedRun], *, meter: Meter, now: datetime) -> None:
    """After the commit."""
    for one in ended:
        if one.is_final:
            meter.count(ENDED_RUNS, status=one.decided.state, type=one.job.type)
        else:
            meter.count(RETRIES, type=one.job.type)
        if one.end.error_code == STALE:
            meter.count(STALE_RUNS, type=one.job.type)
        if one.was is OrgJobsRunState.RUNNING and one.run.started_at is not None:
            observe(
                meter, RUN_DURATION_MS, max((now - one.run.started_at).total_seconds(), 0.0) * 1000
            )


FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0

Result = TypeVar("Result")

_log = log(__name__)


async def retry_write(write: Callable[[], Result], *, seconds: float) -> Result:
    """Run the write in a thread, and retry it after transient errors for that long. The write must
    be safe to repeat."""
    clock = asyncio.get_running_loop().time
    until, wait = clock() + seconds, FIRST_WAIT_SECONDS
    while True:
        try:
            return await asyncio.to_thread(write)
        except TransientError as error:
            if clock() + wait > until:
                raise
            _log.warning("The result of a job could not be written, retrying: %s", error)
        await asyncio.sleep(wait)
        wait = min(wait * 2, LONGEST_WAIT_SECONDS)


# The time for cancelled work to clean up.
STOPS_WITHIN_SECONDS = 10.0
# A failed heartbeat is repeated after this time.
_REPEAT_SECONDS = 1.0


async def run_with_heartbeats(
    work: Coroutine[object, object, AttemptEnd],
    *,
    heartbeat: Callable[[], AttemptEnd | None],
    lease_seconds: float,
) -> AttemptEnd:
    """Return how the work ended. `heartbeat` extends the lease; when it returns an end, or fails, the
    work is stopped. Its transient errors are tolerated while the lease lasts. Errors of the work
    are raised."""
    task, clock = asyncio.ensure_future(work), asyncio.get_running_loop().time
    extended_at, wait = clock(), lease_seconds / 4
    try:
        while True:
            await asyncio.wait({task}, timeout=wait)
            if task.done():
                return task.result()
            sent_at = clock()
            try:
                stopped = await asyncio.to_thread(heartbeat)
            except TransientError as error:
                if clock() - extended_at > lease_seconds:
                    raise
                _log.warning("A job's lease could not be extended, retrying: %s", error)
                wait = _REPEAT_SECONDS
                continue
            extended_at, wait = sent_at, lease_seconds / 4
            if stopped is not None:
                await _stop(task)
                return stopped
    finally:
        await _stop(task)


async def _stop(task: "asyncio.Future[AttemptEnd]") -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=STOPS_WITHIN_SECONDS)
    if task.done() and not task.cancelled():
        task.exception()  # marks the exception as retrieved


async def work_job(  # noqa: PLR0913  the collaborators by name
    run_id: int,
    *,
    runners: Mapping[str, JobRunner],
    lease_seconds: float,
    database: Database,
    clock: Clock,
    meter: Meter,
    owner: str,
    dagster_run_id: str | None = None,
) -> OrgJobRun:
    """Work on one attempt at the run, or on none if it cannot start now. JobRunBusyError: another
    worker holds it. A bug in a runner ends the attempt and is raised."""
    worker = _Worker(run_id, runners, lease_seconds, database, clock, meter, owner)
    claimed = await asyncio.to_thread(worker.begin, dagster_run_id)
    if claimed is not None:
        await worker.work(claimed)
    return await asyncio.to_thread(worker.status)


@dataclass(frozen=True)
class _Worker:
    run_id: int
    runners: Mapping[str, JobRunner]
    lease_seconds: float
    database: Database
    clock: Clock
    meter: Meter
    owner: str

    def begin(self, dagster_run_id: str | None) -> ClaimedRun | None:
        """None: the run cannot start. If it only waits, another worker is requested later."""
        with self.database.transaction() as session:
            now = self.clock.now()
            claimed = claim_run(session, self.run_id, self.owner, self.lease_seconds, now)
            if claimed is None:
                check_unclaimed(session, self.run_id)
                clear_request(session, self.run_id)
                return None
            deadline = now + timedelta(seconds=claimed.job.limit_seconds)
            run = start_run(session, claimed.hold, deadline, now, actor=self.owner)
            run.dagster_run_id = dagster_run_id
            return claimed

    async def work(self, claimed: ClaimedRun) -> None:
        try:
            end = await self._end(claimed)
        except LostLeaseError:
            return
        except AutomationError as error:
            end = end_of_error(error)
        except Exception as bug:  # the attempt ends in spite of the bug
            error = f"An internal error ended it ({type(bug).__name__}): see the log of its worker."
            await self._record(claimed.hold, attempt_failed(error))
            raise
        if end is not None:
            await self._record(claimed.hold, end)

    def status(self) -> OrgJobRun:
        with self.database.reading() as session:
            return get_run(session, self.run_id, ALL_ORGANISATIONS)

    async def _end(self, claimed: ClaimedRun) -> AttemptEnd | None:
        """None: another package continues the work."""
        runner = self.runners.get(claimed.job.type)
        context = JobContext(
            org_id=claimed.run.org_id,
            job_id=claimed.job.id,
            run_id=self.run_id,
            attempt_no=claimed.run.attempt_no,
            payload=claimed.job.payload,
            key=run_key(self.run_id),
        )
        if isinstance(runner, InProcessRunner):
            return await run_with_heartbeats(
                runner.work(context),
                heartbeat=partial(self._heartbeat, claimed),
                lease_seconds=self.lease_seconds,
            )
        if isinstance(runner, RemoteRunner):
            return await asyncio.to_thread(self._start_remote, claimed.hold, runner, context)
        return _unsupported(claimed.job.type)

    def _start_remote(
        self, hold: AttemptHold, runner: RemoteRunner, context: JobContext
    ) -> AttemptEnd | None:
        """The start of the work and the run's `following` are committed together."""
        with self.database.single_transaction() as session:
            run = held_run(session, hold)
            if run.cancel_requested_at is not None:
                return attempt_cancelled(run.cancel_reason)
            follow_run(session, run, runner.start(context))
            return None

    def _heartbeat(self, claimed: ClaimedRun) -> AttemptEnd | None:
        with self.database.transaction() as session:
            run = extend_lease(session, claimed.hold, self.lease_seconds)
            if run.cancel_requested_at is not None:
                return attempt_cancelled(run.cancel_reason)
            is_late = run.deadline_at is not None and run.deadline_at <= self.clock.now()
            return attempt_too_long(claimed.job.limit_seconds) if is_late else None

    async def _record(self, hold: AttemptHold, end: AttemptEnd) -> None:
        """Retried while the database is unavailable, because work without a recorded end would run again."""
        await retry_write(partial(self._write_end, hold, end), seconds=self.lease_seconds)

    def _write_end(self, hold: AttemptHold, end: AttemptEnd) -> None:
        try:
            with self.database.transaction() as session:
                held_run(session, hold, to_end=True)
                now = self.clock.now()
                ended = end_attempts(session, {hold.run_id: end}, self.owner, now)
        except LostLeaseError:
            return
        count_ended_runs(ended, meter=self.meter, now=now)


def _unsupported(type_: str) -> AttemptEnd:
    return attempt_failed(f"There is no runner for jobs of the type {type_}.", UNSUPPORTED)


FOLLOWER = "follower"
FOLLOW_BATCH = 500
_TOO_LONG = "It takes longer than the limit of its job type."


def follow_jobs(
    *, runners: Mapping[str, JobRunner], database: Database, clock: Clock, meter: Meter
) -> int:
    """Return how many attempts ended. An error of one attempt is raised after all were polled."""
    follower = _Follower(runners, database, clock, meter)
    last_id = 0
    while page := database.read(followed_runs, last_id, FOLLOW_BATCH):
        follower.poll(page)
        last_run, _ = page[-1]
        last_id = last_run.id
    if follower.faults:
        raise follower.faults[0]
    return follower.ended


@dataclass
class _Follower:
    runners: Mapping[str, JobRunner]
    database: Database
    clock: Clock
    meter: Meter
    ended: int = 0
    faults: list[AutomationError] = field(default_factory=list)

    def poll(self, page: Sequence[FollowedRun]) -> None:
        by_type: defaultdict[str, list[JobRunRow]] = defaultdict(list)
        for run, job in page:
            by_type[job.type].append(run)
        for type_, runs in by_type.items():
            runner = self.runners.get(type_)
            try:
                if isinstance(runner, RemoteRunner):
                    self._poll_runner(runs, runner)
                else:
                    self._end(runs, {run.id: _unsupported(type_) for run in runs})
            except AutomationError as error:
                self.faults.append(error)

    def _poll_runner(self, runs: Sequence[JobRunRow], runner: RemoteRunner) -> None:
        ends = runner.find_ended({run.id: run.following or {} for run in runs})
        self._end([run for run in runs if run.id in ends], ends)
        for run in runs:
            is_unwanted = run.cancel_requested_at is not None or self._is_late(run)
            if run.id not in ends and is_unwanted:
                try:
                    self._stop(run, runner)
                except AutomationError as error:
                    self.faults.append(error)

    def _is_late(self, run: JobRunRow) -> bool:
        return run.deadline_at is not None and run.deadline_at <= self.clock.now()

    def _stop(self, run: JobRunRow, runner: RemoteRunner) -> None:
        """The other package has until the deadline to stop."""
        ended, actor = list[EndedRun](), run.cancelled_by or FOLLOWER
        is_cancel_wanted = run.cancel_requested_at is not None
        with self.database.single_transaction() as session:
            if not lock_followed_runs(session, [run]):
                return
            reason = run.cancel_reason if is_cancel_wanted else _TOO_LONG
            if runner.cancel(run.following or {}, actor, reason) or self._is_late(run):
                end = attempt_cancelled(run.cancel_reason)
                if not is_cancel_wanted and run.deadline_at and run.started_at:
                    end = attempt_too_long((run.deadline_at - run.started_at).total_seconds())
                ended = end_attempts(session, {run.id: end}, actor, self.clock.now())
        self._count(ended)

    def _end(self, runs: Sequence[JobRunRow], ends: Mapping[int, AttemptEnd]) -> None:
        if not runs:
            return
        with self.database.transaction() as session:
            kept = {run_id: ends[run_id] for run_id in lock_followed_runs(session, runs)}
            ended = end_attempts(session, kept, FOLLOWER, self.clock.now())
        self._count(ended)

    def _count(self, ended: Sequence[EndedRun]) -> None:
        self.ended += len(ended)
        count_ended_runs(ended, meter=self.meter, now=self.clock.now())


REAPER = "reaper"
REAP_BATCH = 200


@dataclass(frozen=True)
class ReapReport:
    """How many attempts ended in each way, and how many unstarted runs were released."""

    stale: int = 0
    too_long: int = 0
    expired: int = 0
    cancelled: int = 0
    freed: int = 0

    def __str__(self) -> str:
        counts = f"{self.stale} stale, {self.too_long} too long, {self.expired} expired, {self.cancelled} cancelled"
        return f"Ended {counts}; released {self.freed}."


def reap_jobs(
    *, database: Database, clock: Clock, meter: Meter, lease_seconds: float = 60.0
) -> ReapReport:
    """End abandoned attempts, at most one batch per call. `lease_seconds` is the lease of workers."""
    silence_limits = {Performer.AGENT: AGENT_LEASE_SECONDS, Performer.SERVICE: lease_seconds}
    now = clock.now()
    with database.transaction() as session:
        ends = abandoned_runs(session, silence_limits, now, REAP_BATCH)
        ended = end_attempts(session, ends, REAPER, now)
    with database.transaction() as session:
        freed = release_unstarted(session, REAP_BATCH)
    with database.transaction() as session:
        extend_expiry_of_closed(session, now, REAP_BATCH)
    count_ended_runs(ended, meter=meter, now=now)
    codes = [one.end.error_code for one in ended]
    return ReapReport(
        stale=codes.count(STALE),
        too_long=codes.count(TIME_LIMIT),
        expired=codes.count(EXPIRED),
        cancelled=[one.end.status for one in ended].count(OrgJobsRunState.CANCELLED),
        freed=len(freed),
    )
