"""`automation pricing runs`: show, start, apply, retry, roll back, watch, reconcile."""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import Client
from automation_pipeline.cli.client.progress import POLL_SECONDS, LaunchWait
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import (
    AsJson,
    Limit,
    Offset,
    counted,
    one_more,
    print_fitted_table,
    print_json,
    say,
    say_more,
    screen,
)
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.pricing.commands.arguments import (
    OfProject,
    RuleId,
    RunId,
    Targets,
    Wait,
    every_log_line,
    every_target,
    shop_status_line,
)
from automation_pipeline.pricing.commands.rendering import (
    amount,
    next_step,
    outcome,
    percent,
    print_log,
    print_run,
    print_run_targets,
    print_runs,
)
from automation_pipeline.pricing.models.history import (
    Mismatch,
    MismatchSeverity,
    ReconciliationReport,
)
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    PricingRunState,
    RuleRun,
    RunAction,
    TargetState,
)

STEADY_SECONDS = 30


@dataclass(frozen=True)
class Followed:
    """`was_taken_back`: what was watched, or a part of it, was a rollback."""

    run: RuleRun
    was_taken_back: bool


def follow_run(run_id: int, client: Client, *, pause: threading.Event, quiet: bool) -> Followed:
    """The run once no worker is at it and none is asked for, however long that takes."""
    first = client.pricing.runs.get(run_id)
    run, taken_back = first, _is_rollback(first)
    waits = LaunchWait(client, why=lambda: _why_nothing_begins(client))
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
                run = client.pricing.runs.get(run_id)
                taken_back = taken_back or _is_rollback(run)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"Run {run_id} goes on without us: `automation pricing runs show {run_id}` tells how it stands.\n"
        )
        raise


def is_over(run: RuleRun) -> bool:
    return run.wish is None and run.status not in ACTIVE_RUN_STATES


def run_bar(run: RuleRun) -> tuple[str, int, int | None]:
    """What is going on, how many targets are done with, and of how many; None while nobody
    knows."""
    counts = run.targets
    if run.status is PricingRunState.PREVIEW and run.previewed_at is None:
        return ("reading the catalogue" if run.wish else "not planned"), 0, None
    if _is_rollback(run) or run.status is PricingRunState.ROLLED_BACK:
        total = counts.applied + counts.rolled_back
        return f"taking back: {counts.applied} applied{_pause(run)}", counts.rolled_back, total
    words = f"{run.status.lower()}: {counts.applied} applied, {counts.failed} failed{_pause(run)}"
    return words, counts.applied + counts.failed + counts.rolled_back, run.total_targets


def _pause(run: RuleRun) -> str:
    return (
        ""
        if run.resume_at is None or is_over(run)
        else f", goes on at {run.resume_at:%H:%M:%S} UTC"
    )


def _is_rollback(run: RuleRun) -> bool:
    return run.wish is RunAction.ROLLBACK


def _has_begun(first: RuleRun, run: RuleRun) -> bool:
    return (
        run.status is PricingRunState.APPLYING
        or run.updated_at > first.updated_at
        or run.targets != first.targets
    )


def _why_nothing_begins(client: Client) -> NotStartedError | None:
    if client.pricing.shop.standing().paused_at is None:
        return None
    return NotStartedError(
        "SHOP_PAUSED", "The shop is paused: `automation pricing shop resume` ends that"
    )


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


def start(
    rule_id: RuleId,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Cut the rule's rest after its last run short.")
    ] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Ask for a new run of a rule that is planned and applied at once, without a look at its
    preview. Where the project needs an approval, it stays a preview.

    For example: automation pricing runs start 3 --wait
    """
    client = open_client()
    run = client.pricing.rules.request_run(rule_id, force=force)
    _print_requested(
        run, client, f"Run {run.id} of rule {rule_id} is asked for", wait=wait, as_json=as_json
    )


def apply(
    run_id: RunId,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Cut the rule's rest after its last run short.")
    ] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Write what was previewed, exactly that. Prices that were changed since are told, and left
    alone or overwritten as the rule says. For example: automation pricing runs apply 7 --wait
    """
    client = open_client()
    run = client.pricing.runs.apply(run_id, force=force)
    _print_requested(
        run,
        client,
        f"Run {run_id} is queued, {counted(run.total_targets, 'price')}",
        wait=wait,
        as_json=as_json,
    )


