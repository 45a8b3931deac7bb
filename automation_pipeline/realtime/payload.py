"""What of an event fits into a message: all of it, else what identifies it, else that there was too much."""

import json
from collections.abc import Mapping
from typing import cast

# A browser that gets a shrunk event knows what to fetch.
KEPT = (
    "audit_id", "audit_db_id", "audit_config_id", "fiche_id", "event_id", "batch_id", "job_id", "jobId", "rerun_id",
    "rerun_scope", "step_position", "step_name", "control_point_index", "schedule_id", "run_id", "status", "progress",
    "current_phase", "progress_percentage", "completed_steps", "total_steps", "failed_steps", "completedSteps",
    "totalSteps", "failedSteps", "completedDays", "totalDays", "totalFiches",
)  # fmt: skip
COUNTED = ("datesCompleted", "datesRemaining", "datesFailed")
_NOTHING: Mapping[str, object] = {"truncated": True}


def message_of(payload: object, most_bytes: int) -> str:
    """JSON of at most so many bytes. ValueError or TypeError: there is no JSON for it."""
    whole = cast("Mapping[str, object]", payload) if isinstance(payload, Mapping) else {"value": payload}
    for fitting in (_json(whole), _json(_shrunk(whole))):
        if len(fitting.encode()) <= most_bytes:
            return fitting
    return _json(_NOTHING)


def _shrunk(payload: Mapping[str, object]) -> Mapping[str, object]:
    kept = {key: payload[key] for key in KEPT if key in payload}
    lists = {key: payload.get(key) for key in COUNTED}
    counts = {
        f"{key}Count": len(cast("list[object]", dates)) for key, dates in lists.items() if isinstance(dates, list)
    }
    return {**kept, **counts, **_NOTHING}


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(errors="replace").decode()  # half a character, as a cut text may end in, is no UTF-8
