"""The quality report of a day: tables, chart, Parquet file and CSV file."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import date
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from automation_pipeline.audits.models.audits import Niveau
from automation_pipeline.automation.queries.reports import DayAudit, FicheSold, QualityDay
from automation_pipeline.core.files import write_whole
from automation_pipeline.core.masking import csv_cell
from automation_pipeline.orchestration.ops import Markdown, Metadata, as_metadata, table

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
# Explicit column types, so that a day without audits has the same columns as any other day.
SCHEMA = pa.schema(
    [pa.field(field.name, _TYPES.get(field.name, pa.string())) for field in fields(DayAudit)]
)


def by_groupe(quality: QualityDay) -> list[Line]:
    """One line per groupe and one for all; empty for a day without fiches. Scores are those of
    completed audits."""
    if not quality.fiches:
        return []
    sold = _frame(quality.fiches, FicheSold)
    completed = _frame(quality.audits, DayAudit).dropna(subset=["score"])
    lines = [
        _line(str(name), fiches, completed.query("groupe == @name"))
        for name, fiches in sold.groupby("groupe")
    ]
    return [*lines, _line("all", sold, completed)]


def as_parquet(audits: Sequence[DayAudit]) -> bytes:
    written = io.BytesIO()
    table = pa.Table.from_pylist([asdict(audit) for audit in audits], schema=SCHEMA)
    pq.write_table(table, written, compression="zstd")
    return written.getvalue()


def as_csv(audits: Sequence[DayAudit]) -> bytes:
    """Names of people and groupes come from the CRM: formulas are escaped."""
    rows = [{name: csv_cell(value) for name, value in asdict(audit).items()} for audit in audits]
    frame = pa.Table.from_pylist(rows, schema=SCHEMA).to_pandas(types_mapper=pd.ArrowDtype)
    return frame.to_csv(index=False, lineterminator="\n").encode()


def rows_in(parquet: Path) -> int:
    return pq.read_metadata(parquet).num_rows


def _frame(rows: Sequence[FicheSold | DayAudit], of: type[FicheSold | DayAudit]) -> pd.DataFrame:
    frame = pd.DataFrame(
        [asdict(row) for row in rows], columns=[field.name for field in fields(of)]
    )
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


MOST_BARS = 10
LONGEST_LABEL = 26
INK, SCORE, FAILURE = "#334155", "#2a9d8f", "#d1495b"


def draw(quality: QualityDay, groupes: Sequence[Line]) -> bytes:
    """A PNG of a few dozen kilobytes with only the largest groupes and the most frequent causes."""
    figure = Figure(figsize=(9, 3.4), dpi=80, layout="constrained", facecolor="white")
    scores, failures = figure.subplots(1, 2)
    biggest = sorted(groupes[:-1], key=lambda line: (-line[1], line[0]))[:MOST_BARS]
    scored = {line[0]: line[5] for line in biggest if line[5] is not None}
    _bars(scores, "Mean score by groupe, %", scored, SCORE, "No completed audit")
    scores.set_xlim(0, 100)
    causes = dict(list(quality.failures.items())[:MOST_BARS])
    _bars(failures, "Failures by cause", causes, FAILURE, "No failure")
    failures.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(f"{quality.day:%A %d %B %Y}", color=INK)
    written = io.BytesIO()
    figure.savefig(written, format="png", metadata={"Software": None})
    return written.getvalue()


def _bars(axes: Axes, title: str, bars: Mapping[str, float], colour: str, without: str) -> None:
    axes.set_title(title, fontsize=10, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, colors=INK)
    # Escape dollar signs, which would start a formula.
    axes.set_yticks(range(len(bars)), [_short(name) for name in bars], parse_math=False)
    axes.invert_yaxis()
    if not bars:
        axes.text(0.5, 0.5, without, ha="center", va="center", transform=axes.transAxes, color=INK)
        return
    drawn = axes.barh(range(len(bars)), list(bars.values()), color=colour)
    axes.bar_label(
        drawn, [f"{value:g}" for value in bars.values()], padding=2, fontsize=8, color=INK
    )


def _short(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"


NOTHING = "No known fiche was sold on this day."
NOT_AUDITED = "No fiche of the day has been audited."


def write_report(quality: QualityDay, folder: Path) -> Metadata:
    """Write the day's files and return their metadata. The same rows give the same bytes."""
    groupes = by_groupe(quality)
    drawn = draw(quality, groupes)
    parquet, csv = _files(quality.day, folder)
    write_whole(parquet, as_parquet(quality.audits))
    write_whole(csv, as_csv(quality.audits))
    points = [
        (p.step, p.point, p.failing, p.judged, f"{p.share:.0%}") for p in quality.failing_points
    ]
    note = NOT_AUDITED if quality.fiches else NOTHING
    return as_metadata(
        {
            "fiches": len(quality.fiches),
            "audits": len(quality.audits),
            "by_groupe": table(HEADS, groupes) or Markdown(NOTHING),
            "note": None if quality.audits else note,
            "failing_points": table(
                ("step", "control point", "not met", "judged", "share"), points
            ),
            "failures": table(("cause", "fiches"), quality.failures.items()),
            "picture": Markdown(
                f"![{quality.day}](data:image/png;base64,{base64.b64encode(drawn).decode()})"
            ),
            "parquet": parquet,
            "csv": csv,
        }
    )


def rows_filed(day: date, folder: Path) -> int | None:
    """Rows of the day's file; None without one."""
    parquet, _csv = _files(day, folder)
    return rows_in(parquet) if parquet.is_file() else None


def _files(day: date, folder: Path) -> tuple[Path, Path]:
    whole = folder.absolute()
    return whole / f"quality-{day}.parquet", whole / f"quality-{day}.csv"
