"""How a maintenance is said: while it lasts, what falls due is left out."""

from typing import Annotated

import typer

from automation_pipeline.cli.org_jobs.arguments import read_instant
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.instants import iso

MaintenanceUntil = Annotated[
    str | None,
    typer.Option("--maintenance-until", metavar="ISO", help="What falls due before this instant is left out."),
]
EndMaintenance = Annotated[bool, typer.Option("--end-maintenance", help="What falls due is done again.")]


def maintenance(until: str | None, *, is_over: bool = False) -> dict[str, object]:
    if until is not None and is_over:
        raise InvalidInputError("--maintenance-until and --end-maintenance are two things: say one of them.")
    if is_over:
        return {"maintenanceUntil": None}
    return {} if until is None else {"maintenanceUntil": iso(read_instant("--maintenance-until", until))}
