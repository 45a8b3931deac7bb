"""`automation pricing runs`: how runs stand, target by target. What can be done about them is in run_deeds.py."""

from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.listing import Limit, Offset, one_more, say_more
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.cli.pricing import run_checks, run_deeds
from automation_pipeline.cli.pricing.arguments import OfProject, RunId
from automation_pipeline.cli.pricing.paging import every_log_line, every_target
from automation_pipeline.cli.pricing.run_page import print_log, print_run, print_run_targets, print_runs
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.pricing.domain.states import RunState, TargetState

app = typer.Typer(help="See how runs of rules stand; apply, retry, take back, reconcile.", no_args_is_help=True)


@app.command("list")
def list_(
    *,
    project: OfProject = None,
    rule: Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only the runs of this rule.")] = None,
    status: Annotated[RunState | None, typer.Option(case_sensitive=False, help="Only the runs that stand so.")] = None,
    limit: Limit = 20,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first. For example: automation pricing runs list --rule 3 --status PARTIAL"""
    span = one_more(limit, offset)
    found = desk().pricing.runs.listed(project_id=project, rule_id=rule, status=status, span=span)
    if as_json:
        print_json({"runs": [as_document(run) for run in found[:limit]], "more": len(found) > limit})
        return
    print_runs(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show how a run stands, and what to type next. For example: automation pricing runs show 7"""
    our = desk().pricing
    run = our.runs.get(run_id)
    if as_json:
        print_json(as_document(run))
    else:
        print_run(run, our.policies.get(run.project_id))


@app.command()
def targets(
    run_id: RunId,
    *,
    status: Annotated[
        TargetState | None, typer.Option(case_sensitive=False, help="Only the targets that stand so.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every target of a run: the price before and after, how it stands, and why it failed.

    For example: automation pricing runs targets 7 --status FAILED
    """
    found = every_target(desk().pricing.runs, run_id, status)
    if as_json:
        print_json({"targets": [as_document(target) for target in found]})
    else:
        print_run_targets(found)


@app.command()
def log(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show every move of a run and its targets, oldest first. For example: automation pricing runs log 7"""
    lines = every_log_line(desk().pricing.runs, run_id)
    if as_json:
        print_json({"log": [as_document(line) for line in lines]})
    else:
        print_log(lines)


for deed in (run_deeds.start, run_deeds.apply, run_deeds.approve, run_deeds.retry):
    app.command()(deed)
for deed in (run_deeds.rollback, run_deeds.cancel, run_deeds.watch, run_checks.reconcile):
    app.command()(deed)