def approve(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Say that a preview may be applied; somebody else than who made it has to.

    For example: automation pricing runs approve 7
    """
    client = open_client().pricing
    run = client.runs.approve(run_id)
    if as_json:
        print_json(as_document(run))
        return
    say(f"Run {run_id} is approved by {run.approved_by}.")
    step = next_step(run, client.policies.get(run.project_id))
    if step:
        say(step)


def retry(
    run_id: RunId,
    *,
    target: Targets = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Try those too that would fail again as things were: the cause is removed.",
        ),
    ] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Try failed targets again: all that are worth it, or those that are named.

    For example: automation pricing runs retry 7 --target 101 --target 104 --wait
    """
    client = open_client()
    run = client.pricing.runs.retry(run_id, target_ids=target or None, force=force)
    _print_requested(run, client, f"Run {run_id} is asked to try again", wait=wait, as_json=as_json)


def rollback(
    run_id: RunId,
    *,
    target: Targets = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Take back those too that were edited since they were applied."
        ),
    ] = False,
    wait: Wait = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; only a terminal is asked.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the prices from before the run again, of all that is applied or of the targets that are
    named. What was edited since stays. For example: automation pricing runs rollback 7 --wait
    """
    client = open_client()
    before, chosen = client.pricing.runs.get(run_id), set(target or ())
    if (
        not yes
        and sys.stdin.isatty()
        and not typer.confirm(_question(before, len(chosen)), err=True)
    ):
        typer.echo(f"Run {run_id} stays as it is.", err=True)
        raise typer.Exit(1)
    run = client.pricing.runs.roll_back(run_id, target_ids=target or None, force=force)
    wanted = before.targets.rolled_back + len(chosen)

    def succeeded(followed: Followed) -> bool:
        is_whole = followed.run.status is PricingRunState.ROLLED_BACK
        return is_whole or (bool(chosen) and followed.run.targets.rolled_back >= wanted)

    _print_requested(
        run,
        client,
        f"Run {run_id} is asked to be taken back",
        wait=wait,
        as_json=as_json,
        succeeded=succeeded,
    )


def cancel(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Stop a run: what has not begun is given up, what was written stays.

    For example: automation pricing runs cancel 7
    """
    run = open_client().pricing.runs.cancel(run_id)
    if as_json:
        print_json(as_document(run))
    else:
        say(f"Run {run_id} is cancelled. {outcome(run)}")


