"""Options that several commands about organisations' jobs share, the operator, and instants."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, cast
from uuid import UUID

import typer

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.operations import Acting, acting
from automation_pipeline.cli.output import minute, read_json_object
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    Organisation,
    OrgScope,
    id_fault,
)
from automation_pipeline.org_jobs.queries.organisations import (
    get_organisation,
    list_organisations,
)


class Operating(Acting):
    within: OrgScope


def operating(services: Services) -> Operating:
    """The arguments of use cases that record their actor. An operator reaches all organisations."""
    return {**acting(services), "within": ALL_ORGANISATIONS}


def chosen_org(services: Services, org_id: str | None) -> str:
    """The given organisation, or the only one. Raises NotFoundError for an unknown one."""
    known = _candidates(services, org_id)
    if not known:
        raise InvalidInputError(
            "There is no organisation: `automation org-jobs orgs create` adds one."
        )
    if len(known) > 1:
        raise InvalidInputError("There are several organisations: name one with --org.")
    return known[0].id


def perhaps_org(services: Services, org_id: str | None) -> str | None:
    """Like `chosen_org`, but None without exactly one organisation."""
    known = _candidates(services, org_id)
    return known[0].id if len(known) == 1 else None


def _candidates(services: Services, org_id: str | None) -> Sequence[Organisation]:
    with services.database.reading() as session:
        if org_id is not None:
            return [get_organisation(session, org_id, ALL_ORGANISATIONS)]
        return list_organisations(session, ALL_ORGANISATIONS, limit=2, offset=0)


def _org_name(org_id: str | None) -> str | None:
    if org_id is not None and id_fault(org_id):
        raise NotFoundError(f"Organisation {org_id} not found")
    return org_id


OrgId = Annotated[
    str,
    typer.Argument(
        callback=_org_name,
        help="The organisation's short name, as `automation org-jobs orgs list` shows it.",
    ),
]
ScheduleId = Annotated[
    UUID,
    typer.Argument(help="The schedule's id, as `automation org-jobs schedules list` shows it."),
]
JobId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The job's id, as `automation org-jobs list` shows it."
    ),
]
Org = Annotated[
    str | None,
    typer.Option(
        "--org",
        "-o",
        callback=_org_name,
        help="The organisation. Default: the only one.",
    ),
]
OfOrg = Annotated[
    str | None,
    typer.Option("--org", "-o", callback=_org_name, help="Only entries of this organisation."),
]
Reason = Annotated[
    str | None, typer.Option("--reason", help="The reason, which is stored with it.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for the end of the job; exit 1 unless it succeeds.")
]
File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        help="JSON file of the fields; - reads standard input. A flag overrides the file.",
    ),
]
Payload = Annotated[
    str | None,
    typer.Option("--payload", metavar="JSON", help="The payload of the job, as a JSON object."),
]
After = Annotated[
    str | None,
    typer.Option("--after", metavar="ISO", help="Start from this instant instead of now."),
]
AfterId = Annotated[
    int, typer.Option("--after", min=0, max=LARGEST_ID, help="Continue after this id of the list.")
]


def read_payload(text: str) -> dict[str, object]:
    try:
        given: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInputError(f"--payload is not valid JSON: {reason}.") from None
    if not isinstance(given, dict):
        raise InvalidInputError('--payload must be a JSON object, such as {"command": "save-all"}.')
    return cast("dict[str, object]", given)


def read_instant(option: str, text: str) -> datetime:
    """An instant without an offset is ambiguous."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"{option} is not an ISO instant such as 2026-03-29T01:00:00Z: {text}."
        ) from None
    if instant.tzinfo is None:
        raise InvalidInputError(f"{option} must end with Z or an offset such as +02:00: {text}.")
    try:
        instant.astimezone(UTC)
    except OverflowError:
        raise InvalidInputError(f"{option} lies outside the calendar: {text}.") from None
    return instant


def given_fields(file: Path | None, flags: dict[str, object]) -> dict[str, object]:
    """The fields of the file, overridden by flags."""
    return {**(read_json_object(file) if file else {}), **flags}


def changed_fields(file: Path | None, flags: dict[str, object]) -> dict[str, object]:
    fields = given_fields(file, flags)
    if not fields:
        raise InvalidInputError("Nothing to change: name fields by flags or with --file.")
    return fields


MaintenanceUntil = Annotated[
    str | None,
    typer.Option(
        "--maintenance-until", metavar="ISO", help="Skip jobs that are due before this instant."
    ),
]
EndMaintenance = Annotated[bool, typer.Option("--end-maintenance", help="End the maintenance.")]


def maintenance(until: str | None, *, is_over: bool = False) -> dict[str, object]:
    """The maintenance from its two flags. Jobs that are due during a maintenance are skipped."""
    if until is not None and is_over:
        raise InvalidInputError("Use either --maintenance-until or --end-maintenance.")
    if is_over:
        return {"maintenanceUntil": None}
    return (
        {}
        if until is None
        else {"maintenanceUntil": iso(read_instant("--maintenance-until", until))}
    )


def maintenance_line(until: datetime | None) -> str | None:
    return f"until {minute(until)} UTC: jobs that are due before are skipped" if until else None


def wall(instant: datetime, timezone: str) -> str:
    """The wall-clock time in the zone, or in UTC if the zone is unknown."""
    try:
        local = zone(timezone)
    except InvalidInputError:
        local = UTC
    return f"{instant.astimezone(local):%a %d %b %Y %H:%M %Z}"


def wall_and_utc(instant: datetime, timezone: str) -> str:
    local = wall(instant, timezone)
    return local if local.endswith(" UTC") else f"{local} ({minute(instant)} UTC)"
