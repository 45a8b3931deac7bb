"""`automation pricing`: its groups, and `runs`: show, start, apply, retry, roll back, reconcile."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.progress import TimeRemainingColumn
from rich.text import Text

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import every, operation, write_context
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    Limit,
    Offset,
    counted,
    print_json,
    print_result,
    say,
    show_one,
    show_page,
)
from automation_pipeline.cli.progress import LaunchWait, progress_bars
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.pricing.checks import next_manual_name, reconcile_run, repair_run
from automation_pipeline.pricing.commands.rendering import (
    RUNS,
    TARGETS,
    OfProject,
    RuleId,
    RunId,
    Targets,
    Wait,
    amount,
    next_step,
    outcome,
    percent,
    print_log,
    print_run,
    say_next_step,
    shop_status_line,
)
from automation_pipeline.pricing.commands.rules import app as rules_app
from automation_pipeline.pricing.commands.rules import (
    guardrails,
    policy_app,
    preview,
    targets_of_run,
)
from automation_pipeline.pricing.commands.shop import alerts, changes, dlq, get_shop
from automation_pipeline.pricing.commands.shop import app as shop_app
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    LoggedMove,
    PricingRunState,
    RuleRun,
    RuleRunFilter,
    RuleTrigger,
    RunAction,
    TargetState,
)
from automation_pipeline.pricing.queries.runs import get_run, list_runs, transitions_of
from automation_pipeline.pricing.rules.monitoring import (
    Mismatch,
    MismatchSeverity,
    ReconciliationReport,
    Unverified,
)
from automation_pipeline.pricing.runs import (
    approve_run,
    cancel_run,
    queue_run,
    request_rule_run,
    retry_run,
    roll_back_run,
)
from automation_pipeline.storage.database import Session

app = command_group(
    "Change prices in the shop by rules: preview, apply, retry, roll back, reconcile."
)
runs_app = command_group("Show runs of rules; apply, retry, roll back, reconcile.")
app.add_typer(rules_app, name="rules")
app.command()(preview)
app.add_typer(runs_app, name="runs")
app.command()(dlq)
app.add_typer(policy_app, name="policy")
app.add_typer(shop_app, name="shop")
app.command()(alerts)
app.command()(changes)

PATH = "/api/pricing/runs"
ONE = f"{PATH}/{{run_id}}"
SEVERITY_COLOURS = {MismatchSeverity.CRITICAL: "red", MismatchSeverity.WARNING: "yellow"}


@operation(f"GET {PATH}")
def rule_runs(
    session: Session,
    *,
    project: str | None,
    rule_id: int | None,
    status: PricingRunState | None,
    limit: int,
    offset: int,
) -> Sequence[RuleRun]:
    return list_runs(
        session, RuleRunFilter(project_id=project, rule_id=rule_id, status=status), limit, offset
    )


rule_run = operation(f"GET {ONE}")(get_run)


@operation(f"GET {ONE}/log")
def moves_of_run(session: Session, run_id: int, *, limit: int, after: int) -> Sequence[LoggedMove]:
    return transitions_of(session, run_id, limit, after)


@operation("POST /api/pricing/rules/{rule_id}/apply")
def start_rule(services: Services, rule_id: int, *, force: bool) -> RuleRun:
    run_id = request_rule_run(
        rule_id,
        shop=services.storefront.name,
        trigger=RuleTrigger.CLI,
        force=force,
        **write_context(services),
    )
    with services.database.reading() as session:
        return get_run(session, run_id)


@operation(f"POST {ONE}/apply")
def apply_run(services: Services, run_id: int, *, force: bool) -> RuleRun:
    return queue_run(run_id, force=force, **write_context(services))


@operation(f"POST {ONE}/approve")
def approve_stored_run(services: Services, run_id: int) -> RuleRun:
    return approve_run(run_id, **write_context(services))


@operation(f"POST {ONE}/retry")
def retry_targets(
    services: Services, run_id: int, *, target_ids: Sequence[int] | None, force: bool
) -> RuleRun:
    return retry_run(run_id, target_ids=target_ids, force=force, **write_context(services))


@operation(f"POST {ONE}/rollback")
def roll_back_stored_run(
    services: Services, run_id: int, *, target_ids: Sequence[int] | None, force: bool
) -> RuleRun:
    return roll_back_run(run_id, target_ids=target_ids, force=force, **write_context(services))


@operation(f"POST {ONE}/cancel")
def cancel_stored_run(services: Services, run_id: int) -> RuleRun:
    return cancel_run(run_id, **write_context(services))


@operation(f"POST {ONE}/reconcile")
def reconcile_stored_run(services: Services, run_id: int) -> ReconciliationReport:
    with services.database.reading() as session:
        name = next_manual_name(session, run_id)
    return services.run(reconcile_run(run_id, services.pricing_context, name=name))


@operation(f"POST {ONE}/repair")
def plan_repair_run(services: Services, run_id: int) -> RuleRun:
    return repair_run(run_id, **write_context(services))


@dataclass(frozen=True)
class Followed:
    """The end of a followed run. `was_rolled_back`: the run, or a part of it, was rolled back while the
    command followed it."""

    run: RuleRun
    was_rolled_back: bool


@runs_app.command("list")
def list_(
    *,
    project: OfProject = None,
    rule: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only the runs of this rule.")
    ] = None,
    status: Annotated[
        PricingRunState | None,
        typer.Option(case_sensitive=False, help="Only the runs with this status."),
    ] = None,
    limit: Limit = 20,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first. For example: automation pricing runs list --rule 3 --status
    PARTIAL"""
    found = rule_runs(project=project, rule_id=rule, status=status, limit=limit + 1, offset=offset)
    show_page("runs", found, RUNS.print, limit=limit, offset=offset, as_json=as_json)


