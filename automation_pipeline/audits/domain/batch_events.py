"""What the outside hears of audits that were asked for together."""

from collections.abc import Mapping
from datetime import datetime

from automation_pipeline.audits.domain.events import PRODUCER, TENANT
from automation_pipeline.core.events import Event


def _event(batch_id: str, key: str, name: str, at: datetime, payload: Mapping[str, object]) -> Event:
    return Event(TENANT, key, name, PRODUCER, batch_id, at, {"batch_id": batch_id, **payload})


def batch_progress(batch_id: str, total: int, succeeded: int, failed: int, at: datetime) -> Event:
    ended = succeeded + failed
    payload = {
        "operation_type": "audit",
        "total": total,
        "completed": succeeded,
        "failed": failed,
        "progress_percentage": round(100 * ended / total) if total else 100,
    }
    return _event(batch_id, f"audit-batch-progress-{batch_id}-{ended}", "batch.progress", at, payload)


def batch_completed(batch_id: str, total: int, succeeded: int, failed: int, span: tuple[datetime, datetime]) -> Event:
    """`span` is from its start to its end."""
    payload = {
        "operation_type": "audit",
        "total": total,
        "completed": succeeded,
        "failed": failed,
        "duration_ms": round(1000 * (span[1] - span[0]).total_seconds()),
    }
    return _event(batch_id, f"audit-batch-completed-{batch_id}", "batch.completed", span[1], payload)
