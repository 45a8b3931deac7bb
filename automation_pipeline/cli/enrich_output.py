"""What `automation enrich` tells: a table, one JSON document, or a CSV with one row a company."""

import csv
import io
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from automation_pipeline.cli.enrich_following import Enriched
from automation_pipeline.cli.output import print_table
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.safe_text import csv_cell
from automation_pipeline.enrichment.domain.record import FIELDS

INVALID = "INVALID"
_COLUMNS = ("given", "siren", "siret", "status", *(name for name in FIELDS if name != "siret"), "vat_number")
_LAST = ("is_masked", "updated_at", "warnings", "error")


def print_companies(enriched: Sequence[Enriched]) -> None:
    print_table(("siren", "status", "name", "city", "naf", "error"), map(_row, enriched))


def print_checked(checked: Sequence[Enriched]) -> None:
    rows = [
        (one.wanted.given, one.wanted.siren, one.wanted.siret, _words(one.wanted.warnings), one.fault)
        for one in checked
    ]
    print_table(("given", "siren", "siret", "warning", "error"), rows)


def document_of(one: Enriched) -> dict[str, object]:
    """In the words of the API."""
    asked, standing = one.asked, one.standing
    company = standing.company if standing else None
    return {
        "given": one.wanted.given,
        "siren": one.wanted.siren,
        "siret": one.wanted.siret,
        "request_id": None if asked is None else str(asked.request_id),
        "outcome": asked and asked.outcome,
        "status": status_of(one),
        "error": _error(one),
        "warnings": list(_warnings(one)),
        "company": company and company.model_dump(mode="json", by_alias=False),
    }


def write_csv(path: Path, enriched: Sequence[Enriched]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow((*_COLUMNS, *_LAST))
    writer.writerows(map(csv_cell, _cells(one)) for one in enriched)
    with _writing(path):
        path.write_text(text.getvalue(), encoding="utf-8", newline="")


def check_writable(path: Path) -> None:
    """Before anybody is asked. What is there stays as it is; nothing is left where nothing was."""
    with _writing(path):
        target = Path(os.path.realpath(path))
        is_new = not target.exists()
        if is_new or target.is_file() or target.is_dir():  # a pipe would take it for the end
            target.open("a").close()
        if is_new:
            target.unlink()


@contextmanager
def _writing(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no name of a file"
        raise InvalidInputError(f"{path} cannot be written: {reason}.") from None


def status_of(one: Enriched) -> str | None:
    """None: it was checked, and nothing more."""
    if one.fault is not None:
        return INVALID
    return None if one.standing is None else one.standing.status


def _error(one: Enriched) -> str | None:
    return one.fault or (one.standing.error if one.standing else None)


def _row(one: Enriched) -> Sequence[object]:
    company = one.standing.company if one.standing else None
    siren, error = one.wanted.siren or one.wanted.given, _error(one) or _words(_warnings(one))
    if company is None:
        return siren, status_of(one), None, None, None, error
    naf = " ".join(part for part in (company.naf_code, company.naf_label) if part)
    return siren, status_of(one), company.legal_name, company.city, naf, error


def _cells(one: Enriched) -> list[object]:
    told = document_of(one)
    company = (
        one.standing.company.model_dump(mode="json", by_alias=False) if one.standing and one.standing.company else {}
    )
    beside = {"warnings": _words(_warnings(one)), "error": _error(one)}
    asked = {name: told[name] for name in ("given", "siren", "siret", "status") if told[name] is not None}
    known = {**company, **asked, **beside}
    return [_plain(known.get(name)) for name in (*_COLUMNS, *_LAST)]


def _plain(value: object) -> object:
    """A spreadsheet takes what begins so for a formula."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value


def _warnings(one: Enriched) -> Sequence[str]:
    """About the number as it was given, and about the establishment as the register knows it."""
    found = one.standing.warnings if one.standing else ()
    return list(dict.fromkeys([*one.wanted.warnings, *found]))


def _words(warnings: Sequence[str]) -> str:
    return "; ".join(warnings)
