"""Tables that stay readable however narrow the screen is: prices, states and times are never broken, and
where that leaves no room for a table, each row is a block of lines."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from automation_pipeline.cli.output import print_facts, screen

# Whoever reads a pipe or a log is not bound to the width of a terminal.
NARROWEST_FILE = 160
_LONGEST_WORD = 20
_GAP = 2
_APART = "  "


@dataclass(frozen=True)
class _Column:
    name: str
    cells: Sequence[Text]
    is_text: bool

    @property
    def width(self) -> int:
        return max(map(cell_len, self._lines))

    @property
    def least(self) -> int:
        """On a terminal a long word, such as the ids of a variant, may be broken; elsewhere nobody could rejoin it."""
        if not self.is_text:
            return max(cell_len(piece) for line in self._lines for piece in line.split(_APART))
        longest = max((cell_len(word) for line in self._lines for word in line.split()), default=1)
        return min(longest, max(_LONGEST_WORD, cell_len(self.name))) if screen.is_terminal else longest

    def fitting(self, width: int) -> Sequence[Text]:
        """What stands two blanks apart, as the two parts of a change do, may stand one below the other."""
        if self.is_text or width >= self.width:
            return self.cells
        return [_stacked(cell) for cell in self.cells]

    @property
    def _lines(self) -> list[str]:
        return [self.name, *(line for cell in self.cells for line in cell.plain.splitlines())]


def print_fitted_table(names: Sequence[str], rows: Iterable[Sequence[object]], *, texts: Collection[str] = ()) -> None:
    """`texts` are the columns that may be broken between words. A column that is empty in all rows is left out."""
    lines = [[_cell(value) for value in row] for row in rows]
    columns = [_Column(name, [line[at] for line in lines], name in texts) for at, name in enumerate(names)]
    shown = [column for column in columns if not lines or any(column.cells)]
    room = screen.width if screen.is_terminal else max(screen.width, NARROWEST_FILE)
    widths = _widths(shown, room - _GAP * (len(shown) - 1))
    if sum(widths) + _GAP * (len(shown) - 1) > room and screen.is_terminal and lines:
        _print_blocks(shown, len(lines))
    else:
        _print_table(shown, widths)


def _widths(columns: Sequence[_Column], room: int) -> list[int]:
    """The widest texts give way first, none below its least."""
    widths, leasts = [column.width for column in columns], [column.least for column in columns]
    for _ in range(sum(widths) - room):
        spare = [(width, at) for at, width in enumerate(widths) if width > leasts[at]]
        if not spare:
            break
        widths[max(spare)[1]] -= 1
    return widths


def _print_table(columns: Sequence[_Column], widths: Sequence[int]) -> None:
    whole = sum(widths) + _GAP * (len(widths) - 1)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", width=whole)
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
    """Of the same length, so that its colours stay where they are."""
    stacked = cell.copy()
    stacked.plain = cell.plain.replace(_APART, " \n")
    return stacked


def _cell(value: object) -> Text:
    """A plain string stays what it is: square brackets in people's texts are not mark-up."""
    return value if isinstance(value, Text) else Text("" if value is None else str(value))