def watch(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Follow a run to its end, with a bar; exit 1 unless it ends APPLIED, or ROLLED_BACK when it is
    taken back.

    For example: automation pricing runs watch 7
    """
    _follow(run_id, open_client(), _ended_well, as_json=as_json)


def _print_requested(
    run: RuleRun,
    client: Client,
    what: str,
    *,
    wait: bool,
    as_json: bool,
    succeeded: Callable[[Followed], bool] | None = None,
) -> None:
    if wait:
        _follow(run.id, client, succeeded or _was_applied, as_json=as_json)
    elif as_json:
        print_json({"run_id": str(run.id), "status": run.status, "run": as_document(run)})
    else:
        say(f"{what}: `automation pricing runs watch {run.id}` follows it.")


def _follow(
    run_id: int, client: Client, succeeded: Callable[[Followed], bool], *, as_json: bool
) -> None:
    followed = follow_run(run_id, client, pause=threading.Event(), quiet=as_json)
    run = followed.run
    if as_json:
        print_json({"run_id": str(run_id), "status": run.status, "run": as_document(run)})
    else:
        say(outcome(run))
        for words in filter(
            None, [run.error_message, next_step(run, client.pricing.policies.get(run.project_id))]
        ):
            say(words)
    if not succeeded(followed):
        raise typer.Exit(1)


def _was_applied(followed: Followed) -> bool:
    return followed.run.status is PricingRunState.APPLIED


def _ended_well(followed: Followed) -> bool:
    is_back = followed.run.status is PricingRunState.ROLLED_BACK
    return is_back or (_was_applied(followed) and not followed.was_taken_back)


def _question(run: RuleRun, chosen: int) -> str:
    prices = counted(chosen or run.targets.applied, "price")
    return f"Take back {prices} of run {run.id} ({run.rule_name}) in {run.shop}?"


SEVERITY_COLOURS = {MismatchSeverity.CRITICAL: "red", MismatchSeverity.WARNING: "yellow"}
GRAVE = frozenset(SEVERITY_COLOURS)


def reconcile(
    run_id: RunId,
    *,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Plan a new run that writes again what was found changed."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the prices in the shop with those that the run has applied. Exit 1 when any differs
    by more than the smallest coin.

    For example: automation pricing runs reconcile 7 --repair, then automation pricing runs apply 8
    """
    client = open_client().pricing.runs
    with shop_status_line("Reading prices", quiet=as_json):
        report = client.reconcile(run_id)
    planned = client.repair(run_id) if repair and report.details else None
    if as_json:
        print_json({**as_document(report), "repairRunId": planned and str(planned.id)})
    else:
        _print_report(report, planned)
    if any(mismatch.severity in GRAVE for mismatch in report.details):
        raise typer.Exit(1)


def _print_report(report: ReconciliationReport, planned: RuleRun | None) -> None:
    if report.details:
        columns = ("target", "sku", "expected", "in the shop", "difference", "weight")
        print_fitted_table(columns, map(_mismatch, report.details), texts={"sku", "difference"})
    if report.unverified:
        columns = ("target", "not verified because")
        print_fitted_table(
            columns, ((one.target_id, one.reason) for one in report.unverified), texts={columns[1]}
        )
    say(
        f"Run {report.run_id}: {counted(report.total_checked, 'price')} compared, {report.mismatches} differ, "
        f"{len(report.unverified)} could not be read."
    )
    if planned is not None:
        prices = counted(planned.total_targets, "price")
        say(
            f"Run {planned.id} would write {prices} again: `automation pricing runs apply {planned.id}`."
        )
    elif report.details:
        say(
            f"Write them again: `automation pricing runs reconcile {report.run_id} --repair` plans a run that does."
        )


def _mismatch(one: Mismatch) -> tuple[object, ...]:
    return (
        one.target_id,
        one.sku_id,
        amount(one.expected_price, one.currency),
        amount(one.actual_price, one.actual_currency),
        percent(one.expected_price, one.actual_price)
        if one.difference is not None
        else "another currency",
        Text(one.severity, SEVERITY_COLOURS.get(one.severity, "")),
    )


app = command_group("See how runs of rules stand; apply, retry, take back, reconcile.")


@app.command("list")
def list_(
    *,
    project: OfProject = None,
    rule: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only the runs of this rule.")
    ] = None,
    status: Annotated[
        PricingRunState | None,
        typer.Option(case_sensitive=False, help="Only the runs that stand so."),
    ] = None,
    limit: Limit = 20,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first. For example: automation pricing runs list --rule 3 --status
    PARTIAL"""
    span = one_more(limit, offset)
    found = open_client().pricing.runs.listed(
        project_id=project, rule_id=rule, status=status, span=span
    )
    if as_json:
        print_json(
            {"runs": [as_document(run) for run in found[:limit]], "more": len(found) > limit}
        )
        return
    print_runs(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show how a run stands, and what to type next. For example: automation pricing runs show 7"""
    client = open_client().pricing
    run = client.runs.get(run_id)
    if as_json:
        print_json(as_document(run))
    else:
        print_run(run, client.policies.get(run.project_id))


@app.command()
def targets(
    run_id: RunId,
    *,
    status: Annotated[
        TargetState | None,
        typer.Option(case_sensitive=False, help="Only the targets that stand so."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every target of a run: the price before and after, how it stands, and why it failed.

    For example: automation pricing runs targets 7 --status FAILED
    """
    found = every_target(open_client().pricing.runs, run_id, status)
    if as_json:
        print_json({"targets": [as_document(target) for target in found]})
    else:
        print_run_targets(found)


@app.command()
def log(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show every move of a run and its targets, oldest first. For example: automation pricing runs
    log 7"""
    lines = every_log_line(open_client().pricing.runs, run_id)
    if as_json:
        print_json({"log": [as_document(line) for line in lines]})
    else:
        print_log(lines)


for deed in (start, apply, approve, retry):
    app.command()(deed)
for deed in (rollback, cancel, watch, reconcile):
    app.command()(deed)