@runs_app.command()
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show the status of a run, and the next command. For example: automation pricing runs show
    7"""
    run = rule_run(run_id)
    show_one(run, lambda shown: print_run(shown, guardrails(run.project_id)), as_json=as_json)


@runs_app.command()
def targets(
    run_id: RunId,
    *,
    status: Annotated[
        TargetState | None,
        typer.Option(case_sensitive=False, help="Only the targets with this status."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every target of a run: the price before and after, its status, and why it failed.

    For example: automation pricing runs targets 7 --status FAILED
    """
    found = every(targets_of_run, run_id=run_id, status=status)
    if as_json:
        print_json({"targets": [as_document(target) for target in found]})
    else:
        TARGETS.print(found)


@runs_app.command()
def log(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show every state change of a run and its targets, oldest first. For example: automation
    pricing runs log 7"""
    lines = every(moves_of_run, run_id=run_id)
    if as_json:
        print_json({"log": [as_document(line) for line in lines]})
    else:
        print_log(lines)


@runs_app.command()
def start(
    rule_id: RuleId,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Skip the rule's cooldown after its last run.")
    ] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Request a new run of a rule that is planned and applied at once, without a check of its
    preview. If the project requires an approval, the run stays a preview.

    For example: automation pricing runs start 3 --wait"""
    run = start_rule(rule_id, force=force)
    _print_requested(
        run, f"Run {run.id} of rule {rule_id} is requested", wait=wait, as_json=as_json
    )


@runs_app.command()
def apply(
    run_id: RunId,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Skip the rule's cooldown after its last run.")
    ] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Write exactly the previewed prices. Prices that have changed since the preview are reported,
    and kept or overwritten as the rule specifies. For example: automation pricing runs apply 7
    --wait"""
    run = apply_run(run_id, force=force)
    prices = counted(run.total_targets, "price")
    _print_requested(run, f"Run {run_id} is queued, {prices}", wait=wait, as_json=as_json)


@runs_app.command()
def approve(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Approve a preview. The approver must not be its creator.

    For example: automation pricing runs approve 7"""
    run = approve_stored_run(run_id)
    if as_json:
        print_json(as_document(run))
    else:
        say(f"Run {run.id} is approved by {run.approved_by}.")
        say_next_step(run, guardrails(run.project_id))


@runs_app.command()
def retry(
    run_id: RunId,
    *,
    target: Targets = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also retry targets that need a fixed cause.",
        ),
    ] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Retry failed targets: all that are retryable, or the given ones.

    For example: automation pricing runs retry 7 --target 101 --target 104 --wait"""
    run = retry_targets(run_id, target_ids=target or None, force=force)
    _print_requested(run, f"Run {run_id} will be retried", wait=wait, as_json=as_json)


@runs_app.command()
def rollback(
    run_id: RunId,
    *,
    target: Targets = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also roll back prices that were edited since they were applied."
        ),
    ] = False,
    wait: Wait = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation on a terminal.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Roll back: write the prices from before the run, for all applied targets or for the given
    ones. Prices that were edited since then stay. For example: automation pricing runs rollback 7
    --wait"""
    before, chosen = rule_run(run_id), set(target or ())
    prices = counted(len(chosen) or before.targets.applied, "price")
    question = f"Take back {prices} of run {run_id} ({before.rule_name}) in {before.shop}?"
    if not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        typer.echo(f"Run {run_id} is unchanged.", err=True)
        raise typer.Exit(1)
    run = roll_back_stored_run(run_id, target_ids=target or None, force=force)
    wanted = before.targets.rolled_back + len(chosen)

    def succeeded(followed: Followed) -> bool:
        is_whole = followed.run.status is PricingRunState.ROLLED_BACK
        return is_whole or (bool(chosen) and followed.run.targets.rolled_back >= wanted)

    _print_requested(
        run,
        f"Run {run_id} will be rolled back",
        wait=wait,
        as_json=as_json,
        succeeded=succeeded,
    )


