"""Work on a job over days: only its remaining days are asked for, each is stored and counted as it ends."""

import asyncio
from datetime import date

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.notes import Note
from automation_pipeline.core.semaphore import Semaphore
from automation_pipeline.fiches.domain.days import DayFailed, SalesDay
from automation_pipeline.fiches.domain.fetch_job import FetchJob, after_day, begun
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.revalidate_days import revalidate_days
from automation_pipeline.fiches.stages.tell_of_job import tell_of_job
from automation_pipeline.fiches.store.jobs import get_job, save_job
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.workflow_logs import write_notes


async def fetch_range(  # noqa: PLR0913  the collaborators by name, and two wishes
    job_id: str,
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    semaphore: Semaphore,
    refresh: bool = False,
    tell_every: int = 5,
) -> FetchJob:
    """The job as it has ended. Safe to repeat, and beside another worker. NotFoundError: there is no such job."""

    async def one(day: date) -> None:
        [outcome] = await revalidate_days(
            [day], database=database, source=source, clock=clock, semaphore=semaphore, force=refresh
        )
        await asyncio.to_thread(_count, job_id, outcome, tell_every, database, clock)

    job = await asyncio.to_thread(_begin, job_id, database, clock)
    await asyncio.gather(*map(one, () if job.is_over else job.remaining))
    with database.reading() as session:
        return get_job(session, job_id)


def _begin(job_id: str, database: Database, clock: Clock) -> FetchJob:
    with database.transaction() as session:
        job = get_job(session, job_id, lock=True)
        if not job.is_over:
            job = begun(job)
            save_job(session, job, clock.now())
    return job


def _count(job_id: str, outcome: SalesDay | DayFailed, tell_every: int, database: Database, clock: Clock) -> None:
    with database.transaction() as session:
        job = get_job(session, job_id, lock=True)
        moved = after_day(job, outcome)
        if moved is job:
            return
        tell_of_job(session, moved, clock.now(), latest=outcome.day, every=tell_every)
        if isinstance(outcome, DayFailed):
            write_notes(session, _note(job_id, outcome))


def _note(job_id: str, outcome: DayFailed) -> Note:
    message = f"The sales list of {outcome.day} could not be fetched: {outcome.error}"
    return Note("fiche", "fetch_job", job_id, job_id, message, level="warning")
