"""`automation fiches`: list and show mirrored fiches, and fetch sales lists and details from the CRM."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, cast

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from automation_pipeline import bootstrap
from automation_pipeline.audits.queries.documents import fiches_with_audits
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import Document, operation, require_local_machine
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    check_fiche_ids,
    print_facts,
    print_json,
    print_table,
    say,
    screen,
)
from automation_pipeline.core.access import EVERYTHING
from automation_pipeline.core.clock import days_between
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.zones import wall_time, zone
from automation_pipeline.fiches.mirror import fetch_days, revalidate_days
from automation_pipeline.fiches.models.days import DayCoverage, DayFailed, SalesDay
from automation_pipeline.fiches.queries.fiches import FichePage, fiche_document
from automation_pipeline.fiches.queries.mirror import coverage_of
from automation_pipeline.storage.database import Session
from automation_pipeline.transcription.queries.recordings import transcription_status

app = command_group("Fetch and show the CRM's fiches.")

MOST_DAYS = 366


@operation("GET /api/fiches/{fiche_id}/mirror")
def get_fiche(session: Session, fiche_id: str) -> Document:
    return {
        **fiche_document(session, fiche_id),
        "transcription": transcription_status(session, fiche_id),
    }


@dataclass(frozen=True)
class FichesOfDay:
    """`total`: the fiches on all pages."""

    date: date
    total: int
    fiches: Sequence[Document]


@operation("GET /api/fiches/status/by-date")
def fiches_of_day(session: Session, date: date, limit: int, offset: int) -> FichesOfDay:
    fiches, total = fiches_with_audits(session, [date], EVERYTHING, FichePage(limit, offset))
    return FichesOfDay(date, total, fiches)


@app.command("list")
def list_fiches(
    *,
    day: Annotated[
        str | None,
        typer.Option("--date", help="The day of the sales, as YYYY-MM-DD; the default is today."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The number of fiches.")] = 500,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many fiches.")] = 0,
    as_json: AsJson = False,
) -> None:
    """List the stored fiches that were sold on a day, without a request to the CRM."""
    sold_on = _today(bootstrap.services()) if day is None else _parse_option("--date", day)
    page = fiches_of_day(sold_on, limit, offset)
    if as_json:
        print_json({"date": page.date.isoformat(), "total": page.total, "fiches": page.fiches})
        return
    SOLD.print(page.fiches)
    if page.total == 0:
        say(
            f"No fiche of {sold_on} is stored. `automation fiches sync --date {sold_on}` fetches them."
        )
    elif len(page.fiches) < page.total:
        say(f"{len(page.fiches)} of {page.total} fiches.")


@app.command()
def show(
    fiche_id: Annotated[str, typer.Argument(help="The fiche's id in the CRM.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show one mirrored fiche; --json shows all of its data."""
    check_fiche_ids([fiche_id])
    document = get_fiche(fiche_id)
    if as_json:
        print_json(document)
    else:
        print_fiche(document)


