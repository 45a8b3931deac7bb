"""One attempt at a job that this system does: claim it, begin it, do it or have it begun elsewhere, and end it."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, InvalidInputError
from automation_pipeline.core.meter import Meter
from automation_pipeline.org_jobs.domain.endings import AttemptEnd, cancelled, failed, too_long
from automation_pipeline.org_jobs.domain.failures import end_of
from automation_pipeline.org_jobs.domain.job_types import job_type
from automation_pipeline.org_jobs.domain.keys import run_key
from automation_pipeline.org_jobs.domain.org_job import OrgJobRun
from automation_pipeline.org_jobs.domain.retry_policy import UNSUPPORTED
from automation_pipeline.org_jobs.domain.tenancy import EVERYWHERE
from automation_pipeline.org_jobs.ports import AskedJob, BegunElsewhere, DoneHere, JobDoer
from automation_pipeline.org_jobs.stages.count_ends import count_ends
from automation_pipeline.org_jobs.stages.keep_trying import keep_trying
from automation_pipeline.org_jobs.stages.tend_attempt import tend_attempt
from automation_pipeline.org_jobs.store.claims import ClaimedRun, claim_run
from automation_pipeline.org_jobs.store.endings import end_attempts
from automation_pipeline.org_jobs.store.holds import LostLeaseError, begin_run, check_nobody_has, extend, held_run
from automation_pipeline.org_jobs.store.job_views import get_run
from automation_pipeline.org_jobs.store.queue import forget_request
from automation_pipeline.storage.database import Database

# Of a type that this version does not know any more.
_LIMIT_SECONDS = 900


async def work_job(  # noqa: PLR0913  the collaborators by name
    run_id: int,
    *,
    doers: Mapping[str, JobDoer],
    lease_seconds: float,
    database: Database,
    clock: Clock,
    meter: Meter,
    owner: str,
    dagster_run_id: str | None = None,
) -> OrgJobRun:
    """How the run stands then. What is not to be begun, now or ever, is left alone. RunBusyError: somebody else is at
    it. A bug of a doer ends the attempt, and is raised all the same."""
    worker = _Worker(run_id, lease_seconds, database, clock, meter, owner)
    claimed = await asyncio.to_thread(worker.begin, dagster_run_id)
    if claimed is not None:
        await worker.work(claimed, doers.get(claimed.type))
    return await asyncio.to_thread(worker.standing)


class _Worker:
    def __init__(
        self, run_id: int, lease_seconds: float, database: Database, clock: Clock, meter: Meter, owner: str
    ) -> None:
        self._run_id, self._lease_seconds, self._database = run_id, lease_seconds, database
        self._clock, self._meter, self._owner = clock, meter, owner

    def begin(self, dagster_run_id: str | None) -> ClaimedRun | None:
        """None: it is not to be begun. Where it only waits, another worker is asked for when its turn has come."""
        with self._database.transaction() as session:
            now = self._clock.now()
            claimed = claim_run(session, self._run_id, self._owner, self._lease_seconds, now)
            if claimed is None:
                check_nobody_has(session, self._run_id)
                forget_request(session, self._run_id)
                return None
            deadline = now + timedelta(seconds=_limit_seconds(claimed.type))
            run = begin_run(session, claimed.hold, deadline, now, within=EVERYWHERE, actor=self._owner)
            run.dagster_run_id = dagster_run_id
            return claimed

    async def work(self, claimed: ClaimedRun, doer: JobDoer | None) -> None:
        try:
            end = await self._end(claimed, doer)
        except LostLeaseError:
            return
        except AutomationError as error:
            end = end_of(error)
        except Exception as bug:  # whatever it is: the attempt ends, and it is raised on
            words = f"A fault of this system ended it ({type(bug).__name__}): its worker's log says more."
            await self._tell(claimed, failed(words))
            raise
        if end is not None:
            await self._tell(claimed, end)

    def standing(self) -> OrgJobRun:
        with self._database.reading() as session:
            return get_run(session, self._run_id, EVERYWHERE)

    async def _end(self, claimed: ClaimedRun, doer: JobDoer | None) -> AttemptEnd | None:
        """None: it goes on elsewhere."""
        asked = _asked(claimed)
        if isinstance(doer, DoneHere):
            return await tend_attempt(
                doer.work(asked), keep=lambda: self._keep(claimed), lease_seconds=self._lease_seconds
            )
        if isinstance(doer, BegunElsewhere):
            return await asyncio.to_thread(self._begin_elsewhere, claimed, doer, asked)
        return failed(f"Nobody here does jobs of the type {claimed.type}.", UNSUPPORTED)

    def _begin_elsewhere(self, claimed: ClaimedRun, doer: BegunElsewhere, asked: AskedJob) -> AttemptEnd | None:
        """From here on nobody has it, and nobody need have: what it follows is kept with what was begun."""
        with self._database.as_one() as session:
            run = held_run(session, claimed.hold, EVERYWHERE)
            if run.cancel_requested_at is not None:
                return cancelled(run.cancel_reason)
            run.following, run.lease_until = dict(doer.start(asked)), None
            return None

    def _keep(self, claimed: ClaimedRun) -> AttemptEnd | None:
        with self._database.transaction() as session:
            run = extend(session, claimed.hold, self._lease_seconds, EVERYWHERE)
            if run.cancel_requested_at is not None:
                return cancelled(run.cancel_reason)
            is_late = run.deadline_at is not None and run.deadline_at <= self._clock.now()
            return too_long(_limit_seconds(claimed.type)) if is_late else None

    async def _tell(self, claimed: ClaimedRun, end: AttemptEnd) -> None:
        """What was done and not told would be done again, so that no passing fault of the database may prevent it."""
        await keep_trying(lambda: self._write_end(claimed, end), seconds=self._lease_seconds)

    def _write_end(self, claimed: ClaimedRun, end: AttemptEnd) -> None:
        """Nothing, where the attempt was given up meanwhile."""
        now = self._clock.now()
        try:
            with self._database.transaction() as session:
                run = held_run(session, claimed.hold, EVERYWHERE, to_end=True)
                ended = end_attempts(session, {run.id: end}, self._owner, now)
        except LostLeaseError:
            return
        count_ends(ended, meter=self._meter, now=now)


def _asked(claimed: ClaimedRun) -> AskedJob:
    hold = claimed.hold
    return AskedJob(
        org_id=claimed.org_id,
        job_id=claimed.job_id,
        run_id=hold.run_id,
        attempt_no=hold.attempt_no,
        payload=claimed.payload,
        key=run_key(hold.run_id),
    )


def _limit_seconds(type_name: str) -> float:
    try:
        return job_type(type_name).limit_seconds
    except InvalidInputError:
        return _LIMIT_SECONDS
