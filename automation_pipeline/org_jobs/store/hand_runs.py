"""Runs of schedules by hand, as they are written."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import ConflictError, PermanentError
from automation_pipeline.org_jobs.domain.by_hand import ends_others, refuse_overlap
from automation_pipeline.org_jobs.domain.due import Fire
from automation_pipeline.org_jobs.domain.events import fired
from automation_pipeline.org_jobs.domain.org_schedule import Dispatched, OrgSchedule
from automation_pipeline.org_jobs.domain.states import ACTIVE_RUN_STATES, FireTrigger, RunState, ScheduleState
from automation_pipeline.org_jobs.store.due_writes import DISPATCHED, give_way
from automation_pipeline.org_jobs.store.fires import NewFire, write_fires
from automation_pipeline.org_jobs.store.new_jobs import NewJob
from automation_pipeline.org_jobs.store.schedule_writes import log
from automation_pipeline.org_jobs.tables import FireRow, JobRow, JobRunRow, OrganisationRow, ScheduleRow, ServerRow
from automation_pipeline.storage.outbox import enqueue


def dispatched_for(session: Session, row: ScheduleRow, client_key: str | None) -> Dispatched | None:
    """What the key was given for before, of a schedule that is locked."""
    if client_key is None:
        return None
    query = select(FireRow.id, JobRow.id).join(JobRow, JobRow.schedule_fire_id == FireRow.id)
    its = FireRow.schedule_id == row.id, FireRow.org_id == row.org_id, FireRow.client_key == client_key
    found = session.execute(query.where(*its)).tuples().first()
    return None if found is None else Dispatched(fire_id=found[0], job_id=found[1])


def refuse_over(row: ScheduleRow) -> None:
    """Active and paused ones are run by hand, and no others."""
    if row.state not in {ScheduleState.ACTIVE, ScheduleState.PAUSED}:
        raise ConflictError(f"Schedule {row.id} is {row.state}: correct when it is due, or make a job of its own.")


def refuse_disabled(session: Session, row: ScheduleRow, organisation: OrganisationRow) -> None:
    if organisation.suspended_at is not None:
        raise ConflictError(f"Organisation '{row.org_id}' is suspended: resume it first.")
    of_server = ServerRow.id == row.server_instance_id, ServerRow.org_id == row.org_id
    if session.scalar(select(ServerRow.is_enabled).where(*of_server)) is False:
        raise ConflictError(f"Server {row.server_instance_id} is not enabled: enable it first.")


def make_room(session: Session, row: ScheduleRow, schedule: OrgSchedule, now: datetime) -> None:
    """ConflictError names the job in the way. By some policies the others give way."""
    its = JobRunRow.schedule_id == row.id, JobRunRow.org_id == row.org_id, JobRunRow.status.in_(ACTIVE_RUN_STATES)
    of_plan = select(JobRunRow.job_id, JobRunRow.status).join(JobRow, JobRow.id == JobRunRow.job_id)
    query = of_plan.where(*its, JobRow.batch_id.is_(None)).order_by(JobRunRow.id)
    active = session.execute(query).tuples().all()
    at_work = [job_id for job_id, status in active if status == RunState.RUNNING]
    waiting = [job_id for job_id, status in active if status == RunState.PENDING]
    refuse_overlap(schedule, at_work, waiting)
    if active and ends_others(schedule.overlap_policy):
        give_way(session, [row], now)


def write_run(
    session: Session, row: ScheduleRow, job: NewJob, *, client_key: str | None, actor: str, now: datetime
) -> Dispatched:
    """What the cron says next stays as it is."""
    fire = Fire(now, now, FireTrigger.MANUAL)
    new = NewFire(org_id=row.org_id, schedule_id=row.id, fire=fire, actor=actor, job=job, client_key=client_key)
    (written,) = write_fires(session, [new], now)
    if written.job_id is None:
        raise PermanentError(written.error or "Its job could not be made.")
    row.last_dispatch_status, row.last_job_status = DISPATCHED, None
    row.last_run_at, row.last_run_job_id = now, written.job_id
    row.run_count += 1
    enqueue(session, [fired(row.org_id, row.id, fire, written.fire_id, written.job_id, now)])
    after = {"fireId": str(written.fire_id), "jobId": str(written.job_id)}
    log(session, row, "run_now", actor=actor, now=now, after=after)
    return Dispatched(fire_id=written.fire_id, job_id=written.job_id)
