"""Use cases of job runs: work on an attempt, follow work that goes on elsewhere, end unattended
runs."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import TypeVar

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, TransientError
from automation_pipeline.core.logs import log
from automation_pipeline.core.metrics import Meter, observe
from automation_pipeline.org_jobs.events import ENDED_RUNS, RETRIES, RUN_DURATION_MS, STALE_RUNS
from automation_pipeline.org_jobs.models.agents import LEASE_SECONDS as AGENT_SECONDS
from automation_pipeline.org_jobs.models.jobs import (
    EXPIRED,
    STALE,
    TIME_LIMIT,
    UNSUPPORTED,
    AttemptEnd,
    OrgJobRun,
    Performer,
    attempt_cancelled,
    attempt_failed,
    attempt_too_long,
    end_of_error,
    run_key,
)
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline.org_jobs.models.states import OrgJobsRunState
from automation_pipeline.org_jobs.ports import InProcessRunner, JobContext, JobRunner, RemoteRunner
from automation_pipeline.org_jobs.queries.attempts import (
    EndedRun,
    FollowedRun,
    LostLeaseError,
    abandoned_runs,
    begin_run,
    check_unclaimed,
    end_attempts,
    extend_lease,
    followed_runs,
    held_run,
    lock_followed_runs,
    release_unstarted,
)
from automation_pipeline.org_jobs.queries.jobs import get_run
from automation_pipeline.org_jobs.queries.queue import (
    ClaimedRun,
    claim_run,
    clear_request,
    lengthen_closed,
)
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
    """In a thread, once and then for so long. What failed may have been done all the same: it is
    safe to repeat."""
    clock = asyncio.get_running_loop().time
    until, wait = clock() + seconds, FIRST_WAIT_SECONDS
    while True:
        try:
            return await asyncio.to_thread(write)
        except TransientError as error:
            if clock() + wait > until:
                raise
            _log.warning("What came of a job could not be written, which is tried again: %s", error)
        await asyncio.sleep(wait)
        wait = min(wait * 2, LONGEST_WAIT_SECONDS)


# Work that was told to stop may clean up for so long.
STOPS_WITHIN_SECONDS = 10.0
# After a heartbeat that failed.
_SOON_SECONDS = 1.0


async def run_with_heartbeats(
    work: Coroutine[object, object, AttemptEnd],
    *,
    keep: Callable[[], AttemptEnd | None],
    lease_seconds: float,
) -> AttemptEnd:
    """How it ended. `keep` is a heartbeat: it answers with an end where the work is to stop, and
    its errors stop the work too; a database that is away is waited for while the lease lasts. What
    the work raises, this does too."""
    task, clock = asyncio.ensure_future(work), asyncio.get_running_loop().time
    kept_at, wait = clock(), lease_seconds / 4
    try:
        while True:
            await asyncio.wait({task}, timeout=wait)
            if task.done():
                return task.result()
            asked_at = clock()
            try:
                stopped = await asyncio.to_thread(keep)
            except TransientError as error:
                if clock() - kept_at > lease_seconds:
                    raise
                _log.warning("A job's lease could not be extended, which is tried again: %s", error)
                wait = min(lease_seconds / 4, _SOON_SECONDS)
                continue
            kept_at, wait = asked_at, lease_seconds / 4
            if stopped is not None:
                await _stop(task)
                return stopped
    finally:
        await _stop(task)


async def _stop(task: "asyncio.Future[AttemptEnd]") -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=STOPS_WITHIN_SECONDS)
    if task.done() and not task.cancelled():
        task.exception()  # so that nobody complains that it was never looked at


async def work_job(  # noqa: PLR0913  the collaborators by name
    run_id: int,
    *,
    doers: Mapping[str, JobRunner],
    lease_seconds: float,
    database: Database,
    clock: Clock,
    meter: Meter,
    owner: str,
    dagster_run_id: str | None = None,
) -> OrgJobRun:
    """How the run stands then. What is not to be begun, now or ever, is left alone. RunBusyError:
    somebody else is at it. A bug of a doer ends the attempt, and is raised all the same."""
    worker = _Worker(run_id, lease_seconds, database, clock, meter, owner)
    claimed = await asyncio.to_thread(worker.begin, dagster_run_id)
    if claimed is not None:
        await worker.work(claimed, doers.get(claimed.type))
    return await asyncio.to_thread(worker.standing)


class _Worker:
    def __init__(
        self,
        run_id: int,
        lease_seconds: float,
        database: Database,
        clock: Clock,
        meter: Meter,
        owner: str,
    ) -> None:
        self._run_id, self._lease_seconds, self._database = run_id, lease_seconds, database
        self._clock, self._meter, self._owner = clock, meter, owner

    def begin(self, dagster_run_id: str | None) -> ClaimedRun | None:
        """None: it is not to be begun. Where it only waits, another worker is asked for when its
        turn has come."""
        with self._database.transaction() as session:
            now = self._clock.now()
            claimed = claim_run(session, self._run_id, self._owner, self._lease_seconds, now)
            if claimed is None:
                check_unclaimed(session, self._run_id)
                clear_request(session, self._run_id)
                return None
            deadline = now + timedelta(seconds=claimed.limit_seconds)
            run = begin_run(
                session, claimed.hold, deadline, now, within=ALL_ORGANISATIONS, actor=self._owner
            )
            run.dagster_run_id = dagster_run_id
            return claimed

    async def work(self, claimed: ClaimedRun, doer: JobRunner | None) -> None:
        try:
            end = await self._end(claimed, doer)
        except LostLeaseError:
            return
        except AutomationError as error:
            end = end_of_error(error)
        except Exception as bug:  # whatever it is: the attempt ends, and it is raised on
            words = f"A fault of this system ended it ({type(bug).__name__}): its worker's log says more."
            await self._tell(claimed, attempt_failed(words))
            raise
        if end is not None:
            await self._tell(claimed, end)

    def standing(self) -> OrgJobRun:
        with self._database.reading() as session:
            return get_run(session, self._run_id, ALL_ORGANISATIONS)

    async def _end(self, claimed: ClaimedRun, doer: JobRunner | None) -> AttemptEnd | None:
        """None: it goes on elsewhere."""
        asked = _asked(claimed)
        if isinstance(doer, InProcessRunner):
            return await run_with_heartbeats(
                doer.work(asked),
                keep=lambda: self._keep(claimed),
                lease_seconds=self._lease_seconds,
            )
        if isinstance(doer, RemoteRunner):
            return await asyncio.to_thread(self._begin_elsewhere, claimed, doer, asked)
        return attempt_failed(f"Nobody here does jobs of the type {claimed.type}.", UNSUPPORTED)

    def _begin_elsewhere(
        self, claimed: ClaimedRun, doer: RemoteRunner, asked: JobContext
    ) -> AttemptEnd | None:
        """From here on nobody has it, and nobody need have: what it follows is kept with what was
        begun."""
        with self._database.as_one() as session:
            run = held_run(session, claimed.hold, ALL_ORGANISATIONS)
            if run.cancel_requested_at is not None:
                return attempt_cancelled(run.cancel_reason)
            run.following, run.lease_until = dict(doer.start(asked)), None
            return None

    def _keep(self, claimed: ClaimedRun) -> AttemptEnd | None:
        with self._database.transaction() as session:
            run = extend_lease(session, claimed.hold, self._lease_seconds, ALL_ORGANISATIONS)
            if run.cancel_requested_at is not None:
                return attempt_cancelled(run.cancel_reason)
            is_late = run.deadline_at is not None and run.deadline_at <= self._clock.now()
            return attempt_too_long(claimed.limit_seconds) if is_late else None

    async def _tell(self, claimed: ClaimedRun, end: AttemptEnd) -> None:
        """What was done and not told would be done again, so that no passing fault of the database
        may prevent it."""
        await retry_write(lambda: self._write_end(claimed, end), seconds=self._lease_seconds)

    def _write_end(self, claimed: ClaimedRun, end: AttemptEnd) -> None:
        """Nothing, where the attempt was given up meanwhile."""
        now = self._clock.now()
        try:
            with self._database.transaction() as session:
                run = held_run(session, claimed.hold, ALL_ORGANISATIONS, to_end=True)
                ended = end_attempts(session, {run.id: end}, self._owner, now)
        except LostLeaseError:
            return
        count_ended_runs(ended, meter=self._meter, now=now)


def _asked(claimed: ClaimedRun) -> JobContext:
    hold = claimed.hold
    return JobContext(
        org_id=claimed.org_id,
        job_id=claimed.job_id,
        run_id=hold.run_id,
        attempt_no=hold.attempt_no,
        payload=claimed.payload,
        key=run_key(hold.run_id),
    )


FOLLOWER = "follower"
FOLLOW_BATCH = 500
_TOO_LONG = "It takes longer than its type of job may."


def follow_jobs(
    *, doers: Mapping[str, JobRunner], database: Database, clock: Clock, meter: Meter
) -> int:
    """How many attempts have ended. What fails with one of them is told after the others are
    through."""
    follower = _Follower(doers, database, clock, meter)
    last_id, more = 0, True
    while more:
        with database.reading() as session:
            page = followed_runs(session, last_id, FOLLOW_BATCH)
        follower.look_at(page)
        more = len(page) == FOLLOW_BATCH
        last_id = page[-1].id if page else last_id
    if follower.faults:
        raise follower.faults[0]
    return follower.ended


class _Follower:
    def __init__(
        self, doers: Mapping[str, JobRunner], database: Database, clock: Clock, meter: Meter
    ) -> None:
        self._doers, self._database, self._clock, self._meter = doers, database, clock, meter
        self.ended = 0
        self.faults: list[AutomationError] = []

    def look_at(self, runs: Sequence[FollowedRun]) -> None:
        for type_, of_type in groupby(
            sorted(runs, key=lambda run: run.type), key=lambda run: run.type
        ):
            its, doer = list(of_type), self._doers.get(type_)
            try:
                self._look(its, doer) if isinstance(doer, RemoteRunner) else self._give_up(its)
            except AutomationError as error:
                self.faults.append(error)

    def _look(self, runs: Sequence[FollowedRun], doer: RemoteRunner) -> None:
        ends = doer.look({run.id: run.following for run in runs})
        if ends:
            self._end([run for run in runs if run.id in ends], ends)
        for run in runs:
            if run.id not in ends and (run.is_cancel_wanted or run.is_late(self._clock.now())):
                try:
                    self._stop(run, doer)
                except AutomationError as error:
                    self.faults.append(error)

    def _stop(self, run: FollowedRun, doer: RemoteRunner) -> None:
        """Whoever is asked to stop may take a while for it, but not longer than the time that is
        left."""
        now, ended = self._clock.now(), list[EndedRun]()
        with self._database.as_one() as session:
            if not lock_followed_runs(session, {run.id: run.following}):
                return
            is_over = doer.cancel(
                run.following, run.cancelled_by or FOLLOWER, run.cancel_reason or _reason(run)
            )
            if is_over or run.is_late(now):
                end = (
                    attempt_cancelled(run.cancel_reason)
                    if run.is_cancel_wanted
                    else attempt_too_long(run.limit_seconds)
                )
                ended = end_attempts(session, {run.id: end}, run.cancelled_by or FOLLOWER, now)
        self._count(ended)

    def _give_up(self, runs: Sequence[FollowedRun]) -> None:
        """Of a type that nobody does here any more."""
        words = f"Nobody here does jobs of the type {runs[0].type}."
        self._end(runs, {run.id: attempt_failed(words, UNSUPPORTED) for run in runs})

    def _end(self, runs: Sequence[FollowedRun], ends: Mapping[int, AttemptEnd]) -> None:
        with self._database.transaction() as session:
            held = lock_followed_runs(session, {run.id: run.following for run in runs})
            ended = end_attempts(
                session, {id_: ends[id_] for id_ in held}, FOLLOWER, self._clock.now()
            )
        self._count(ended)

    def _count(self, ended: Sequence[EndedRun]) -> None:
        self.ended += len(ended)
        count_ended_runs(ended, meter=self._meter, now=self._clock.now())


def _reason(run: FollowedRun) -> str | None:
    return None if run.is_cancel_wanted else _TOO_LONG


REAPER = "reaper"
REAP_BATCH = 200


@dataclass(frozen=True)
class ReapReport:
    """How many attempts ended how, and how many runs were given back without one."""

    stale: int = 0
    too_long: int = 0
    expired: int = 0
    cancelled: int = 0
    freed: int = 0

    def __str__(self) -> str:
        words = f"{self.stale} stale, {self.too_long} too long, {self.expired} expired, {self.cancelled} cancelled"
        return f"Gave up {words}; {self.freed} free again."


def reap_jobs(
    *, database: Database, clock: Clock, meter: Meter, lease_seconds: float = 60.0
) -> ReapReport:
    """So many at once, at most; the rest is for the next look. `lease_seconds` are those of this
    system's workers."""
    patience = {Performer.AGENT: AGENT_SECONDS, Performer.SERVICE: lease_seconds}
    now = clock.now()
    with database.transaction() as session:
        ends = abandoned_runs(session, patience, now, REAP_BATCH)
        ended = end_attempts(session, ends, REAPER, now)
    with database.transaction() as session:
        freed = release_unstarted(session, REAP_BATCH)
    with database.transaction() as session:
        lengthen_closed(session, now, REAP_BATCH)
    count_ended_runs(ended, meter=meter, now=now)
    return _report(ended, len(freed))


def _report(ended: Sequence[EndedRun], freed: int) -> ReapReport:
    codes = [one.end.error_code for one in ended]
    return ReapReport(
        stale=codes.count(STALE),
        too_long=codes.count(TIME_LIMIT),
        expired=codes.count(EXPIRED),
        cancelled=[one.end.status for one in ended].count(OrgJobsRunState.CANCELLED),
        freed=freed,
    )
