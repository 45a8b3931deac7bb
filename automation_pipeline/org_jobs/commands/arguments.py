"""Options that several commands about organisations' jobs share, and the fields that they make."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints
from uuid import UUID

import typer

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.operations import WriteContext, write_context
from automation_pipeline.cli.output import minute, read_json_object
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.timing import WindowPolicy
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.org_jobs.models.jobs import BackoffType, MisfirePolicy
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    Organisation,
    OrgScope,
    id_fault,
)
from automation_pipeline.org_jobs.queries.organisations import get_organisation, list_organisations


class OrgWriteContext(WriteContext):
    within: OrgScope


def org_write_context(services: Services) -> OrgWriteContext:
    """The arguments of use cases that record their actor. An operator reaches all organisations."""
    return {**write_context(services), "within": ALL_ORGANISATIONS}


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


def default_org(services: Services, org_id: str | None) -> str | None:
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


Command = Callable[..., None]

# Flags whose value is copied unchanged.
_FIELDS: Mapping[str, str] = {
    "name": "name", "description": "description", "cron": "cronExpression", "timezone": "timezone",
    "job_type": "jobType", "window_policy": "windowPolicy", "cutoff": "latestStartCutoffMin",
    "overlap": "overlapPolicy", "misfire": "misfirePolicy", "grace": "misfireGraceS", "jitter": "jitterS",
    "priority": "priority", "skip_if_offline": "skipIfOffline",
    "auto_pause_after": "autoPauseAfter", "enabled": "enabled",
}  # fmt: skip
_INSTANTS: Mapping[str, str] = {"start": "startAt", "end": "endAt"}
_RETRY_FIELDS: Mapping[str, str] = {
    "retries": "maxRetries",
    "backoff_ms": "backoffMs",
    "backoff": "backoffType",
}


@dataclass(frozen=True, kw_only=True)
class ScheduleFlags:
    """None: not given."""

    name: Annotated[str | None, typer.Option("--name", "-n", help="A name for people.")] = None
    description: Annotated[
        str | None, typer.Option("--description", help="The purpose of the schedule.")
    ] = None
    cron: Annotated[
        str | None,
        typer.Option(
            "--cron",
            metavar="EXPR",
            help='The cron expression with five fields, such as "0 2 * * 1-5".',
        ),
    ] = None
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone", help="The time zone of the cron, such as Europe/Paris. Default: UTC."
        ),
    ] = None
    job_type: Annotated[
        str | None,
        typer.Option("--type", help="The type of job; `automation org-jobs types` lists them."),
    ] = None
    payload: Payload = None
    server: Annotated[
        int | None,
        typer.Option(
            "--server", min=1, max=LARGEST_ID, help="The id of the server that the job works on."
        ),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            metavar="HH:MM-HH:MM",
            help="The execution window in which jobs may start, such as 22:00-06:00.",
        ),
    ] = None
    window_policy: Annotated[
        WindowPolicy | None,
        typer.Option(
            "--window-policy",
            case_sensitive=False,
            help="Jobs due outside the window wait (CLAMP) or are skipped.",
        ),
    ] = None
    cutoff: Annotated[
        int | None,
        typer.Option(
            "--cutoff",
            metavar="MINUTES",
            help="No job starts in this time before the end of the window.",
        ),
    ] = None
    overlap: Annotated[
        OverlapPolicy | None,
        typer.Option(
            "--overlap",
            case_sensitive=False,
            help="The policy while the previous job has not ended.",
        ),
    ] = None
    misfire: Annotated[
        MisfirePolicy | None,
        typer.Option("--misfire", case_sensitive=False, help="The policy for missed due times."),
    ] = None
    grace: Annotated[
        int | None,
        typer.Option(
            "--grace", metavar="SECONDS", help="A start within this delay does not count as missed."
        ),
    ] = None
    jitter: Annotated[
        int | None,
        typer.Option("--jitter", metavar="SECONDS", help="The maximum random delay of a start."),
    ] = None
    retries: Annotated[
        int | None,
        typer.Option("--retries", metavar="N", help="The number of retries of a failed job."),
    ] = None
    backoff_ms: Annotated[
        int | None, typer.Option("--backoff-ms", metavar="MS", help="The delay before a retry.")
    ] = None
    backoff: Annotated[
        BackoffType | None,
        typer.Option(
            "--backoff",
            case_sensitive=False,
            help="Whether further delays stay the same or double.",
        ),
    ] = None
    priority: Annotated[
        int | None,
        typer.Option("--priority", metavar="N", help="From 1, the most urgent, to 9. Default: 5."),
    ] = None
    start: Annotated[
        str | None, typer.Option("--start", metavar="ISO", help="Not before this instant.")
    ] = None
    end: Annotated[
        str | None, typer.Option("--end", metavar="ISO", help="Not after this instant.")
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            metavar="DATE",
            help="A day without jobs, in the schedule's time zone; repeat the option for several.",
        ),
    ] = None
    skip_if_offline: Annotated[
        bool | None,
        typer.Option(
            "--skip-if-offline/--wait-if-offline",
            help="The policy while the server's agent is offline.",
        ),
    ] = None
    auto_pause_after: Annotated[
        int | None,
        typer.Option(
            "--auto-pause-after",
            metavar="N",
            help="Pause the schedule after this number of consecutive failures.",
        ),
    ] = None
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Whether the schedule is enabled.")
    ] = None

    def document(self) -> dict[str, object]:
        """The fields of POST /api/org-schedules that were given."""
        instants = {
            name: iso(read_instant(f"--{flag}", text))
            for flag, name, text in self._given(_INSTANTS)
        }
        return {
            **{name: value for _, name, value in self._given(_FIELDS)},
            **instants,
            **({"payload": read_payload(self.payload)} if self.payload is not None else {}),
            **({"serverInstanceId": str(self.server)} if self.server is not None else {}),
            **(_window(self.window) if self.window is not None else {}),
            **(
                {"excludedOn": [day.strip() for days in self.exclude for day in days.split(",")]}
                if self.exclude
                else {}
            ),
            **({"retryPolicy": self.retry_policy} if self.retry_policy else {}),
        }

    @property
    def retry_policy(self) -> dict[str, object]:
        return {name: value for _, name, value in self._given(_RETRY_FIELDS)}

    def _given(
        self, names: Mapping[str, str]
    ) -> Iterator[tuple[str, str, Any]]:  # a flag can have any type
        given = ((flag, field, getattr(self, flag)) for flag, field in names.items())
        return ((flag, field, value) for flag, field, value in given if value is not None)


def with_schedule_flags(command: Command) -> Command:
    """Replace the command's parameter `flags` with one option per field."""
    hints = get_type_hints(ScheduleFlags, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    flags = [
        inspect.Parameter(one.name, keyword, default=None, annotation=hints[one.name])
        for one in fields(ScheduleFlags)
    ]

    @wraps(command)
    def spread(**given: Any) -> None:  # noqa: ANN401  what typer has read, by the types above
        values = {flag.name: given.pop(flag.name) for flag in flags}
        command(**given, flags=ScheduleFlags(**values))

    known = inspect.signature(command)
    *first, last = (one for one in known.parameters.values() if one.name != "flags")
    spread.__dict__["__signature__"] = known.replace(parameters=[*first, *flags, last])
    return spread


def _window(text: str) -> Mapping[str, str]:
    start, dash, end = text.partition("-")
    if not dash:
        raise InvalidInputError(f"--window has a start and an end, such as 22:00-06:00: {text}.")
    return {"executionWindowStart": start.strip(), "executionWindowEnd": end.strip()}
