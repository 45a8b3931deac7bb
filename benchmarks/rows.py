"""The rows that an `automation_run` writes, taken from a small real run and repeated for more
fiches, so that the limit always writes the same rows per table as the system."""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

FICHE = re.compile(r"(?<![0-9])(7000[0-9]{5})(?:[0-9]{2})?(?![0-9])")
# Columns with these names contain the id of a row of this table.
POINTS_TO = {"fiche_cache_id": "fiche_cache", "recording_id": "recordings", "audit_id": "audits"}
# Texts that contain the id of a row, by table.
KEYED = {"leases": (re.compile(r"^audit-([0-9]+)$"), "audits")}
# Tables with rows of the whole run, although some of them name fiches.
OF_THE_RUN = {"automation_logs", "automation_runs", "sales_days"}
Value = str | int | float | bytes | None
Row = tuple[Value, ...]


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[str, ...]

    @property
    def own(self) -> int | None:
        """The position of the id."""
        return self.columns.index("id") if "id" in self.columns else None

    @property
    def statement(self) -> str:
        marks = ", ".join("?" * len(self.columns))
        return f'INSERT INTO "{self.name}" ({", ".join(self.columns)}) VALUES ({marks})'  # noqa: S608  names from the tables module


@dataclass(frozen=True)
class Stencil:
    """One row of the small run. `own` is the position of its id, `pointers` the positions of
    foreign keys, `keyed` the texts that contain the id of another row, `named` the texts that
    contain the id of the fiche; both are split at the id."""

    table: Table
    values: Row
    own: int | None
    pointers: tuple[tuple[int, str, Value], ...]
    keyed: tuple[tuple[int, str, Value, tuple[str, str]], ...]
    named: tuple[tuple[int, tuple[str, ...]], ...]


@dataclass
class Shape:
    """`once` has the rows of the run itself, `fiches` the rows of a fiche by its number of
    recordings."""

    schema: list[str]
    once: list[tuple[Table, Row]] = field(default_factory=list)
    fiches: dict[int, list[Stencil]] = field(default_factory=dict)

    def writer(self) -> "Writer":
        """New ids continue after those of the run's own rows."""
        taken = [(table, values[table.own]) for table, values in self.once if table.own is not None]
        highest: dict[str, int] = {}
        for table, number in taken:
            if isinstance(number, int):
                highest[table.name] = max(highest.get(table.name, 0), number)
        ids: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(1))
        return Writer(self, ids | {name: count(number + 1) for name, number in highest.items()})


@dataclass
class Writer:
    shape: Shape
    _ids: defaultdict[str, Iterator[int]]

    def rows(self, fiche_id: str, recordings: int) -> dict[str, list[Row]]:
        """Rows by the statement that inserts them, parents first."""
        created: dict[str, list[Row]] = {}
        known: dict[tuple[str, Value], int] = {}
        for stencil in self.shape.fiches[recordings]:
            values = list(stencil.values)
            if stencil.own is not None:
                number = next(self._ids[stencil.table.name])
                known[stencil.table.name, values[stencil.own]] = number
                values[stencil.own] = number
            for place, table, old in stencil.pointers:
                values[place] = known[table, old]
            for place, table, old, parts in stencil.keyed:
                values[place] = str(known[table, old]).join(parts)
            for place, parts in stencil.named:
                values[place] = fiche_id.join(parts)
            created.setdefault(stencil.table.statement, []).append(tuple(values))
        return created


def shape_of(database: Path, fiche_ids: dict[int, str]) -> Shape:
    """`fiche_ids` maps each number of recordings to a fiche of the small run."""
    with closing(sqlite3.connect(database)) as connection:
        shape = Shape(_schema(connection))
        known: dict[tuple[str, Value], str] = {}
        for table in _parents_first(connection):
            for values in connection.execute(f'SELECT * FROM "{table.name}"'):  # noqa: S608  names from the tables module
                _take_in(
                    shape,
                    table,
                    values,
                    known,
                    {fiche: number for number, fiche in fiche_ids.items()},
                )
        return shape


def _take_in(
    shape: Shape, table: Table, values: Row, known: dict[tuple[str, Value], str], wanted: dict
) -> None:
    fiche = None if table.name in OF_THE_RUN else _fiche_of(table, values, known)
    if fiche is None:
        shape.once.append((table, values))
        return
    if table.own is not None:
        known[table.name, values[table.own]] = fiche
    if fiche in wanted:
        shape.fiches.setdefault(wanted[fiche], []).append(_stencil(table, values, fiche))


def _fiche_of(table: Table, values: Row, known: dict[tuple[str, Value], str]) -> str | None:
    for column, value in zip(table.columns, values, strict=True):
        if (pointed := POINTS_TO.get(column)) and (pointed, value) in known:
            return known[pointed, value]
    texts = [value for value in values if isinstance(value, str)]
    found = next((found for text in texts if (found := FICHE.search(text))), None)
    return (
        found[1]
        if found
        else next((known.get((owner, old)) for _, owner, old, _ in _keyed(table, values)), None)
    )


def _keyed(table: Table, values: Row) -> tuple[tuple[int, str, Value, tuple[str, str]], ...]:
    if table.name not in KEYED:
        return ()
    pattern, owner = KEYED[table.name]
    return tuple(
        (place, owner, int(found[1]), (value[: found.start(1)], value[found.end(1) :]))
        for place, value in enumerate(values)
        if isinstance(value, str) and (found := pattern.search(value))
    )


def _stencil(table: Table, values: Row, fiche: str) -> Stencil:
    own = table.own
    pairs = list(enumerate(zip(table.columns, values, strict=True)))
    return Stencil(
        table=table,
        values=values,
        own=own if own is not None and isinstance(values[own], int) else None,
        pointers=tuple(
            (place, POINTS_TO[name], value)
            for place, (name, value) in pairs
            if name in POINTS_TO and value is not None
        ),
        keyed=_keyed(table, values),
        named=tuple(
            (place, tuple(value.split(fiche)))
            for place, (_, value) in pairs
            if isinstance(value, str) and fiche in value
        ),
    )


def _schema(connection: sqlite3.Connection) -> list[str]:
    listing = (
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
        "ORDER BY type DESC, rowid"
    )
    return [row[0] for row in connection.execute(listing)]


def _parents_first(connection: sqlite3.Connection) -> list[Table]:
    listing = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    names = [row[0] for row in connection.execute(listing)]
    parents = [name for name in ("fiche_cache", "recordings", "audits") if name in names]
    return [
        Table(
            name,
            tuple(
                f'"{row[1]}"' if row[1] == "index" else row[1] for row in _columns(connection, name)
            ),
        )
        for name in dict.fromkeys((*parents, *names))
    ]


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple]:
    return connection.execute(f'PRAGMA table_info("{table}")').fetchall()
