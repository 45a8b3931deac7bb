"""Tables as people read them in Dagster."""

from collections.abc import Iterable, Sequence

from automation_pipeline.core.safe_text import markdown_cell


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Nothing, when there are no rows. Whatever a cell holds is text of that cell."""
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]) if lines else ""


def _cell(value: object) -> str:
    return "–" if value is None else markdown_cell(value)
