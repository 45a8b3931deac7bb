"""`automation fiches`: show a mirrored fiche, and fetch sales lists and details from the CRM."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Annotated, cast

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from automation_pipeline import bootstrap
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.target import only_here
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import (
    AsJson,
    check_fiche_ids,
    print_facts,
    print_json,
    print_table,
    screen,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.zones import wall_time, zone
from automation_pipeline.fiches.days import revalidate_days
from automation_pipeline.fiches.details import fetch_days
from automation_pipeline.fiches.models.days import DayCoverage, DayFailed, SalesDay
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.queries.details import coverage_of

Part = Mapping[str, object]


app = command_group("Mirror the CRM's fiches, and look at them.")

MOST_DAYS = 366


@app.command()
def show(
    fiche_id: Annotated[str, typer.Argument(help="The fiche's id in the CRM.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show one fiche as it is mirrored; --json shows all of it."""
    check_fiche_ids([fiche_id])
    document = open_client().fiches.mirrored(fiche_id)
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
        str | None, typer.Option("--to", help="The last of several days; today when left out.")
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Fetch the full details too.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Ask again for lists that are final.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask the CRM for the sales lists of some days, and for the details that are missing or too
    old.

    A list that was taken after its day was over is final and is not asked for again without
    --force.
    """
    only_here("fiches sync")
    services = bootstrap.services()
    days, source = _requested_days(day, first, last, services), services.crm
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, disable=as_json) as progress:
        lists = _sync_lists(days, source, services, progress, force=force)
        errors = _sync_details(days, source, services, progress) if details else Counter[str]()
    with services.database.reading() as session:
        coverage = {at: coverage_of(session, at) for at in days}
    if as_json:
        print_json(
            {
                "days": [_day_document(outcome, coverage[outcome.day]) for outcome in lists],
                "errors": dict(errors),
            }
        )
    else:
        _print_days(lists, coverage, errors)
    if errors or any(isinstance(outcome, DayFailed) for outcome in lists):
        raise typer.Exit(1)


def _sync_lists(
    days: list[date], source: FicheSource, services: Services, progress: Progress, *, force: bool
) -> list[SalesDay | DayFailed]:
    bar = progress.add_task("sales lists", total=len(days))
    return services.run(
        revalidate_days(
            days,
            database=services.database,
            source=source,
            clock=services.clock,
            semaphore=services.sales_list_semaphore,
            force=force,
            on_day=lambda _day: progress.advance(bar),
        )
    )


def _sync_details(
    days: list[date], source: FicheSource, services: Services, progress: Progress
) -> Counter[str]:
    bar = progress.add_task("details", total=None)

    def show_progress(done: int, total: int) -> None:
        progress.update(bar, completed=done, total=total)

    fetching = fetch_days(
        days,
        database=services.database,
        source=source,
        clock=services.clock,
        progress=show_progress,
    )
    return services.run(fetching)


def _requested_days(
    day: str | None, first: str | None, last: str | None, services: Services
) -> list[date]:
    if (day is None) == (first is None) or (day is not None and last is not None):
        raise InvalidInputError("Give either --date, or --from and --to.")
    today = wall_time(services.clock.now(), zone(services.settings.automation_timezone)).date()
    start = (
        _parse_option("--date", day) if day is not None else _parse_option("--from", first or "")
    )
    end = start if day is not None else today if last is None else _parse_option("--to", last)
    if end < start:
        raise InvalidInputError("--to lies before --from.")
    if (end - start).days >= MOST_DAYS:
        raise InvalidInputError(f"At most {MOST_DAYS} days can be asked for at a time.")
    return [start + timedelta(days=number) for number in range((end - start).days + 1)]


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


def _print_days(
    lists: list[SalesDay | DayFailed], coverage: dict[date, DayCoverage], errors: Counter[str]
) -> None:
    rows = [
        (
            sales.day,
            sales.fiches,
            sales.new,
            sales.changed,
            coverage[sales.day].with_details,
            coverage[sales.day].not_found,
        )
        for sales in lists
        if isinstance(sales, SalesDay)
    ]
    print_table(("day", "fiches", "new", "changed", "with details", "not found"), rows)
    failed = [f"{day.day}: {day.error}" for day in lists if isinstance(day, DayFailed)]
    for sentence in [*failed, *(f"{count} x {error}" for error, count in errors.most_common())]:
        screen.print(sentence, markup=False, highlight=False)


def print_fiche(document: Part) -> None:
    information, prospect = _part(document, "information"), _part(document, "prospect")
    recordings = cast("Sequence[Part]", document["recordings"])
    known = [recording for recording in recordings if recording["vanished_at"] is None]
    print_facts(
        {
            "fiche": f"{document['fiche_id']}  {document['prospect_prenom'] or ''} {document['prospect_nom'] or ''}",
            "state": _state(document),
            "sold on": document["sales_date"],
            "groupe": document["groupe"],
            "agent": information.get("attribution_user_nom"),
            "agence": document["agence_nom"],
            "telephone": document["prospect_tel"],
            "mail": document["prospect_email"],
            "town": prospect.get("ville"),
            "recordings": f"{len(known)}, {_count_true(known, 'recording_url')} with audio, "
            f"{_count_true(known, 'has_transcription')} transcribed",
        }
    )
    _print_transcription(_part(document, "transcription").get("run"))
    if recordings:
        print_table(
            ("call", "day", "time", "seconds", "direction", "audio", "transcript"),
            [_call_row(recording) for recording in recordings],
        )


def _print_transcription(last_run: object) -> None:
    """Print the last run's counts, and each recording that is claimed, waiting or failed."""
    if last_run is None:
        return
    run = cast("Part", last_run)
    counts = f"{run['processed']} of {run['targetTotal']} recordings, {run['failed']} failed"
    print_facts(
        {"transcription": f"{run['state']}, {counts}", "run": run["id"], "error": run["error"]}
    )
    unusual = [task for task in cast("Sequence[Part]", run["tasks"]) if task["state"] != "done"]
    if unusual:
        columns = ("callId", "state", "attempts", "owner", "secondsLeft", "againInSeconds", "error")
        names = ("call", "state", "attempts", "held by", "for s", "again in s", "why")
        print_table(names, [[task[column] for column in columns] for task in unusual])


def _count_true(recordings: Sequence[Part], field: str) -> int:
    return sum(bool(recording[field]) for recording in recordings)


def _part(document: Part, name: str) -> Part:
    return cast("Part", document[name] or {})


def _state(document: Part) -> str:
    fetched = document["details_fetched_at"]
    return f"{document['state']}, details of {fetched}" if fetched else str(document["state"])


def _call_row(recording: Part) -> tuple[object, ...]:
    audio = (
        "vanished" if recording["vanished_at"] else "yes" if recording["recording_url"] else "no"
    )
    columns = ("call_id", "recording_date", "recording_time", "duration_seconds", "direction")
    transcript = "yes" if recording["has_transcription"] else "no"
    return (*(recording[column] for column in columns), audio, transcript)
