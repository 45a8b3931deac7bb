"""Writes docs/configuration.md from the settings (`make docs`), and lists the settings of the
original system that are not used."""

import sys
from collections.abc import Mapping
from datetime import date
from types import NoneType
from typing import Literal, get_args, get_origin

from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from automation_pipeline.core.settings import Settings
from automation_pipeline.core.settings_types import Origins, Temperature

_DAYS = "a run asks for its days together, bounded by FICHE_SALES_SEARCH_CONCURRENCY"
_BATCHES = "batches follow AUTOMATION_MAX_PROCESSES, and FICHE_FETCH_CONCURRENCY bounds the calls"
_LOG_FILES = (
    "logs are in the database: `automation runs logs RUN`, `GET /api/automation/runs/{id}/logs`"
)
_ONE_QUEUE = "all recordings wait in one queue, bounded by the TRANSCRIPTION_ELEVENLABS_ settings"
_CLAIMS = "claims are rows with short leases that their holder extends"

UNUSED: Mapping[str, str] = {
    "AUTOMATION_SCHEDULER_CRON": "the sensor `due_schedules` runs every 15 seconds",
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
    return {name: reason for name, reason in UNUSED.items() if environment.get(name)}


HEAD = """# Configuration

Every setting is an environment variable; an empty one counts as unset. A wrong value stops the command with one
sentence that names the variable. This page is written by `make docs` from `automation_pipeline/core/settings.py`.

| Variable | Values | Default | Meaning |
|---|---|---|---|
"""


UNUSED_HEAD = """
## Not used here
These settings of the original system have no meaning here. `automation doctor` names those that are set.

| Variable | Not used here |
|---|---|
"""


def configuration_page() -> str:
    used = "".join(_row(name, field) for name, field in Settings.model_fields.items())
    return (
        HEAD
        + used
        + UNUSED_HEAD
        + "".join(f"| `{name}` | {reason} |\n" for name, reason in UNUSED.items())
    )


def _row(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    variable = alias.choices[0] if isinstance(alias, AliasChoices) else name.upper()
    unset = field.default in (None, (), "", PydanticUndefined)
    default = (
        "none"
        if unset
        else f"`{int(field.default) if isinstance(field.default, bool) else field.default}`"
    )
    return f"| `{variable}` | {_values(field)} | {default} | {field.description} |\n"


def _values(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    if field.annotation == get_args(Temperature)[0]:
        return "number from 0 to 2, or `none`"
    if field.annotation == get_args(Origins)[0]:
        return "origins, separated by commas"
    types = get_args(field.annotation) or (field.annotation,)
    # An optional validated text is Annotated[str, ...] | None.
    kinds: list[object] = [
        getattr(kind, "__origin__", kind) for kind in types if kind is not NoneType
    ]
    names: dict[object, str] = {
        str: "text",
        date: "day",
        bool: "`1` or `0`",
        int: "whole number",
        float: "number",
    }
    bounds = [
        f"{word} {value}"
        for limit in field.metadata
        for attribute, word in (("gt", "above"), ("ge", "from"), ("le", "to"))
        if (value := getattr(limit, attribute, None)) is not None
    ]
    return " ".join([names.get(kinds[0], "secret"), *bounds])


if __name__ == "__main__":
    sys.stdout.write(configuration_page())
