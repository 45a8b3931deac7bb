"""Output of commands: JSON documents, tables and questions; and the files that commands read and write."""

import json
import re
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Generic, TypeVar, cast

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from automation_pipeline.cli.operations import HasId
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, as_document
from automation_pipeline.core.masking import visible

Model = TypeVar("Model", bound=JsonModel)
Row = TypeVar("Row")

AsJson = Annotated[
    bool, typer.Option("--json", help="Print only one JSON document on standard output.")
]

screen = Console(soft_wrap=True)


def print_json(document: object) -> None:
    sys.stdout.write(_json(document))


def write_json(path: Path, document: object) -> None:
    with writing(path):
        path.write_text(_json(document), encoding="utf-8")


def _json(document: object) -> str:
    return without_controls(json.dumps(document, ensure_ascii=False, indent=2)) + "\n"


def without_controls(text: str) -> str:
    """Replaces control characters by escapes: texts of users and of other systems could otherwise
    control the terminal. Line breaks stay."""
    return "\n".join(map(visible, text.replace("\r\n", "\n").split("\n")))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(plain_text, row))
    screen.print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value is not None:
            table.add_row(Text(name, "bold"), plain_text(value))
    screen.print(table)


def plain_text(value: object) -> Text:
    """The value without mark-up and control characters. Square brackets in it are not mark-up."""
    if not isinstance(value, Text):
        return Text("" if value is None else without_controls(str(value)))
    safe = without_controls(value.plain)
    return value if safe == value.plain else Text(safe, value.style)


def consent(question: str, action: str) -> bool:
    """Ask the user, and return whether they agree. Without a terminal, raises an InvalidInputError that
    names --yes and the `action`."""
    if not sys.stdin.isatty():
        raise InvalidInputError(f"Standard input is not a terminal: add --yes to {action}.")
    return typer.confirm(question, err=True)


def confirm(question: str, action: str) -> None:
    """End the command unless the user confirms."""
    if not consent(question, action):
        raise typer.Abort


def json_line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_SEVERITY_COLOURS = {"warning": "yellow", "critical": "red"}


def severity_cell(severity: str) -> Text:
    return Text(severity, _SEVERITY_COLOURS[severity])


def delivery_cell(status: str, error: str | None) -> str:
    return f"{status}: {one_line(error)}" if error else status


def one_line(text: str) -> str:
    return " ".join(text.split())


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Raise InvalidInputError if the block cannot write the file."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a file name"
        raise InvalidInputError(f"{path} cannot be written: {reason}.") from None


def file_name(path: Path) -> str:
    """Return the name of the file for messages; `-` is standard input."""
    return "Standard input" if str(path) == "-" else str(path)


def read_text(path: Path) -> str:
    """Read a file, or standard input for `-`."""
    try:
        content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInputError(f"{file_name(path)} cannot be read: {reason}.") from None


def read_json_object(path: Path) -> Mapping[str, object]:
    try:
        document: object = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInputError(f"{file_name(path)} is not valid JSON: {reason}.") from None
    if not isinstance(document, dict):
        raise InvalidInputError(f"{file_name(path)} must contain a JSON object.")
    return cast("dict[str, object]", document)


def print_result(document: object, sentence: str, *, as_json: bool) -> None:
    """Print the result of a command as a JSON document or as a sentence."""
    if as_json:
        print_json(document)
    else:
        say(sentence)


def show_one(value: Model, page: Callable[[Model], object], *, as_json: bool) -> None:
    """Print a value as a JSON document, or as text with `page`."""
    if as_json:
        print_json(as_document(value))
    else:
        page(value)


def show_page(
    name: str,
    found: Sequence[Model],
    table: Callable[[Sequence[Model]], object],
    *,
    limit: int,
    offset: int | None = None,
    as_json: bool,
) -> None:
    """Print a page of a list. `found` has one row more than `limit` if another page follows. The next
    page is named by `offset` or, without one, by the last row's id."""
    shown, more = found[:limit], len(found) > limit
    if as_json:
        print_json({name: [as_document(one) for one in shown], "more": more})
        return
    table(shown)
    if more:
        next_page = (
            f"--after {cast('HasId', shown[-1]).id}"
            if offset is None
            else f"--offset {offset + limit}"
        )
        say(f"There are more rows: {next_page} shows the next page.")


