"""What can be done about a run of a pricing rule. The worker does it; --wait follows it."""

import sys
import threading
from collections.abc import Callable
from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.listing import counted, say
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.cli.pricing.arguments import RuleId, RunId, Targets, Wait
from automation_pipeline.cli.pricing.following import Followed, follow_run
from automation_pipeline.cli.pricing.next_steps import next_step
from automation_pipeline.cli.pricing.run_page import outcome
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.rule_run import RuleRun
from automation_pipeline.pricing.domain.states import RunState


def start(
    rule_id: RuleId,
    *,
    force: Annotated[bool, typer.Option("--force", help="Cut the rule's rest after its last run short.")] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Ask for a new run of a rule that is planned and applied at once, without a look at its preview. Where the project
    needs an approval, it stays a preview.

    For example: automation pricing runs start 3 --wait
    """
    our = desk()
    run = our.pricing.rules.request_run(rule_id, force=force)
    _asked(run, our, f"Run {run.id} of rule {rule_id} is asked for", wait=wait, as_json=as_json)


def apply(
    run_id: RunId,
    *,
    force: Annotated[bool, typer.Option("--force", help="Cut the rule's rest after its last run short.")] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Write what was previewed, exactly that. Prices that were changed since are told, and left alone or overwritten as
    the rule says. For example: automation pricing runs apply 7 --wait
    """
    our = desk()
    run = our.pricing.runs.apply(run_id, force=force)
    _asked(run, our, f"Run {run_id} is queued, {counted(run.total_targets, 'price')}", wait=wait, as_json=as_json)


def approve(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Say that a preview may be applied; somebody else than who made it has to.

    For example: automation pricing runs approve 7
    """
    our = desk().pricing
    run = our.runs.approve(run_id)
    if as_json:
        print_json(as_document(run))
        return
    say(f"Run {run_id} is approved by {run.approved_by}.")
    step = next_step(run, our.policies.get(run.project_id))
    if step:
        say(step)


def retry(
    run_id: RunId,
    *,
    target: Targets = None,
    force: Annotated[
        bool, typer.Option("--force", help="Try those too that would fail again as things were: the cause is removed.")
    ] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Try failed targets again: all that are worth it, or those that are named.

    For example: automation pricing runs retry 7 --target 101 --target 104 --wait
    """
    our = desk()
    run = our.pricing.runs.retry(run_id, target_ids=target or None, force=force)
    _asked(run, our, f"Run {run_id} is asked to try again", wait=wait, as_json=as_json)


def rollback(
    run_id: RunId,
    *,
    target: Targets = None,
    force: Annotated[
        bool, typer.Option("--force", help="Take back those too that were edited since they were applied.")
    ] = False,
    wait: Wait = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; only a terminal is asked.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the prices from before the run again, of all that is applied or of the targets that are named. What was
    edited since stays. For example: automation pricing runs rollback 7 --wait
    """
    our = desk()
    before, chosen = our.pricing.runs.get(run_id), set(target or ())
    if not yes and sys.stdin.isatty() and not typer.confirm(_question(before, len(chosen)), err=True):
        typer.echo(f"Run {run_id} stays as it is.", err=True)
        raise typer.Exit(1)
    run = our.pricing.runs.roll_back(run_id, target_ids=target or None, force=force)
    wanted = before.targets.rolled_back + len(chosen)

    def succeeded(followed: Followed) -> bool:
        is_whole = followed.run.status is RunState.ROLLED_BACK
        return is_whole or (bool(chosen) and followed.run.targets.rolled_back >= wanted)

    _asked(run, our, f"Run {run_id} is asked to be taken back", wait=wait, as_json=as_json, succeeded=succeeded)


def cancel(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Stop a run: what has not begun is given up, what was written stays.

    For example: automation pricing runs cancel 7
    """
    run = desk().pricing.runs.cancel(run_id)
    if as_json:
        print_json(as_document(run))
    else:
        say(f"Run {run_id} is cancelled. {outcome(run)}")


def watch(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Follow a run to its end, with a bar; exit 1 unless it ends APPLIED, or ROLLED_BACK when it is taken back.

    For example: automation pricing runs watch 7
    """
    _follow(run_id, desk(), _as_wanted, as_json=as_json)


def _asked(
    run: RuleRun,
    our: Desk,
    what: str,
    *,
    wait: bool,
    as_json: bool,
    succeeded: Callable[[Followed], bool] | None = None,
) -> None:
    if wait:
        _follow(run.id, our, succeeded or _was_applied, as_json=as_json)
    elif as_json:
        print_json({"run_id": str(run.id), "status": run.status, "run": as_document(run)})
    else:
        say(f"{what}: `automation pricing runs watch {run.id}` follows it.")


def _follow(run_id: int, our: Desk, succeeded: Callable[[Followed], bool], *, as_json: bool) -> None:
    followed = follow_run(run_id, our, pause=threading.Event(), quiet=as_json)
    run = followed.run
    if as_json:
        print_json({"run_id": str(run_id), "status": run.status, "run": as_document(run)})
    else:
        say(outcome(run))
        for words in filter(None, [run.error_message, next_step(run, our.pricing.policies.get(run.project_id))]):
            say(words)
    if not succeeded(followed):
        raise typer.Exit(1)


def _was_applied(followed: Followed) -> bool:
    return followed.run.status is RunState.APPLIED


def _as_wanted(followed: Followed) -> bool:
    is_back = followed.run.status is RunState.ROLLED_BACK
    return is_back or (_was_applied(followed) and not followed.was_taken_back)


def _question(run: RuleRun, chosen: int) -> str:
    return (
        f"Take back {counted(chosen or run.targets.applied, 'price')} of run {run.id} ({run.rule_name}) in {run.shop}?"
    )
