"""`automation enrich`: request companies by number or CSV, follow the requests, print the results."""

import csv
import io
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from rich.progress import Progress, TimeRemainingColumn

from automation_pipeline import bootstrap
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.operations import Document, actor, operation, remote_api
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    file_name,
    print_json,
    read_text,
    screen,
    writing,
)
from automation_pipeline.cli.progress import Here, LaunchWait, Timeout, follows, progress_bars
from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.errors import ConflictError, InvalidInputError, sentence_of
from automation_pipeline.core.logs import correlation_id
from automation_pipeline.core.masking import csv_cell
from automation_pipeline.enrichment.jobs import work_enrichment
from automation_pipeline.enrichment.models import (
    DEFAULT_TENANT,
    FIELDS,
    GOOD_STATUSES,
    REQUESTS,
    EnrichmentAnswer,
    JobState,
    Requester,
    RequestOutcome,
    RequestShown,
    check_configured,
    parse_request,
)
from automation_pipeline.enrichment.queries.requests import get_request, request_statuses
from automation_pipeline.enrichment.requests import refresh_company, request_enrichment
from automation_pipeline.storage.database import Session

_SEPARATORS = re.compile(r"[\s.\u00a0\u202f-]")
AT_ONCE = 8
PATH = "/v1/requests"
CONTINUES = "The enrichment continues. Repeat the command without --force to see the known data."
CONTINUES_HERE = (
    "The rest continues with the next --here, or as soon as Dagster's daemon runs "
    "(`dagster dev` starts it)."
)


@dataclass(frozen=True)
class RequestAnswer:
    id: int


@dataclass(frozen=True)
class RequestedCompany:
    """`job_id`: the job to wait for; None when the company is known."""

    request: RequestAnswer
    outcome: RequestOutcome
    job_id: int | None


@operation(f"POST {PATH}")
def request_company(services: Services, given: Document, *, force: bool) -> RequestedCompany:
    """`force` applies to the local database only. Through the API, `refresh` refreshes a known company."""
    check_configured(services.registries.sources)
    answer = request_enrichment(
        given,
        _requester(),
        options=services.registries.options,
        database=services.database,
        clock=services.clock,
        force=force,
    )
    return _requested_company(services, answer)


@operation(f"POST {PATH}/{{request_id}}:refresh-company")
def refresh(services: Services, request_id: int) -> RequestedCompany:
    answer = refresh_company(
        request_id,
        _requester(),
        options=services.registries.options,
        database=services.database,
        clock=services.clock,
    )
    return _requested_company(services, answer)


@operation(f"GET {PATH}/{{request_id}}")
def request_shown(session: Session, request_id: int) -> RequestShown:
    return get_request(session, request_id, DEFAULT_TENANT)


def statuses_of(request_ids: Sequence[int]) -> Sequence[RequestShown]:
    """Read all requests with a few queries locally, or with one call per request through the API."""
    if remote_api() is None:
        return bootstrap.services().database.read(request_statuses, request_ids)
    return [request_shown(request_id) for request_id in request_ids]


def _requester() -> Requester:
    return Requester(
        tenant_id=DEFAULT_TENANT, correlation_id=correlation_id() or uuid4().hex, actor=actor()
    )


def _requested_company(services: Services, answer: EnrichmentAnswer) -> RequestedCompany:
    services.meter.count(REQUESTS, outcome=answer.outcome)
    return RequestedCompany(RequestAnswer(answer.request_id), answer.outcome, answer.job_id)


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A company that the user named, and the outcome of its request. `fault`: why it cannot be requested.
    `requested` is None until the request is sent; `known` is its last known status."""

    given: str
    body: Mapping[str, object]
    siren: str | None = None
    siret: str | None = None
    number_warnings: tuple[str, ...] = ()
    fault: str | None = None
    requested: RequestedCompany | None = None
    known: RequestShown | None = None

    @property
    def is_running(self) -> bool:
        return self.known is not None and self.known.enrichment_running

    @property
    def is_good(self) -> bool:
        return not self.is_running and self.status in GOOD_STATUSES

    @property
    def status(self) -> str | None:
        """None if no request was sent."""
        if self.fault is not None:
            return "INVALID"
        return self.known and self.known.request.enrichment_status

    @property
    def error(self) -> str | None:
        return self.fault or (self.known.request.enrichment_error if self.known else None)

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about the given number and about the establishment in the register."""
        known = self.known.request.warnings if self.known else ()
        return list(dict.fromkeys([*self.number_warnings, *known]))

    @property
    def company_document(self) -> dict[str, object] | None:
        company = self.known and self.known.company
        return company.model_dump(mode="json", by_alias=False) if company else None

    def document(self) -> dict[str, object]:
        return {
            "given": self.given,
            "siren": self.siren,
            "siret": self.siret,
            "request_id": self.requested and str(self.requested.request.id),
            "outcome": self.requested and self.requested.outcome,
            "status": self.status,
            "error": self.error,
            "warnings": self.warnings,
            "company": self.company_document,
        }


