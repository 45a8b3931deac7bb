"""Tables of audits. That a fiche has one latest audit of a configuration is a partial unique index."""

from automation_pipeline.audits.tables.audits import AuditRow, ConfigSnapshotRow
from automation_pipeline.audits.tables.batches import AuditBatchItemRow, AuditBatchRow
from automation_pipeline.audits.tables.configs import AuditConfigRow, AuditStepRow
from automation_pipeline.audits.tables.steps import CitationRow, ControlPointRow, StepResultRow
from automation_pipeline.audits.tables.trails import HumanReviewRow, RerunEventRow

__all__ = [
    "AuditBatchItemRow",
    "AuditBatchRow",
    "AuditConfigRow",
    "AuditRow",
    "AuditStepRow",
    "CitationRow",
    "ConfigSnapshotRow",
    "ControlPointRow",
    "HumanReviewRow",
    "RerunEventRow",
    "StepResultRow",
]
