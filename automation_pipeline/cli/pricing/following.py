"""Follow a pricing run to its end, with a bar for a person to watch. Ctrl-C stops the watching, not the run."""

import sys
import threading
from dataclasses import dataclass

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.following import POLL_SECONDS
from automation_pipeline.cli.output import screen
from automation_pipeline.cli.waiting import Waiting
from automation_pipeline.core.launching import NothingBeginsError
from automation_pipeline.pricing.domain.rule_run import RuleRun, Wish
from automation_pipeline.pricing.domain.states import ACTIVE_RUN_STATES, RunState

STEADY_SECONDS = 30


@dataclass(frozen=True)
class Followed:
    """`was_taken_back`: what was watched, or a part of it, was a rollback."""

    run: RuleRun
    was_taken_back: bool


def follow_run(run_id: int, desk: Desk, *, pause: threading.Event, quiet: bool) -> Followed:
    """The run once no worker is at it and none is asked for, however long that takes."""
    first = desk.pricing.runs.get(run_id)
    run, taken_back = first, _is_rollback(first)
    waits = Waiting(desk, why=lambda: _why_nothing_begins(desk))
    try:
        with _bar(quiet=quiet) as progress:
            bar = progress.add_task(first.status, total=None)
            while True:
                label, done, total = run_bar(run)
                progress.update(bar, description=label, completed=done, total=total)
                if is_over(run):
                    return Followed(run, taken_back)
                waits.look(begun=_has_begun(first, run) or run.resume_at is not None)
                pause.wait(POLL_SECONDS)
                run = desk.pricing.runs.get(run_id)
                taken_back = taken_back or _is_rollback(run)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"Run {run_id} goes on without us: `automation pricing runs show {run_id}` tells how it stands.\n"
        )
        raise


def is_over(run: RuleRun) -> bool:
    return run.wish is None and run.status not in ACTIVE_RUN_STATES


def run_bar(run: RuleRun) -> tuple[str, int, int | None]:
    """What is going on, how many targets are done with, and of how many; None while nobody knows."""
    counts = run.targets
    if run.status is RunState.PREVIEW and run.previewed_at is None:
        return ("reading the catalogue" if run.wish else "not planned"), 0, None
    if _is_rollback(run) or run.status is RunState.ROLLED_BACK:
        total = counts.applied + counts.rolled_back
        return f"taking back: {counts.applied} applied{_pause(run)}", counts.rolled_back, total
    words = f"{run.status.lower()}: {counts.applied} applied, {counts.failed} failed{_pause(run)}"
    return words, counts.applied + counts.failed + counts.rolled_back, run.total_targets


def _pause(run: RuleRun) -> str:
    return "" if run.resume_at is None or is_over(run) else f", goes on at {run.resume_at:%H:%M:%S} UTC"


def _is_rollback(run: RuleRun) -> bool:
    return run.wish is Wish.ROLLBACK


def _has_begun(first: RuleRun, run: RuleRun) -> bool:
    return run.status is RunState.APPLYING or run.updated_at > first.updated_at or run.targets != first.targets


def _why_nothing_begins(desk: Desk) -> NothingBeginsError | None:
    if desk.pricing.shop.standing().paused_at is None:
        return None
    return NothingBeginsError("SHOP_PAUSED", "The shop is paused: `automation pricing shop resume` ends that")


def _bar(*, quiet: bool) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=screen,
        disable=quiet,
        speed_estimate_period=STEADY_SECONDS,
    )
