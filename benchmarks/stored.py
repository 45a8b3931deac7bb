"""The stored results of an installation without ids, times and workers, to compare two
installations."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Column, Connection, Table, select

from automation_pipeline.migrations.tables import METADATA
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.types import UtcDateTime

TABLES = (
    "automation_runs",
    "automation_run_fiche_results",
    "fiche_cache",
    "fiche_cache_information",
    "recordings",
    "recording_transcription_chunks",
    "transcription_runs",
    "transcription_tasks",
    "audit_configs",
    "audit_steps",
    "audit_config_snapshots",
    "audits",
    "audit_step_results",
    "audit_step_result_control_points",
    "audit_step_result_citations",
)
# Columns that depend on the time, the worker or the number of attempts.
OF_THE_MOMENT = {
    "attempts",  # of calls: a machine that is busy lets one time out
    "audio_failures",
    "dagster_run_id",
    "dagster_root_run_id",
    "duration_ms",
    "fence",
    "owner",
    "request_key",
    "token",
    "config_snapshot",
    "batch",  # as the engine wants the work cut
}

MOMENTS = ("_at", "_ms", "_db_id", "_time_seconds")


def stored_rows(database: Database) -> dict[str, Counter[str]]:
    """By table: each distinct row with its count. A foreign key is replaced by a digest of the row
    that it names."""
    with database.engine.connect() as connection:
        values: dict[str, dict[object, str]] = {}
        return {name: _rows(METADATA.tables[name], connection, values) for name in TABLES}


def first_differences(
    one: Mapping[str, Counter[str]], other: Mapping[str, Counter[str]]
) -> list[str]:
    """One sentence per table that differs, with its different columns and their first values."""
    sentences = []
    for table in TABLES:
        here, there = (
            list((one[table] - other[table]).elements()),
            list((other[table] - one[table]).elements()),
        )
        if here or there:
            rows = f"{one[table].total()} and {other[table].total()} rows"
            result = f"{table}: of {rows} {len(here)} and {len(there)} differ"
            sentences.append("; ".join([result, *_columns(here, there)]))
    return sentences


def _columns(here: Sequence[str], there: Sequence[str]) -> Iterator[str]:
    rows = [json.loads(row) for row in here], [json.loads(row) for row in there]
    for column in {name: None for row in [*rows[0], *rows[1]] for name in row}:
        values = [Counter(json.dumps(row[column]) for row in side) for side in rows]
        if values[0] != values[1]:
            yield f"{column}: {[list(values[a] - values[b])[:2] for a, b in ((0, 1), (1, 0))]}"[
                :400
            ]


def _rows(
    table: Table, connection: Connection, result: dict[str, dict[object, str]]
) -> Counter[str]:
    kept = [column for column in table.columns if _is_kept(column)]
    rows: Counter[str] = Counter()
    labels = result.setdefault(table.name, {})
    for row in connection.execute(select(table)).mappings():
        text = json.dumps(
            {column.name: _value(column, row[column.name], result) for column in kept},
            sort_keys=True,
        )
        rows[text] += 1
        if "id" in row:
            labels[row["id"]] = hashlib.sha256(text.encode()).hexdigest()[:12]
    return rows


def _is_kept(column: Column) -> bool:
    counted = column.name == "id" and column.type.python_type is int
    return not (counted or isinstance(column.type, UtcDateTime) or column.name in OF_THE_MOMENT)


def _value(column: Column, value: object, text: Mapping[str, Mapping[object, str]]) -> object:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(each) for each in value]
    parents = [key.column.table.name for key in column.foreign_keys if key.column.name == "id"]
    for parent in [*parents, *(["audits"] if column.name == "audit_id" else [])]:
        if parent in text:
            return text[parent].get(value)
    if isinstance(value, dict):
        return _without_moments(value)
    return value if isinstance(value, bool | int | None) else str(value)


def _without_moments(document: object) -> object:
    """Remove ids and times from a JSON document, recognised by the ends of their names."""
    if isinstance(document, list):
        return [_without_moments(each) for each in document]
    if not isinstance(document, dict):
        return document
    return {
        name: _without_moments(each)
        for name, each in document.items()
        if not name.endswith(MOMENTS)
    }
