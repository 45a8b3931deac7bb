"""Requests that audits still need, however old they are."""

from sqlalchemy import ColumnElement, exists

from automation_pipeline.audits.tables import AuditBatchItemRow
from automation_pipeline.storage.run_requests import RunRequestRow


def is_awaited_by_batch() -> ColumnElement[bool]:
    """A condition on rows of RunRequestRow: whether the audit ever began is known by its request alone."""
    return exists().where(
        AuditBatchItemRow.tracking_id == RunRequestRow.request_key, AuditBatchItemRow.state == "pending"
    )
