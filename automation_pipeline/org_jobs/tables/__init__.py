"""Tables of organisations' jobs: who they belong to, when they are due, their queues, and what was said of them."""

from automation_pipeline.org_jobs.tables.jobs import AttemptRow, BatchRow, JobRow, JobRunRow
from automation_pipeline.org_jobs.tables.organisations import HostRow, OrganisationRow, ServerRow
from automation_pipeline.org_jobs.tables.records import AlertRow, AuditLogRow
from automation_pipeline.org_jobs.tables.schedules import FireRow, ScheduleRow

__all__ = [
    "AlertRow",
    "AttemptRow",
    "AuditLogRow",
    "BatchRow",
    "FireRow",
    "HostRow",
    "JobRow",
    "JobRunRow",
    "OrganisationRow",
    "ScheduleRow",
    "ServerRow",
]
