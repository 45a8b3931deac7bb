"""A day's audits as tables and files: summed up with pandas, filed with pyarrow."""

import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from automation_pipeline.audits.domain.findings import Niveau
from automation_pipeline.automation.domain.quality import DayAudit, FicheSold, QualityDay
from automation_pipeline.core.safe_text import csv_cell

REJECTED = Niveau.REJET.value
NO_GROUPE = "(no groupe)"
HEADS = (
    "groupe",
    "fiches",
    "transcribed",
    "audited",
    "audits",
    "mean score",
    "compliant",
    "rejected",
)
Line = tuple[str, int, int, int, int, float | None, str | None, int]

_TYPES = {
    "sales_date": pa.date32(),
    "audit_config_id": pa.int64(),
    "audit_id": pa.int64(),
    "version": pa.int32(),
    "score": pa.float64(),
    "is_compliant": pa.bool_(),
    "critical_passed": pa.int32(),
    "critical_total": pa.int32(),
    "steps": pa.int32(),
    "failed_steps": pa.int32(),
    "created_at": pa.timestamp("us", "UTC"),
    "completed_at": pa.timestamp("us", "UTC"),
}
# Said aloud, so that a day without audits has the same columns as any other.
SCHEMA = pa.schema([pa.field(field.name, _TYPES.get(field.name, pa.string())) for field in fields(DayAudit)])


def by_groupe(quality: QualityDay) -> list[Line]:
    """A line a groupe, then one of them all; none for a day without fiches. Scores are of completed audits."""
    if not quality.fiches:
        return []
    sold = _frame(quality.fiches, FicheSold)
    completed = _frame(quality.audits, DayAudit).dropna(subset=["score"])
    lines = [
        _line(str(name), fiches, completed.query("groupe == @name"))
        for name, fiches in sold.groupby("groupe", sort=True)
    ]
    return [*lines, _line("all", sold, completed)]


def as_parquet(audits: Sequence[DayAudit]) -> bytes:
    written = io.BytesIO()
    pq.write_table(_arrow(audits), written, compression="zstd")
    return written.getvalue()


def as_csv(audits: Sequence[DayAudit]) -> bytes:
    """Names of people and groupes come from the CRM: none of them is a formula in a spreadsheet."""
    rows = [{name: csv_cell(value) for name, value in asdict(audit).items()} for audit in audits]
    frame = pa.Table.from_pylist(rows, schema=SCHEMA).to_pandas(types_mapper=pd.ArrowDtype)
    return frame.to_csv(index=False, lineterminator="\n").encode()


def rows_in(parquet: Path) -> int:
    return pq.read_metadata(parquet).num_rows


def _arrow(audits: Sequence[DayAudit]) -> pa.Table:
    return pa.Table.from_pylist([asdict(audit) for audit in audits], schema=SCHEMA)


def _frame(rows: Sequence[FicheSold | DayAudit], of: type[FicheSold | DayAudit]) -> pd.DataFrame:
    frame = pd.DataFrame([asdict(row) for row in rows], columns=[field.name for field in fields(of)])
    return frame.assign(groupe=frame["groupe"].astype("object").fillna(NO_GROUPE))


def _line(name: str, sold: pd.DataFrame, completed: pd.DataFrame) -> Line:
    count = len(completed)
    compliant = len(completed.query("is_compliant == True"))
    return (
        name,
        len(sold),
        len(sold.query("transcribed == True")),
        len(completed.drop_duplicates("fiche_id")),
        count,
        round(sum(completed["score"].to_list()) / count, 2) if count else None,
        f"{compliant / count:.0%}" if count else None,
        len(completed.query("niveau == @REJECTED")),
    )