@runs_app.command()
def cancel(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Cancel a run: targets that have not started are cancelled, written prices stay.

    For example: automation pricing runs cancel 7"""
    run = cancel_stored_run(run_id)
    print_result(as_document(run), f"Run {run_id} is cancelled. {outcome(run)}", as_json=as_json)


@runs_app.command()
def watch(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Follow a run to its end with a progress bar; exit 1 unless it ends APPLIED, or ROLLED_BACK
    after a rollback.

    For example: automation pricing runs watch 7"""

    def ended_well(followed: Followed) -> bool:
        is_back = followed.run.status is PricingRunState.ROLLED_BACK
        return is_back or (_was_applied(followed) and not followed.was_rolled_back)

    _follow(run_id, ended_well, as_json=as_json)


@runs_app.command()
def reconcile(
    run_id: RunId,
    *,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Plan a new run that restores the changed prices."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the prices in the shop with those that the run applied. Exit 1 if any differs by more
    than the smallest coin.

    For example: automation pricing runs reconcile 7 --repair, then automation pricing runs apply 8"""
    with shop_status_line("Reading prices", quiet=as_json):
        report = reconcile_stored_run(run_id)
    planned = plan_repair_run(run_id) if repair and report.details else None
    if as_json:
        print_json({**as_document(report), "repairRunId": planned and str(planned.id)})
    else:
        _print_report(report, planned)
    if any(mismatch.severity in SEVERITY_COLOURS for mismatch in report.details):
        raise typer.Exit(1)


def _was_applied(followed: Followed) -> bool:
    return followed.run.status is PricingRunState.APPLIED


def _print_requested(
    run: RuleRun,
    what: str,
    *,
    wait: bool,
    as_json: bool,
    succeeded: Callable[[Followed], bool] = _was_applied,
) -> None:
    if wait:
        _follow(run.id, succeeded, as_json=as_json)
        return
    print_result(
        {"run_id": str(run.id), "status": run.status, "run": as_document(run)},
        f"{what}: `automation pricing runs watch {run.id}` follows it.",
        as_json=as_json,
    )


def _follow(run_id: int, succeeded: Callable[[Followed], bool], *, as_json: bool) -> None:
    followed = follow_run(run_id, quiet=as_json)
    run = followed.run
    if as_json:
        print_json({"run_id": str(run_id), "status": run.status, "run": as_document(run)})
    else:
        for sentence in filter(
            None, [outcome(run), run.error_message, next_step(run, guardrails(run.project_id))]
        ):
            say(sentence)
    if not succeeded(followed):
        raise typer.Exit(1)


def follow_run(run_id: int, *, quiet: bool) -> Followed:
    """Follow a run until it is over. There is no time limit."""
    first = rule_run(run_id)
    run, rolled_back = first, first.wish is RunAction.ROLLBACK
    waits = LaunchWait(why=_waiting_reason)
    message = f"Run {run_id} continues. `automation pricing runs show {run_id}` shows its status."
    with progress_bars(
        message, quiet=quiet, time_column=TimeRemainingColumn(elapsed_when_finished=True)
    ) as progress:
        bar = progress.add_task(first.status, total=None)
        while True:
            label, done, total = run_bar(run)
            progress.update(bar, description=label, completed=done, total=total)
            if is_over(run):
                return Followed(run, rolled_back)
            has_started = (
                run.status is PricingRunState.APPLYING
                or run.updated_at > first.updated_at
                or run.targets != first.targets
            )
            waits.pause(has_started=has_started or run.resume_at is not None)
            run = rule_run(run_id)
            rolled_back = rolled_back or run.wish is RunAction.ROLLBACK


def is_over(run: RuleRun) -> bool:
    return run.wish is None and run.status not in ACTIVE_RUN_STATES


def run_bar(run: RuleRun) -> tuple[str, int, int | None]:
    """Return the current activity, the number of finished targets, and their total, if it is known."""
    counts = run.targets
    if run.status is PricingRunState.PREVIEW and run.previewed_at is None:
        return ("reading the catalogue" if run.wish else "not planned"), 0, None
    if run.wish is RunAction.ROLLBACK or run.status is PricingRunState.ROLLED_BACK:
        total = counts.applied + counts.rolled_back
        return f"taking back: {counts.applied} applied{_pause(run)}", counts.rolled_back, total
    words = f"{run.status.lower()}: {counts.applied} applied, {counts.failed} failed{_pause(run)}"
    return words, counts.applied + counts.failed + counts.rolled_back, run.total_targets


def _pause(run: RuleRun) -> str:
    return (
        ""
        if run.resume_at is None or is_over(run)
        else f", continues at {run.resume_at:%H:%M:%S} UTC"
    )


def _waiting_reason() -> NotStartedError | None:
    if get_shop().paused_at is None:
        return None
    return NotStartedError(
        "SHOP_PAUSED", "The shop is paused: `automation pricing shop resume` resumes it"
    )


def _print_report(report: ReconciliationReport, planned: RuleRun | None) -> None:
    if report.details:
        MISMATCHES.print(report.details)
    if report.unverified:
        UNVERIFIED.print(report.unverified)
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
            f"Restore them: `automation pricing runs reconcile {report.run_id} --repair` plans a run that does that."
        )


MISMATCHES = Columns[Mismatch](
    {
        "target": lambda one: one.target_id,
        "sku": lambda one: one.sku_id,
        "expected": lambda one: amount(one.expected_price, one.currency),
        "in the shop": lambda one: amount(one.actual_price, one.actual_currency),
        "difference": lambda one: (
            "another currency"
            if one.difference is None
            else percent(one.expected_price, one.actual_price)
        ),
        "weight": lambda one: Text(one.severity, SEVERITY_COLOURS.get(one.severity, "")),
    },
    texts={"sku", "difference"},
)
UNVERIFIED = Columns[Unverified](
    {"target": lambda one: one.target_id, "reason not verified": lambda one: one.reason},
    texts={"reason not verified"},
)
