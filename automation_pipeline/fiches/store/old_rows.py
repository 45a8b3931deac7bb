"""Jobs over days that may go once they are old, with their deliveries. Fiches and sales lists stay."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, exists

from automation_pipeline.core.delivery import DeliveryStatus
from automation_pipeline.fiches.domain.fetch_job import FETCH_JOB
from automation_pipeline.fiches.tables import FetchDeliveryRow, FetchJobRow
from automation_pipeline.storage.retention import Kind


def _old_jobs(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Those that are over, and of which no webhook is still to hear."""
    is_over = FetchJobRow.status.in_([status.value for status in FETCH_JOB.terminal])
    has_mail = exists().where(
        FetchDeliveryRow.job_id == FetchJobRow.id, FetchDeliveryRow.status == DeliveryStatus.PENDING
    )
    return is_over, FetchJobRow.completed_at <= before, ~has_mail


FETCH_JOBS = Kind("progressive_fetch_jobs", FetchJobRow, _old_jobs)
