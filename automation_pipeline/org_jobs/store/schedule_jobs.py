"""The job that a schedule asks for, whoever has it made: the dispatcher, an operator, a backfill."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.json_model import parse
from automation_pipeline.org_jobs.domain.job_types import job_type
from automation_pipeline.org_jobs.domain.policies import OverlapPolicy
from automation_pipeline.org_jobs.domain.retry_policy import RetryPolicy
from automation_pipeline.org_jobs.domain.timing import Timing
from automation_pipeline.org_jobs.store.new_jobs import NewJob
from automation_pipeline.org_jobs.store.start_windows import kept
from automation_pipeline.org_jobs.tables import ScheduleRow, ServerRow


def job_of(row: ScheduleRow, timing: Timing, scheduled_for: datetime, host_id: int | None) -> NewJob:
    """InvalidInputError: there is no such type of job any more, or no such retry policy. `host_id`: see `host_of`."""
    return NewJob(
        org_id=row.org_id,
        type=job_type(row.job_type),
        payload=row.payload,
        retry=parse(RetryPolicy, row.retry_policy or {}, "Its retry policy cannot be used any more"),
        created_by=f"schedule:{row.id}",
        priority=row.priority,
        server_instance_id=row.server_instance_id,
        host_id=host_id,
        schedule_id=row.id,
        scheduled_for=scheduled_for,
        start_window=kept(timing),
        line=row.id if OverlapPolicy(row.overlap_policy).is_serial else None,
    )


def host_of(session: Session, row: ScheduleRow) -> int | None:
    """That of its server, where it has both."""
    of_server = ServerRow.id == row.server_instance_id, ServerRow.org_id == row.org_id
    return session.scalar(select(ServerRow.host_id).where(*of_server))
