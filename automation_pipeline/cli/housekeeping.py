"""`automation housekeeping`: what is older than it is kept goes now, instead of in the night."""

from collections.abc import Mapping
from typing import Annotated

import typer

from automation_pipeline import bootstrap
from automation_pipeline.cli.desk.chosen import only_here
from automation_pipeline.cli.output import AsJson, print_json, print_table, screen
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.housekeeping.rounds import go_round
from automation_pipeline.housekeeping.wishes import ask_for_round

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")]
InDagster = Annotated[
    bool,
    typer.Option("--in-dagster", help="Ask Dagster's daemon to do it, with Dagster's own events and runs, and return."),
]


def housekeeping(*, dry_run: DryRun = False, in_dagster: InDagster = False, as_json: AsJson = False) -> None:
    """Take away what is older than it is kept: logs, events that have left, requests, deliveries, alerts.

    The variables ending in _KEEP_DAYS say for how long. Results stay: runs, outcomes, transcripts, audits, prices,
    companies. It may be done at any time, and broken off at any time. Dagster's own events and runs are Dagster's to
    take away: its schedule nightly_housekeeping does both, and so does --in-dagster.
    """
    only_here("housekeeping")
    services = bootstrap.services()
    if in_dagster:
        if dry_run:
            raise InvalidInputError("--dry-run counts here: leave out --in-dagster.")
        _say_filed(ask_for_round(services), as_json=as_json)
    else:
        _show(services.run(go_round(services, is_dry=dry_run)), dry_run=dry_run, as_json=as_json)


def _say_filed(key: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"request_key": key})
    else:
        screen.print(f"Dagster is asked for it as {key}.")


def _show(gone: Mapping[str, int], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": dry_run, "rows": dict(gone), "total": sum(gone.values())})
        return
    print_table(("rows", "of"), [(f"{rows:,}", name) for name, rows in sorted(gone.items()) if rows])
    screen.print(f"{sum(gone.values()):,} rows {'would go' if dry_run else 'went'}.")
