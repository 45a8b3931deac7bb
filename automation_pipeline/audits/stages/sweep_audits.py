"""End the audits that nobody works on any more, and count in their batches those that never began."""

from collections.abc import Sequence

from automation_pipeline.audits.ports import audit_key
from automation_pipeline.audits.stages.end_batch_item import end_batch_item
from automation_pipeline.audits.stages.fail_audit import fail_audit
from automation_pipeline.audits.store.audits import silent_audits
from automation_pipeline.audits.store.batches import pending_items
from automation_pipeline.core.coordination import Claims
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import refusals

AT_MOST = 500


def sweep_audits(silent_for_seconds: float, *, database: Database, claims: Claims) -> Sequence[str]:
    """The tracking ids that were ended. Whoever works on an audit stores a step now and then, and holds its claim."""
    with database.reading() as session:
        silent = silent_audits(session, silent_for_seconds, limit=AT_MOST)
        refused = refusals(session, pending_items(session, limit=AT_MOST))
    reason = f"Nobody has worked on this audit for {_lasting(silent_for_seconds)}"
    abandoned = [tracking for audit_id, tracking in silent if claims.holder(audit_key(audit_id)) is None]
    for tracking_id in abandoned:
        with database.transaction() as session:
            fail_audit(session, tracking_id, reason, "sweep")
    for tracking_id, why in refused.items():
        with database.transaction() as session:
            end_batch_item(session, tracking_id, why)
    return [*abandoned, *refused]


def _lasting(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