def read_wanted(numbers: Sequence[str], file: Path | None, *, strict: bool) -> list[Lookup]:
    """Return each number once, in the given order. Raises InvalidInputError if there is none."""
    given = [_number(number) for number in numbers]
    if file is not None:
        given += list(_numbers_of_file(file))
    if not given:
        raise InvalidInputError(
            "Which companies? Give SIRENs or SIRETs, or a file of them with --csv."
        )
    unique = {tuple(sorted(one.items())): one for one in given}
    return [_checked(one, strict=strict) for one in unique.values()]


def _checked(numbers: Mapping[str, str], *, strict: bool) -> Lookup:
    given, body = " ".join(numbers.values()), {**numbers, "strict": strict}
    try:
        found = parse_request(body).identifiers
    except InvalidInputError as error:
        return Lookup(given=given, body=body, fault=sentence_of(error))
    return Lookup(
        given=given,
        body=body,
        siren=found.siren,
        siret=found.siret,
        number_warnings=found.warnings,
    )


def _number(number: str) -> dict[str, str]:
    """A number with more digits than a SIREN counts as a SIRET."""
    is_siren = len(_SEPARATORS.sub("", number)) <= len("552032534")
    return {"siren" if is_siren else "siret": number.strip()}


def _numbers_of_file(file: Path) -> Iterator[dict[str, str]]:
    """Read the columns siren and siret, or else the first column. Lines without a number are skipped."""
    rows = _parsed(file)
    first: list[str] = next(rows, list[str]())
    names = [name.strip().lower() for name in first]
    columns = {name: names.index(name) for name in ("siren", "siret") if name in names}
    if not columns:
        is_header = not any(character.isdigit() for character in "".join(first[:1]))
        yield from _first_cells(rows if is_header else chain([first], rows))
        return
    for row in rows:
        cells = {name: row[index].strip() for name, index in columns.items() if index < len(row)}
        numbers = {name: cell for name, cell in cells.items() if cell}
        if numbers:
            yield numbers


def _parsed(file: Path) -> Iterator[list[str]]:
    lines = read_text(file).splitlines()
    delimiter = max(",;\t", key=lines[0].count if lines else None)
    rows = csv.reader(lines, delimiter=delimiter)
    try:
        yield from rows
    except csv.Error as error:
        raise InvalidInputError(
            f"{file_name(file)} cannot be read: line {rows.line_num}: {error}."
        ) from None


def _first_cells(rows: Iterable[Sequence[str]]) -> Iterator[dict[str, str]]:
    return (_number(row[0]) for row in rows if row and row[0].strip())


def request_companies(wanted: Sequence[Lookup], *, force: bool, quiet: bool) -> list[Lookup]:
    """Request all companies. A refused request does not stop the others."""

    def request(one: Lookup) -> Lookup:
        if one.fault is not None:
            return one
        try:
            requested = request_company(one.body, force=force)
            if force and requested.outcome is RequestOutcome.CACHE_HIT:
                requested = refresh(requested.request.id)
        except (InvalidInputError, ConflictError) as error:
            return replace(one, fault=sentence_of(error))
        return replace(one, requested=requested)

    if sys.stderr.isatty():  # a terminal shows the progress bar instead
        logging.getLogger("automation_pipeline").setLevel(logging.WARNING)
    lookups: list[Lookup] = []
    # The API works on each new job for up to a second.
    width = 1 if remote_api() is None else AT_ONCE
    with _bar(CONTINUES, quiet=quiet or not screen.is_terminal) as progress:
        bar = progress.add_task("requests", total=len(wanted))
        with ThreadPoolExecutor(width) as threads:
            for one in threads.map(request, wanted):
                lookups.append(one)
                progress.advance(bar)
    return lookups


def follow(
    lookups: Sequence[Lookup], *, quiet: bool, timeout: float | None, here: bool
) -> list[Lookup]:
    """Wait until no job of the requests is open. With `here`, this command works on the jobs itself, and
    takes over the job of a lost worker when its lease has expired."""
    requests = [one.requested for one in lookups if one.requested is not None]
    total = len(requests)
    known_at_once = sum(request.job_id is None for request in requests)
    waits = LaunchWait(timeout=timeout)
    with _bar(CONTINUES_HERE if here else CONTINUES, quiet=quiet) as progress:
        bar = progress.add_task("companies", total=total)
        while True:
            lookups = with_statuses(lookups)
            if here:
                progress.update(bar, completed=total - sum(one.is_running for one in lookups))
                work_on(lookups, lambda: progress.advance(bar))
                lookups = with_statuses(lookups)
            ended = total - sum(one.is_running for one in lookups)
            progress.update(bar, completed=ended)
            if ended == total:
                return lookups
            waits.pause(has_started=here or ended > known_at_once)


