"""The report of a day as its asset shows it. What draws and files it is loaded when a report is made."""

import base64
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import dagster as dg

from automation_pipeline.automation.domain.quality import QualityDay
from automation_pipeline.core.whole_file import write_whole
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.markdown import table

NOTHING = "No fiche was sold on this day, as far as is known."
NOT_AUDITED = "No fiche of the day has been audited."


def write_report(quality: QualityDay, folder: Path) -> dict[str, dg.MetadataValue]:
    """Files under names of the day, and what is said of it. Again, with the same rows: the same bytes."""
    from automation_pipeline.orchestration.report import frames, picture  # noqa: PLC0415  they load pandas and more

    groupes = frames.by_groupe(quality)
    drawn = picture.draw(quality, groupes)
    parquet, csv = _files(quality.day, folder)
    write_whole(parquet, frames.as_parquet(quality.audits))
    write_whole(csv, frames.as_csv(quality.audits))
    points = [(p.step, p.point, p.failing, p.judged, f"{p.share:.0%}") for p in quality.failing_points]
    return {
        "fiches": metadata.integer(len(quality.fiches)),
        "audits": metadata.integer(len(quality.audits)),
        "by_groupe": metadata.markdown(table(frames.HEADS, groupes) if groupes else NOTHING),
        **_note(quality),
        **_table("failing_points", ("step", "control point", "not met", "judged", "share"), points),
        **_table("failures", ("cause", "fiches"), list(quality.failures.items())),
        "picture": metadata.markdown(f"![{quality.day}](data:image/png;base64,{base64.b64encode(drawn).decode()})"),
        "parquet": metadata.path(str(parquet)),
        "csv": metadata.path(str(csv)),
    }


def rows_filed(day: date, folder: Path) -> int | None:
    """Rows of the day's file; None without one."""
    from automation_pipeline.orchestration.report import frames  # noqa: PLC0415  it loads pyarrow

    parquet, _csv = _files(day, folder)
    return frames.rows_in(parquet) if parquet.is_file() else None


def _table(name: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> dict[str, dg.MetadataValue]:
    return {name: metadata.markdown(table(heads, rows))} if rows else {}


def _note(quality: QualityDay) -> dict[str, dg.MetadataValue]:
    if quality.audits:
        return {}
    return {"note": metadata.text(NOT_AUDITED if quality.fiches else NOTHING)}


def _files(day: date, folder: Path) -> tuple[Path, Path]:
    whole = folder.absolute()
    return whole / f"quality-{day}.parquet", whole / f"quality-{day}.csv"
