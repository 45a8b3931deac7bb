"""Which companies are meant: numbers that are typed, and those of a CSV."""

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from automation_pipeline.core.errors import InvalidInputError, sentence_of
from automation_pipeline.enrichment.domain.asked import parse_request

_COLUMNS = ("siren", "siret")
_SEPARATORS = re.compile(r"[\s.\u00a0\u202f-]")
_LENGTH_OF_SIREN = 9


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A company as it was given. `fault`: why it cannot be asked for."""

    given: str
    body: Mapping[str, object]
    siren: str | None = None
    siret: str | None = None
    warnings: tuple[str, ...] = ()
    fault: str | None = None


def read_wanted(numbers: Sequence[str], file: Path | None, *, strict: bool) -> list[Wanted]:
    """Each once, in their order. InvalidInputError: there is none."""
    given = [_named(number) for number in numbers]
    if file is not None:
        given += list(_rows(file))
    if not given:
        raise InvalidInputError("Which companies? Give SIRENs or SIRETs, or a file of them with --csv.")
    unique = {tuple(sorted(one.items())): one for one in given}
    return [_checked(one, strict=strict) for one in unique.values()]


def _checked(numbers: Mapping[str, str], *, strict: bool) -> Wanted:
    given, body = " ".join(numbers.values()), {**numbers, "strict": strict}
    try:
        found = parse_request(body).identifiers
    except InvalidInputError as error:
        return Wanted(given=given, body=body, fault=sentence_of(error))
    return Wanted(given=given, body=body, siren=found.siren, siret=found.siret, warnings=found.warnings)


def _named(number: str) -> dict[str, str]:
    """What has more digits than a SIREN is taken for a SIRET."""
    is_siren = len(_SEPARATORS.sub("", number)) <= _LENGTH_OF_SIREN
    return {"siren" if is_siren else "siret": number.strip()}


def _rows(file: Path) -> Iterator[dict[str, str]]:
    """Of the columns named so, or of the first one; lines without a number are left out."""
    rows = _parsed(file)
    first: list[str] = next(rows, list[str]())
    names = [name.strip().lower() for name in first]
    places = {name: names.index(name) for name in _COLUMNS if name in names}
    if not places and first and any(character.isdigit() for character in first[0]):
        yield from _of_column([first], 0)
    if not places:
        yield from _of_column(rows, 0)
        return
    for row in rows:
        cells = {name: row[place].strip() for name, place in places.items() if place < len(row)}
        told = {name: cell for name, cell in cells.items() if cell}
        if told:
            yield told


def _parsed(file: Path) -> Iterator[list[str]]:
    lines = _text(file).splitlines()
    rows = csv.reader(lines, delimiter=_delimiter(lines))
    try:
        yield from rows
    except csv.Error as error:
        raise InvalidInputError(f"{_name(file)} cannot be read: line {rows.line_num}: {error}.") from None


def _of_column(rows: Iterable[Sequence[str]], place: int) -> Iterator[dict[str, str]]:
    return (_named(row[place]) for row in rows if len(row) > place and row[place].strip())


def _delimiter(lines: Sequence[str]) -> str:
    head = lines[0] if lines else ""
    return max(",;\t", key=head.count)


def _text(file: Path) -> str:
    try:
        return (sys.stdin.buffer.read() if _is_standard_input(file) else file.read_bytes()).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInputError(f"{_name(file)} cannot be read: {reason}.") from None


def _name(file: Path) -> str:
    return "Standard input" if _is_standard_input(file) else str(file)


def _is_standard_input(file: Path) -> bool:
    return str(file) == "-"
