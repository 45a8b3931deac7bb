"""`automation org-jobs backfills`."""

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.text import Text

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import (
    AsJson,
    Limit,
    Offset,
    counted,
    minute,
    one_more,
    print_facts,
    print_fitted_table,
    print_json,
    say,
    say_more,
    screen,
)
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.org_jobs.commands.arguments import OfOrg
from automation_pipeline.org_jobs.models.states import BatchState
from automation_pipeline.org_jobs.rules.backfills import Backfill, OrgJobsLeftOut

BACKFILL_COLOURS = {
    BatchState.RUNNING: "cyan",
    BatchState.COMPLETED: "green",
    BatchState.COMPLETED_WITH_FAILURES: "red",
    BatchState.CANCELLED: "yellow",
}
WHY = {
    None: "",
    OrgJobsLeftOut.DISPATCHED: "left out: it was done",
    OrgJobsLeftOut.AT_WORK: "left out: its job is not over",
    OrgJobsLeftOut.STILL_DUE: "left out: its schedule is about to do it",
}


def print_backfills(backfills: Iterable[Backfill]) -> None:
    print_fitted_table(
        ("id", "organisation", "schedule", "status", "period (UTC)", "made (UTC)", "jobs"),
        (
            (
                b.id,
                b.org_id,
                b.schedule_id,
                _status(b),
                _period(b),
                minute(b.created_at),
                _counts(b),
            )
            for b in backfills
        ),
        texts={"jobs"},
    )


def print_backfill(backfill: Backfill) -> None:
    b = backfill
    if b.dry_run:
        _print_dry_run(b)
        return
    print_facts(
        {
            "backfill": b.id,
            "organisation": b.org_id,
            "schedule": b.schedule_id,
            "status": _status(b),
            "period": f"{_period(b)} UTC, done again: {b.behaviour}",
            "jobs": _counts(b),
            "made": f"{minute(b.created_at)} UTC by {b.created_by}",
            "ended": b.finished_at and f"{minute(b.finished_at)} UTC",
        }
    )
    if b.status is BatchState.RUNNING:
        say(f"See its jobs: `automation org-jobs list --backfill {b.id}`.")
        say(f"Stop it: `automation org-jobs backfills cancel {b.id}`.")


def _print_dry_run(b: Backfill) -> None:
    if b.times:
        columns = ("due (UTC)", "begins (UTC)", "")
        print_fitted_table(
            columns,
            ((minute(t.scheduled_for), minute(t.effective_for), WHY[t.left_out]) for t in b.times),
        )
        screen.print()
    say(
        f"{counted(b.total, 'job')} would be made. Nothing is done yet: leave out --dry-run for that."
    )


def _status(b: Backfill) -> Text:
    return Text("") if b.status is None else Text(b.status, BACKFILL_COLOURS[b.status])


def _period(b: Backfill) -> str:
    return f"{minute(b.from_at)} to {minute(b.until_at)}"


def _counts(b: Backfill) -> str:
    states = ("pending", "running", "success", "failed", "cancelled")
    told = [f"{count} {state}" for state in states if (count := getattr(b, state))]
    return f"{b.total} = {' + '.join(told)}" if told else str(b.total)


app = command_group("See how periods that are done again stand; stop one.")

BackfillId = Annotated[
    int,
    typer.Argument(
        min=1,
        max=LARGEST_ID,
        help="The backfill's id, as `automation org-jobs backfills list` shows it.",
    ),
]


@app.command("list")
def list_(
    *, org: OfOrg = None, limit: Limit = 20, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the backfills, newest first. For example: automation org-jobs backfills list --org
    acme"""
    found = open_client().org_jobs.backfills.listed(org, one_more(limit, offset))
    if as_json:
        print_json(
            {"backfills": [as_document(one) for one in found[:limit]], "more": len(found) > limit}
        )
        return
    print_backfills(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(backfill_id: BackfillId, *, as_json: AsJson = False) -> None:
    """Show how the jobs of a backfill stand. For example: automation org-jobs backfills show 2"""
    _show(open_client().org_jobs.backfills.get(backfill_id), as_json=as_json)


@app.command()
def cancel(backfill_id: BackfillId, *, as_json: AsJson = False) -> None:
    """Give up the jobs of a backfill that nobody has begun, and ask those at work to stop.

    For example: automation org-jobs backfills cancel 2
    """
    _show(open_client().org_jobs.backfills.cancel(backfill_id), as_json=as_json)


def _show(backfill: Backfill, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(backfill))
    else:
        print_backfill(backfill)