def iso_seconds(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


Limit = Annotated[int, typer.Option(min=1, max=500, help="The maximum number of rows.")]
Offset = Annotated[int, typer.Option(min=0, max=1_000_000_000, help="Skip the first rows.")]


def say(sentence: str) -> None:
    screen.print(without_controls(sentence), markup=False, highlight=False)


def compact(**fields: object) -> dict[str, object]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def counted(number: int, noun: str) -> str:
    """`1 price`, `2 prices`."""
    return f"{number} {noun if number == 1 else noun + 's'}"


def minute(instant: datetime | None) -> str:
    return f"{instant:%Y-%m-%d %H:%M}" if instant else ""


def second(instant: datetime | None) -> str | None:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC" if instant else None


# The minimal width of output to pipes and files.
MIN_FILE_WIDTH = 160
# Longer words may break.
_MAX_WORD = 20
_GAP = 2
# Separates the parts of a cell, such as the amount and the percentage of a change.
_PART_SEPARATOR = "  "


@dataclass(frozen=True)
class _Column:
    name: str
    cells: Sequence[Text]
    is_text: bool

    @property
    def width(self) -> int:
        return max(map(cell_len, self._lines))

    @property
    def min_width(self) -> int:
        """The width below which the column becomes unreadable. Long words, such as ids of variants,
        may break on a terminal only, because programs could not join them again."""
        if not self.is_text:
            return max(
                cell_len(part) for line in self._lines for part in line.split(_PART_SEPARATOR)
            )
        longest = max((cell_len(word) for line in self._lines for word in line.split()), default=1)
        return min(longest, max(_MAX_WORD, cell_len(self.name))) if screen.is_terminal else longest

    def fitting(self, width: int) -> Sequence[Text]:
        """Return the cells, with their parts on separate lines if the column is narrower than they are."""
        if self.is_text or width >= self.width:
            return self.cells
        return [_stacked(cell) for cell in self.cells]

    @property
    def _lines(self) -> list[str]:
        return [self.name, *(line for cell in self.cells for line in cell.plain.splitlines())]


@dataclass(frozen=True)
class Columns(Generic[Row]):
    """The columns of a table: a function for the cells of each. With `texts`, the table fits the
    terminal: those columns wrap between words, and empty columns are omitted."""

    cells: Mapping[str, Callable[[Row], object]]
    texts: Collection[str] | None = None

    def print(self, rows: Iterable[Row]) -> None:
        lines = ([cell(row) for cell in self.cells.values()] for row in rows)
        if self.texts is None:
            print_table(list(self.cells), lines)
        else:
            print_fitted_table(list(self.cells), lines, texts=self.texts)


def print_fitted_table(
    names: Sequence[str], rows: Iterable[Sequence[object]], *, texts: Collection[str] = ()
) -> None:
    """Print a table that fits the terminal. The columns in `texts` wrap between words; empty columns
    are omitted. If the table does not fit, each row is printed as a block."""
    lines = [[plain_text(value) for value in row] for row in rows]
    columns = [
        _Column(name, [line[at] for line in lines], name in texts) for at, name in enumerate(names)
    ]
    shown = [column for column in columns if not lines or any(column.cells)]
    available = screen.width if screen.is_terminal else max(screen.width, MIN_FILE_WIDTH)
    widths = _widths(shown, available - _GAP * (len(shown) - 1))
    if sum(widths) + _GAP * (len(shown) - 1) > available and screen.is_terminal and lines:
        _print_blocks(shown, len(lines))
    else:
        _print_table(shown, widths)


def _widths(columns: Sequence[_Column], available: int) -> list[int]:
    """Shrink the widest columns first, but none below its minimum."""
    widths = [column.width for column in columns]
    minimums = [column.min_width for column in columns]
    for _ in range(sum(widths) - available):
        shrinkable = [(width, at) for at, width in enumerate(widths) if width > minimums[at]]
        if not shrinkable:
            break
        widths[max(shrinkable)[1]] -= 1
    return widths


def _print_table(columns: Sequence[_Column], widths: Sequence[int]) -> None:
    table_width = sum(widths) + _GAP * (len(widths) - 1)
    table = Table(
        box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", width=table_width
    )
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column.name, width=width, overflow="fold")
    cells = [column.fitting(width) for column, width in zip(columns, widths, strict=True)]
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    screen.print(table)


def _print_blocks(columns: Sequence[_Column], count: int) -> None:
    for at in range(count):
        print_facts({column.name: column.cells[at] for column in columns if column.cells[at]})
        screen.print()


def _stacked(cell: Text) -> Text:
    """Put the parts of a cell on separate lines. The text keeps its length, and so its colours."""
    stacked = cell.copy()
    stacked.plain = cell.plain.replace(_PART_SEPARATOR, " \n")
    return stacked


_FICHE_ID = re.compile(r"[1-9][0-9]{0,17}")


def check_fiche_ids(given: Iterable[str]) -> None:
    """Raises an InvalidInputError that names the invalid ids."""
    invalid = [fiche_id for fiche_id in given if not _FICHE_ID.fullmatch(fiche_id)]
    if invalid:
        raise InvalidInputError(f"A fiche id is a number, unlike {', '.join(invalid)}.")