@app.command()
def sync(
    *,
    day: Annotated[str | None, typer.Option("--date", help="One day, as YYYY-MM-DD.")] = None,
    first: Annotated[str | None, typer.Option("--from", help="The first of several days.")] = None,
    last: Annotated[
        str | None, typer.Option("--to", help="The last of several days; the default is today.")
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Fetch the full details too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Fetch final lists again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch the sales lists of some days from the CRM, and the details that are missing or
    outdated.

    A list that was fetched after its day ended is final and is not fetched again without --force.
    """
    require_local_machine("fiches sync")
    services = bootstrap.services()
    days = _requested_days(day, first, last, services)
    lists, errors = _sync(days, services, details=details, force=force, quiet=as_json)
    with services.database.reading() as session:
        coverage = {at: coverage_of(session, at) for at in days}
    failed = [one for one in lists if isinstance(one, DayFailed)]
    if as_json:
        documents = [_day_document(one, coverage[one.day]) for one in lists]
        print_json({"days": documents, "errors": dict(errors)})
    else:
        rows = [
            (
                *(one.day, one.fiches, one.new, one.changed),
                *(coverage[one.day].with_details, coverage[one.day].not_found),
            )
            for one in lists
            if isinstance(one, SalesDay)
        ]
        print_table(("day", "fiches", "new", "changed", "with details", "not found"), rows)
        for one in failed:
            say(f"{one.day}: {one.error}")
        for error, count in errors.most_common():
            say(f"{count} x {error}")
    if errors or failed:
        raise typer.Exit(1)


def _sync(
    days: list[date], services: Services, *, details: bool, force: bool, quiet: bool
) -> tuple[list[SalesDay | DayFailed], Counter[str]]:
    """Return the outcome of each day, and the number of failed fiches by error."""
    source, errors = services.crm, Counter[str]()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, disable=quiet) as progress:
        lists_bar = progress.add_task("sales lists", total=len(days))
        lists = services.run(
            revalidate_days(
                days,
                database=services.database,
                source=source,
                clock=services.clock,
                semaphore=services.sales_list_semaphore,
                force=force,
                on_day=lambda _day: progress.advance(lists_bar),
            )
        )
        if details:
            bar = progress.add_task("details", total=None)
            errors = services.run(
                fetch_days(
                    days,
                    database=services.database,
                    source=source,
                    clock=services.clock,
                    progress=lambda done, total: progress.update(bar, completed=done, total=total),
                )
            )
    return lists, errors


def _requested_days(
    day: str | None, first: str | None, last: str | None, services: Services
) -> list[date]:
    if (day is None) == (first is None) or (day is not None and last is not None):
        raise InvalidInputError("Give either --date, or --from and --to.")
    if day is not None:
        start = end = _parse_option("--date", day)
    else:
        start = _parse_option("--from", first or "")
        end = _today(services) if last is None else _parse_option("--to", last)
    if end < start:
        raise InvalidInputError("--to is before --from.")
    if (end - start).days >= MOST_DAYS:
        raise InvalidInputError(f"At most {MOST_DAYS} days can be fetched at a time.")
    return list(days_between(start, end))


def _today(services: Services) -> date:
    return wall_time(services.clock.now(), zone(services.settings.automation_timezone)).date()


def _parse_option(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"{option} is not a day as YYYY-MM-DD: {text}") from None


def _day_document(outcome: SalesDay | DayFailed, coverage: DayCoverage) -> dict[str, object]:
    if isinstance(outcome, DayFailed):
        return {"day": outcome.day.isoformat(), "error": outcome.error}
    return {
        "day": outcome.day.isoformat(),
        "fiches": outcome.fiches,
        "new": outcome.new,
        "changed": outcome.changed,
        "withDetails": coverage.with_details,
        "notFound": coverage.not_found,
        "withoutDetails": coverage.without_details,
    }


def print_fiche(document: Document) -> None:
    information = cast("Document", document["information"] or {})
    prospect = cast("Document", document["prospect"] or {})
    transcription = cast("Document", document["transcription"] or {})
    recordings = cast("Sequence[Document]", document["recordings"])
    current = [recording for recording in recordings if recording["vanished_at"] is None]
    with_audio = sum(bool(recording["recording_url"]) for recording in current)
    transcribed = sum(bool(recording["has_transcription"]) for recording in current)
    name = f"{document['prospect_prenom'] or ''} {document['prospect_nom'] or ''}"
    fetched = document["details_fetched_at"]
    print_facts(
        {
            "fiche": f"{document['fiche_id']}  {name}",
            "state": f"{document['state']}, details of {fetched}" if fetched else document["state"],
            "sold on": document["sales_date"],
            "groupe": document["groupe"],
            "agent": information.get("attribution_user_nom"),
            "agence": document["agence_nom"],
            "telephone": document["prospect_tel"],
            "mail": document["prospect_email"],
            "town": prospect.get("ville"),
            "recordings": f"{len(current)}, {with_audio} with audio, {transcribed} transcribed",
        }
    )
    last_run = transcription.get("run")
    if last_run is not None:
        _print_transcription(cast("Document", last_run))
    if recordings:
        RECORDINGS.print(recordings)


def _print_transcription(run: Document) -> None:
    """Print the run's counts, and each recording that is claimed, waiting or failed."""
    counts = f"{run['processed']} of {run['targetTotal']} recordings, {run['failed']} failed"
    print_facts(
        {"transcription": f"{run['state']}, {counts}", "run": run["id"], "error": run["error"]}
    )
    unusual = [task for task in cast("Sequence[Document]", run["tasks"]) if task["state"] != "done"]
    if unusual:
        columns = ("callId", "state", "attempts", "owner", "secondsLeft", "againInSeconds", "error")
        names = ("call", "state", "attempts", "claimed by", "for s", "retry in s", "error")
        print_table(names, [[task[column] for column in columns] for task in unusual])


def _audio(recording: Document) -> str:
    if recording["vanished_at"]:
        return "vanished"
    return "yes" if recording["recording_url"] else "no"


def _part(fiche: Document, part: str) -> Document:
    return cast("Document", fiche[part])


SOLD = Columns[Document](
    {
        "fiche": lambda one: one["ficheId"],
        "groupe": lambda one: one["groupe"],
        "prospect": lambda one: f"{one['prospectPrenom'] or ''} {one['prospectNom'] or ''}",
        "recordings": lambda one: _part(one, "transcription")["total"],
        "transcribed": lambda one: _part(one, "transcription")["transcribed"],
        "audits": lambda one: _part(one, "audit")["total"],
    }
)

RECORDINGS = Columns[Document](
    {
        "call": lambda one: one["call_id"],
        "day": lambda one: one["recording_date"],
        "time": lambda one: one["recording_time"],
        "seconds": lambda one: one["duration_seconds"],
        "direction": lambda one: one["direction"],
        "audio": _audio,
        "transcript": lambda one: "yes" if one["has_transcription"] else "no",
    }
)
