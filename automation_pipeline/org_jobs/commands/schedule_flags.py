"""Command-line options for the fields of a schedule."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.core.scheduling.plan import OverlapPolicy
from automation_pipeline.core.scheduling.timing import WindowPolicy
from automation_pipeline.org_jobs.commands.arguments import Payload, read_instant, read_payload
from automation_pipeline.org_jobs.models.jobs import BackoffType
from automation_pipeline.org_jobs.models.states import MisfirePolicy

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
