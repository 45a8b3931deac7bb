"""What the outside hears of a rerun. `audit_id` is the database's here, and only the audit's own channel is meant."""

from collections.abc import Mapping
from datetime import datetime

from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.audits.domain.events import PRODUCER, TENANT
from automation_pipeline.audits.domain.rerun import Rerun
from automation_pipeline.core.events import Event
from automation_pipeline.core.instants import iso

Document = Mapping[str, object]


def _event(audit: Standing, rerun: Rerun, name: str, at: datetime, payload: Document) -> Event:
    place = rerun.place
    about: dict[str, object] = {
        "rerun_id": rerun.rerun_id,
        "audit_id": str(place.audit_id),
        "audit_db_id": str(place.audit_id),
        "step_position": place.position,
        "event_id": f"{rerun.rerun_id}:{name}",
    }
    if place.point is not None:
        about |= {"rerun_scope": "control_point", "control_point_index": place.point}
    key = f"{rerun.rerun_id}:{name}"
    return Event(TENANT, key, f"audit.{name}", PRODUCER, audit.tracking_id, at, {**about, **payload})


def rerun_started(audit: Standing, rerun: Rerun, at: datetime) -> Event:
    return _event(audit, rerun, "step_started", at, {"started_at": iso(at), "status": "rerunning"})


def rerun_completed(audit: Standing, rerun: Rerun, previous: Document, following: Document, at: datetime) -> Event:
    payload = {
        "original": previous,
        "rerun": following,
        "comparison": {"changed": [name for name in previous if previous[name] != following[name]]},
        "completed_at": iso(at),
        "status": "rerun_completed",
    }
    return _event(audit, rerun, "step_completed", at, payload)


def rerun_failed(audit: Standing, rerun: Rerun, error: str, at: datetime) -> Event:
    """The stored result stays as it was."""
    return _event(audit, rerun, "step_failed", at, {"error": error, "status": "failed"})
