"""Metadata of steps and assets as plain values, and Markdown tables."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import dagster as dg

from automation_pipeline.core.masking import markdown_cell


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Empty without rows. Cells are escaped."""
    lines = [
        f"| {' | '.join('–' if cell is None else markdown_cell(cell) for cell in row)} |"
        for row in rows
    ]
    return (
        "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]) if lines else ""
    )


Metadata = dict[str, dg.MetadataValue]


def text(value: object) -> dg.MetadataValue:
    return dg.MetadataValue.text(str(value))


def integer(value: int) -> dg.MetadataValue:
    return dg.MetadataValue.int(int(value))


def real(value: float) -> dg.MetadataValue:
    return dg.MetadataValue.float(float(value))


def markdown(value: str) -> dg.MetadataValue:
    return dg.MetadataValue.md(str(value))


def path(value: object) -> dg.MetadataValue:
    return dg.MetadataValue.path(str(value))


def timestamp(value: datetime) -> dg.MetadataValue:
    return dg.MetadataValue.timestamp(value)
