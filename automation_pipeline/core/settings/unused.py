"""Settings of the original system that have no meaning here, and why: docs/configuration.md and `doctor` show them."""

from collections.abc import Mapping

_DAYS = "a run asks for its days together, bounded by FICHE_SALES_SEARCH_CONCURRENCY"
_BATCHES = "batches follow AUTOMATION_MAX_PROCESSES, and FICHE_FETCH_CONCURRENCY bounds the calls"
_LOG_FILES = "logs are in the database: `automation runs logs RUN`, `GET /api/automation/runs/{id}/logs`"
_ONE_QUEUE = "all recordings wait in one queue, bounded by the TRANSCRIPTION_ELEVENLABS_ settings"
_CLAIMS = "claims are rows with short leases that their holder extends"

UNUSED: Mapping[str, str] = {
    "AUTOMATION_SCHEDULER_CRON": "the sensor `due_schedules` looks every 15 seconds",
    "AUTOMATION_STALE_THRESHOLD_MS": "the threshold is the sum of the three waits and the grace",
    "AUTOMATION_SEND_EVENT_CHUNK_SIZE": "work is handed on in batches of rows, not in events",
    "AUTOMATION_DAY_BATCH_SIZE": _DAYS,
    "AUTOMATION_DAY_CONCURRENCY": _DAYS,
    "AUTOMATION_DAY_PER_SCHEDULE_CONCURRENCY": _DAYS,
    "AUTOMATION_FICHE_BATCH_SIZE": _BATCHES,
    "AUTOMATION_FICHE_WORKER_CONCURRENCY": _BATCHES,
    "AUTOMATION_FICHE_WORKER_PER_SCHEDULE_CONCURRENCY": _BATCHES,
    "AUTOMATION_DEBUG_LOG_TO_FILE": _LOG_FILES,
    "FICHE_DEBUG_LOG_TO_FILE": _LOG_FILES,
    "TRANSCRIPTION_DEBUG_LOG_TO_FILE": _LOG_FILES,
    "AUDIT_DEBUG_LOG_TO_FILE": _LOG_FILES,
    "WORKFLOW_DEBUG_LOG_TO_FILE": _LOG_FILES,
    "WORKFLOW_LOG_DB_ENABLED": "workflow logs are always written, and kept for WORKFLOW_LOGS_KEEP_DAYS",
    "FICHE_SALES_CACHE_CONCURRENCY": "a sales list is written in one statement",
    "FICHE_RECORDINGS_UPSERT_CONCURRENCY": "recordings are written in one statement",
    "TRANSCRIPTION_LOCK_TTL_MS": _CLAIMS,
    "TRANSCRIPTION_FICHE_CONCURRENCY": _ONE_QUEUE,
    "TRANSCRIPTION_RUN_STATE_TTL_SECONDS": "the state of runs is in the database",
    "TRANSCRIPTION_FINALIZER_CONCURRENCY": "the worker of the last recording ends the run in its own transaction",
}


def unused_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of them that are set, with the reason why they do nothing."""
    return {name: reason for name, reason in UNUSED.items() if environment.get(name)}
