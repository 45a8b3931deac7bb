"""How commands speak: results on stdout, as tables or as one JSON document; a complaint is one sentence on stderr."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from automation_pipeline.core.errors import InvalidInputError

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, nothing else.")]

screen = Console(soft_wrap=True)


def print_json(document: object) -> None:
    sys.stdout.write(_json(document))


def write_json(path: Path, document: object) -> None:
    try:
        path.write_text(_json(document), encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no name of a file"
        raise InvalidInputError(f"{path} cannot be written: {reason}.") from None


def _json(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    screen.print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value is not None:
            table.add_row(Text(name, "bold"), _cell(value))
    screen.print(table)


def _cell(value: object) -> Text:
    """A plain string stays what it is: square brackets in people's texts are not mark-up."""
    return value if isinstance(value, Text) else Text("" if value is None else str(value))


def consent(question: str, deed: str) -> bool:
    """What a person at the terminal answers. InvalidInputError where there is none: `deed` is what --yes allows."""
    if not sys.stdin.isatty():
        raise InvalidInputError(f"Nobody is here to be asked: say --yes to {deed}.")
    return typer.confirm(question, err=True)


def one_line(text: str) -> str:
    return " ".join(text.split())


def read_json_object(path: Path) -> Mapping[str, object]:
    """The JSON object in a file, or on standard input for `-`."""
    standard_input = str(path) == "-"
    name = "Standard input" if standard_input else str(path)
    try:
        text = (sys.stdin.buffer.read() if standard_input else path.read_bytes()).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInputError(f"{name} cannot be read: {reason}.") from None
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInputError(f"{name} is not valid JSON: {reason}.") from None
    if not isinstance(document, dict):
        raise InvalidInputError(f"{name} must hold a JSON object.")
    return cast("dict[str, object]", document)
