"""Backfills on a screen: what a dry run would do, and how the jobs of one stand."""

from collections.abc import Iterable

from rich.text import Text

from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import counted, minute, say
from automation_pipeline.cli.output import print_facts, screen
from automation_pipeline.org_jobs.domain.backfill import Backfill, LeftOut
from automation_pipeline.org_jobs.domain.states import BatchState

COLOURS = {
    BatchState.RUNNING: "cyan",
    BatchState.COMPLETED: "green",
    BatchState.COMPLETED_WITH_FAILURES: "red",
    BatchState.CANCELLED: "yellow",
}
WHY = {
    None: "",
    LeftOut.DISPATCHED: "left out: it was done",
    LeftOut.AT_WORK: "left out: its job is not over",
    LeftOut.STILL_DUE: "left out: its schedule is about to do it",
}


def print_backfills(backfills: Iterable[Backfill]) -> None:
    print_fitted_table(
        ("id", "organisation", "schedule", "status", "period (UTC)", "made (UTC)", "jobs"),
        ((b.id, b.org_id, b.schedule_id, _status(b), _period(b), minute(b.created_at), _counts(b)) for b in backfills),
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
            columns, ((minute(t.scheduled_for), minute(t.effective_for), WHY[t.left_out]) for t in b.times)
        )
        screen.print()
    say(f"{counted(b.total, 'job')} would be made. Nothing is done yet: leave out --dry-run for that.")


def _status(b: Backfill) -> Text:
    return Text("") if b.status is None else Text(b.status, COLOURS[b.status])


def _period(b: Backfill) -> str:
    return f"{minute(b.from_at)} to {minute(b.until_at)}"


def _counts(b: Backfill) -> str:
    states = ("pending", "running", "success", "failed", "cancelled")
    told = [f"{count} {state}" for state in states if (count := getattr(b, state))]
    return f"{b.total} = {' + '.join(told)}" if told else str(b.total)
