"""`automation enrich`: request companies by number or CSV, follow them, print them."""

import csv
import io
import logging
import os
import re
import sys
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import AskedCompany, Client
from automation_pipeline.cli.client.progress import POLL_SECONDS, Here, LaunchWait, Timeout, follows
from automation_pipeline.cli.output import AsJson, print_json, print_table, screen
from automation_pipeline.core.errors import ConflictError, InvalidInputError, sentence_of
from automation_pipeline.core.masking import csv_cell
from automation_pipeline.enrichment.models import FIELDS, EnrichmentStatus, parse_request
from automation_pipeline.enrichment.queries.requests import RequestStatus

_ID_COLUMNS = ("siren", "siret")
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
    given = [_number(number) for number in numbers]
    if file is not None:
        given += list(_numbers_of_file(file))
    if not given:
        raise InvalidInputError(
            "Which companies? Give SIRENs or SIRETs, or a file of them with --csv."
        )
    unique = {tuple(sorted(one.items())): one for one in given}
    return [_checked(one, strict=strict) for one in unique.values()]


def _checked(numbers: Mapping[str, str], *, strict: bool) -> Wanted:
    given, body = " ".join(numbers.values()), {**numbers, "strict": strict}
    try:
        found = parse_request(body).identifiers
    except InvalidInputError as error:
        return Wanted(given=given, body=body, fault=sentence_of(error))
    return Wanted(
        given=given, body=body, siren=found.siren, siret=found.siret, warnings=found.warnings
    )


def _number(number: str) -> dict[str, str]:
    """What has more digits than a SIREN is taken for a SIRET."""
    is_siren = len(_SEPARATORS.sub("", number)) <= _LENGTH_OF_SIREN
    return {"siren" if is_siren else "siret": number.strip()}


def _numbers_of_file(file: Path) -> Iterator[dict[str, str]]:
    """Of the columns named so, or of the first one; lines without a number are left out."""
    rows = _parsed(file)
    first: list[str] = next(rows, list[str]())
    names = [name.strip().lower() for name in first]
    places = {name: names.index(name) for name in _ID_COLUMNS if name in names}
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
    lines = _file_text(file).splitlines()
    rows = csv.reader(lines, delimiter=_delimiter(lines))
    try:
        yield from rows
    except csv.Error as error:
        raise InvalidInputError(
            f"{_file_name(file)} cannot be read: line {rows.line_num}: {error}."
        ) from None


def _of_column(rows: Iterable[Sequence[str]], place: int) -> Iterator[dict[str, str]]:
    return (_number(row[place]) for row in rows if len(row) > place and row[place].strip())


def _delimiter(lines: Sequence[str]) -> str:
    head = lines[0] if lines else ""
    return max(",;\t", key=head.count)


