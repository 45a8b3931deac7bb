"""`automation pricing policy`: a project's guardrails."""

from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import AsJson, print_json, read_json_object, say
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.commands.arguments import PROJECT, Project
from automation_pipeline.pricing.commands.rendering import print_policy
from automation_pipeline.pricing.models.rules import Policy

app = command_group("Set a project's guardrails: which prices are blocked, and who must approve.")

PolicyFile = Annotated[
    Path, typer.Option("--file", "-f", help="JSON file of the policy; - reads standard input.")
]


@app.command()
def show(*, project: Project = PROJECT, as_json: AsJson = False) -> None:
    """Show a project's guardrails. For example: automation pricing policy show --project summer"""
    _show(project, open_client().pricing.policies.get(project), as_json=as_json)


@app.command("set")
def set_(*, file: PolicyFile, project: Project = PROJECT, as_json: AsJson = False) -> None:
    """Give a project guardrails, in place of those that it has. For example, no change of more than
    30 %, no price below 1.00 EUR, and no run that nobody has approved:

    {"maxPctDelta": 0.3, "floor": 100, "currency": "EUR", "autoApply": false}

    They hold at the preview and again before each price is written: a price is blocked, never bent.
    """
    _show(
        project,
        open_client().pricing.policies.put(project, read_json_object(file)),
        as_json=as_json,
    )


@app.command()
def remove(*, project: Project = PROJECT, as_json: AsJson = False) -> None:
    """Take a project's guardrails away: its runs need no approval then.

    For example: automation pricing policy remove --project summer
    """
    open_client().pricing.policies.remove(project)
    if as_json:
        print_json({"project": project, "removed": True})
    else:
        say(f"Project {project} has no guardrails any more.")


def _show(project: str, policy: Policy | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"project": project, "policy": policy and as_document(policy)})
    else:
        print_policy(project, policy)