def with_statuses(lookups: Sequence[Lookup]) -> list[Lookup]:
    """Update the statuses of the requests that have not ended."""
    open_ids = [
        one.requested.request.id
        for one in lookups
        if one.requested and (one.is_running or one.known is None)
    ]
    found = {one.request.id: one for one in statuses_of(open_ids)}
    return [
        replace(one, known=found.get(one.requested.request.id, one.known)) if one.requested else one
        for one in lookups
    ]


def work_on(lookups: Sequence[Lookup], on_end: Callable[[], object]) -> None:
    """Work on each open job once, although several requests may wait for it."""
    services, owner = bootstrap.services(), f"cli:{socket.gethostname()}:{os.getpid()}"
    job_ids = dict.fromkeys(
        one.known.job_id
        for one in lookups
        if one.known and one.is_running and one.known.job_id is not None
    )

    async def work(job_id: int) -> None:
        view = await work_enrichment(
            job_id,
            registries=services.registries,
            database=services.database,
            clock=services.clock,
            owner=owner,
        )
        if view.state is JobState.DONE:
            on_end()

    services.run(process_concurrently(list(job_ids), work, lambda _: None, width=AT_ONCE))


def _bar(on_interrupt: str, *, quiet: bool) -> AbstractContextManager[Progress]:
    return progress_bars(
        on_interrupt,
        quiet=quiet,
        time_column=TimeRemainingColumn(elapsed_when_finished=True),
        transient=screen.is_terminal,
    )


CSV_COLUMNS = (
    *("given", "siren", "siret", "status"),
    *(name for name in FIELDS if name != "siret"),
    *("vat_number", "is_masked", "updated_at", "warnings", "error"),
)


def write_csv(path: Path, lookups: Sequence[Lookup]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    for one in lookups:
        own = {name: value for name, value in one.document().items() if value is not None}
        row = {**(one.company_document or {}), **own, "warnings": "; ".join(one.warnings)}
        writer.writerow([csv_cell(row.get(name)) for name in CSV_COLUMNS])
    with writing(path):
        path.write_text(text.getvalue(), encoding="utf-8", newline="")


def check_writable(path: Path) -> None:
    """Raise an error if the file cannot be written. An existing file stays unchanged, and a new one is
    removed again."""
    with writing(path):
        target = Path(os.path.realpath(path))
        is_new = not target.exists()
        # Opening and closing a pipe would end its reader's input.
        if is_new or target.is_file() or target.is_dir():
            target.open("a").close()
        if is_new:
            target.unlink()


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
        Path | None, typer.Option("--out", help="Write a CSV with one row per company.")
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for the end; exit 1 unless all are SUCCESS or PARTIAL."),
    ] = False,
    timeout: Timeout = None,
    here: Here = False,
    force: Annotated[bool, typer.Option("--force", help="Request fresh companies, too.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the numbers; request nothing.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse wrong check digits instead of warning.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look up companies. The command shows fresh data at once and requests the rest from the
    registers.

    Dagster's daemon starts that within seconds; with --here, this command does it itself."""
    wait = follows("enrich", wait=wait, timeout=timeout, here=here)
    lookups = read_wanted(numbers or [], csv_file, strict=strict)
    if len(lookups) == 1 and lookups[0].fault is not None:
        raise InvalidInputError(lookups[0].fault)
    if out is not None:
        check_writable(out)
    if not dry_run:
        lookups = request_companies(lookups, force=force, quiet=as_json)
        lookups = with_statuses(lookups)
    if wait and not dry_run:
        lookups = follow(lookups, quiet=as_json, timeout=timeout, here=here)
    if as_json:
        print_json({"companies": [one.document() for one in lookups]})
    else:
        (CHECKED if dry_run else COMPANIES).print(lookups)
    if out is not None:
        write_csv(out, lookups)
    has_failed = wait and not dry_run and not all(one.is_good for one in lookups)
    if has_failed or any(one.fault is not None for one in lookups):
        raise typer.Exit(1)


def _naf(one: Lookup) -> str | None:
    company = one.known and one.known.company
    return " ".join(filter(None, (company.naf_code, company.naf_label))) if company else None


COMPANIES = Columns[Lookup](
    {
        "siren": lambda one: one.siren or one.given,
        "status": lambda one: one.status,
        "name": lambda one: (one.company_document or {}).get("legal_name"),
        "city": lambda one: (one.company_document or {}).get("city"),
        "naf": _naf,
        "error": lambda one: one.error or "; ".join(one.warnings),
    }
)
CHECKED = Columns[Lookup](
    {
        "given": lambda one: one.given,
        "siren": lambda one: one.siren,
        "siret": lambda one: one.siret,
        "warning": lambda one: "; ".join(one.warnings),
        "error": lambda one: one.fault,
    }
)