def _file_text(file: Path) -> str:
    try:
        return (sys.stdin.buffer.read() if _is_standard_input(file) else file.read_bytes()).decode(
            "utf-8-sig"
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInputError(f"{_file_name(file)} cannot be read: {reason}.") from None


def _file_name(file: Path) -> str:
    return "Standard input" if _is_standard_input(file) else str(file)


def _is_standard_input(file: Path) -> bool:
    return str(file) == "-"


CONTINUES = (
    "The enrichment goes on without us: the same command without --force tells what is known.\n"
)
CONTINUES_HERE = (
    "What is left goes on with the next --here, or as soon as Dagster's daemon runs "
    "(`dagster dev` starts it).\n"
)
_GOOD = frozenset({EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL})


@dataclass(frozen=True, kw_only=True)
class Enriched:
    """What became of one that was given. `asked` None: it was only checked, or could not be asked
    for."""

    wanted: Wanted
    asked: AskedCompany | None = None
    standing: RequestStatus | None = None
    fault: str | None = None

    @property
    def is_good(self) -> bool:
        return (
            self.standing is not None
            and not self.standing.is_running
            and self.standing.status in _GOOD
        )


def request_companies(
    wanted: Sequence[Wanted], client: Client, *, force: bool, quiet: bool
) -> Sequence[Enriched]:
    """One that is refused is no reason not to ask for the others."""
    with _bar(quiet=quiet or not screen.is_terminal) as progress:
        bar = progress.add_task("asking", total=len(wanted))
        told: list[Enriched] = []
        with ThreadPoolExecutor(client.companies.width) as threads:
            for one in threads.map(partial(_request_one, client=client, force=force), wanted):
                told.append(one)
                progress.advance(bar)
    return told


def follow(
    asked: Sequence[Enriched],
    client: Client,
    *,
    pause: threading.Event,
    quiet: bool,
    timeout: float | None = None,
    here: bool = False,
) -> Sequence[Enriched]:
    """Until no job of theirs is open. With `here` the jobs are done by this command, also one whose
    worker was lost, as soon as its lease has ended."""
    goes_on = CONTINUES_HERE if here else CONTINUES
    try:
        with _bar(quiet=quiet) as progress:
            bar = progress.add_task("companies", total=len(_request_ids(asked)))
            known = sum(one.asked.job_id is None for one in asked if one.asked)
            waits = LaunchWait(client, timeout=timeout)
            while True:
                asked = refresh_statuses(asked, client)
                progress.update(bar, completed=_count_ended(asked))
                if here:
                    client.companies.work(_open_jobs(asked), lambda: progress.advance(bar))
                    asked = refresh_statuses(asked, client)
                over = _count_ended(asked)
                progress.update(bar, completed=over)
                if over == len(_request_ids(asked)):
                    return asked
                waits.look(begun=here or over > known)
                pause.wait(POLL_SECONDS)
    except KeyboardInterrupt:
        sys.stderr.write(goes_on)
        raise


def refresh_statuses(asked: Sequence[Enriched], client: Client) -> Sequence[Enriched]:
    """How they stand now. Those that are over are not looked at again."""
    open_ids = [
        one.asked.request_id
        for one in asked
        if one.asked and (not one.standing or one.standing.is_running)
    ]
    found: Mapping[int, RequestStatus] = {
        one.request_id: one for one in client.companies.followed(open_ids)
    }
    return [
        Enriched(
            wanted=one.wanted,
            asked=one.asked,
            standing=found.get(_request_id(one), one.standing),
            fault=one.fault,
        )
        for one in asked
    ]


def _request_one(one: Wanted, client: Client, *, force: bool) -> Enriched:
    if one.fault is not None:
        return Enriched(wanted=one, fault=one.fault)
    try:
        return Enriched(wanted=one, asked=client.companies.request(one.body, force=force))
    except (InvalidInputError, ConflictError) as error:
        return Enriched(wanted=one, fault=sentence_of(error))


def _count_ended(asked: Sequence[Enriched]) -> int:
    return sum(not (one.standing and one.standing.is_running) for one in asked if one.asked)


def _open_jobs(asked: Sequence[Enriched]) -> list[int]:
    """Each once: several requests may wait for one."""
    found = (one.standing.open_job_id for one in asked if one.standing and one.standing.is_running)
    return list(dict.fromkeys(job_id for job_id in found if job_id is not None))


def _request_ids(asked: Sequence[Enriched]) -> list[int]:
    return [one.asked.request_id for one in asked if one.asked]


def _request_id(one: Enriched) -> int:
    return one.asked.request_id if one.asked else 0


@contextmanager
def _bar(*, quiet: bool) -> Generator[Progress]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(
        *columns, console=screen, disable=quiet, transient=screen.is_terminal
    ) as progress:
        yield progress


INVALID = "INVALID"
_CSV_COLUMNS = (
    "given",
    "siren",
    "siret",
    "status",
    *(name for name in FIELDS if name != "siret"),
    "vat_number",
)
_LAST_CSV_COLUMNS = ("is_masked", "updated_at", "warnings", "error")


def print_companies(enriched: Sequence[Enriched]) -> None:
    print_table(("siren", "status", "name", "city", "naf", "error"), map(_table_row, enriched))


def print_checked(checked: Sequence[Enriched]) -> None:
    rows = [
        (
            one.wanted.given,
            one.wanted.siren,
            one.wanted.siret,
            _joined(one.wanted.warnings),
            one.fault,
        )
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
    writer.writerow((*_CSV_COLUMNS, *_LAST_CSV_COLUMNS))
    writer.writerows(map(csv_cell, _csv_row(one)) for one in enriched)
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


def _table_row(one: Enriched) -> Sequence[object]:
    company = one.standing.company if one.standing else None
    siren, error = one.wanted.siren or one.wanted.given, _error(one) or _joined(_warnings(one))
    if company is None:
        return siren, status_of(one), None, None, None, error
    naf = " ".join(part for part in (company.naf_code, company.naf_label) if part)
    return siren, status_of(one), company.legal_name, company.city, naf, error


def _csv_row(one: Enriched) -> list[object]:
    told = document_of(one)
    company = (
        one.standing.company.model_dump(mode="json", by_alias=False)
        if one.standing and one.standing.company
        else {}
    )
    beside = {"warnings": _joined(_warnings(one)), "error": _error(one)}
    asked = {
        name: told[name] for name in ("given", "siren", "siret", "status") if told[name] is not None
    }
    known = {**company, **asked, **beside}
    return [_plain(known.get(name)) for name in (*_CSV_COLUMNS, *_LAST_CSV_COLUMNS)]


def _plain(value: object) -> object:
    """A spreadsheet takes what begins so for a formula."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value


def _warnings(one: Enriched) -> Sequence[str]:
    """About the number as it was given, and about the establishment as the register knows it."""
    found = one.standing.warnings if one.standing else ()
    return list(dict.fromkeys([*one.wanted.warnings, *found]))


def _joined(warnings: Sequence[str]) -> str:
    return "; ".join(warnings)


def enrich(
    numbers: Annotated[
        list[str] | None, typer.Argument(help="SIRENs or SIRETs; spaces in them must be quoted.")
    ] = None,
    *,
    csv_file: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            help="A CSV with a column siren or siret, or with numbers in the first; - for standard input.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a CSV with one row a company.")
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Follow to the end; exit 1 unless all are SUCCESS or PARTIAL."),
    ] = False,
    timeout: Timeout = None,
    here: Here = False,
    force: Annotated[bool, typer.Option("--force", help="Ask for what is fresh, too.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the numbers; nobody is asked.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse wrong check digits instead of warning.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask for companies: what is known and fresh is shown at once, the rest is asked of the
    registers.

    Dagster's daemon does that within seconds; with --here, this command itself.
    """
    wait = follows("enrich", wait=wait, timeout=timeout, here=here)
    wanted = read_wanted(numbers or [], csv_file, strict=strict)
    if len(wanted) == 1 and wanted[0].fault is not None:
        raise InvalidInputError(wanted[0].fault)
    if out is not None:
        check_writable(out)
    if dry_run:
        told = [Enriched(wanted=one, fault=one.fault) for one in wanted]
    else:
        client = open_client()
        told = _request_all(wanted, client, force=force, quiet=as_json)
        followed = partial(
            follow, pause=threading.Event(), quiet=as_json, timeout=timeout, here=here
        )
        told = list(followed(told, client) if wait else refresh_statuses(told, client))
    _print_all(told, as_json=as_json, dry_run=dry_run)
    if out is not None:
        write_csv(out, told)
    if any(one.fault is not None or (wait and not dry_run and not one.is_good) for one in told):
        raise typer.Exit(1)


def _print_all(told: Sequence[Enriched], *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json({"companies": [document_of(one) for one in told]})
    elif dry_run:
        print_checked(told)
    else:
        print_companies(told)


def _request_all(
    wanted: Sequence[Wanted], client: Client, *, force: bool, quiet: bool
) -> Sequence[Enriched]:
    if sys.stderr.isatty():  # a person has the bar to look at
        logging.getLogger("automation_pipeline").setLevel(logging.WARNING)
    return request_companies(wanted, client, force=force, quiet=quiet)
