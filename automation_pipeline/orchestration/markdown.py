"""Tables as people read them in Dagster."""

from collections.abc import Iterable


def table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Nothing, when there are no rows."""
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]) if lines else ""


def _cell(value: object) -> str:
    """Whatever stands in it, it stays there."""
    return " ".join(str(value).replace("|", "\\|").split())
