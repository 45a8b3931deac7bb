"""`automation pricing preview`: what a rule would do to every price, before anything is written."""

from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.desk.pricing_ports import PricingDesk
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.cli.listing import say
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.cli.pricing.arguments import RuleId, asking_the_shop
from automation_pipeline.cli.pricing.next_steps import next_step
from automation_pipeline.cli.pricing.paging import every_skipped, every_target
from automation_pipeline.cli.pricing.preview_page import print_account, print_blocked, print_targets
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.rule_run import BLOCKED, RuleRun, RuleTarget, SkippedVariant

SHOWN = 50


def preview(
    rule_id: RuleId,
    *,
    everything: Annotated[bool, typer.Option("--all", help=f"Show every row, not the first {SHOWN}.")] = False,
    as_json: AsJson = False,
) -> None:
    """See what a rule would do to every price: nothing is written. Exactly this is applied afterwards, by its number.

    For example: automation pricing preview 3, then automation pricing runs apply 7

    A preview is good for 15 minutes, and until the rule is changed. A disabled rule can be previewed too.
    """
    our = desk().pricing
    with asking_the_shop("Reading the catalogue", quiet=as_json):
        run = our.rules.preview(rule_id)
    targets, blocked = _rows(run, our, everything=everything)
    if as_json:
        print_json(_document(run, targets, blocked))
        return
    say(f"Run {run.id} is a preview of rule {run.rule_id}, {run.rule_name}, version {run.rule_version}.")
    print_targets(run, targets)
    print_blocked(run, blocked)
    print_account(run)
    if not our.rules.get(rule_id).enabled:
        say("The rule is disabled: it can be applied once it is enabled.")
    step = next_step(run, our.policies.get(run.project_id))
    if step:
        say(step)


def _rows(run: RuleRun, our: PricingDesk, *, everything: bool) -> tuple[list[RuleTarget], list[SkippedVariant]]:
    if everything:
        return list(every_target(our.runs, run.id, None)), list(every_skipped(our.runs, run.id, BLOCKED))
    targets = our.runs.targets(run.id, status=None, limit=SHOWN)
    return list(targets), list(our.runs.skipped(run.id, reason=BLOCKED, span=Span(SHOWN)))


def _document(run: RuleRun, targets: list[RuleTarget], blocked: list[SkippedVariant]) -> dict[str, object]:
    return {
        "run_id": str(run.id),
        "run": as_document(run),
        "targets": [as_document(target) for target in targets],
        "blocked": [as_document(variant) for variant in blocked],
        "truncated": run.total_targets > len(targets) or run.blocked > len(blocked),
    }
