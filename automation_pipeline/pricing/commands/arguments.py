"""Arguments of the pricing commands."""

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer

from automation_pipeline.cli.output import screen
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.pricing.models.rules import check_project


def _known_project(project: str | None) -> str | None:
    """None selects every project."""
    if project is not None:
        check_project(project, "Invalid request")
    return project


RuleId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The rule's id, as `automation pricing rules list` shows it."
    ),
]
RunId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The run's id, as `automation pricing runs list` shows it."
    ),
]
Project = Annotated[
    str,
    typer.Option("--project", "-p", callback=_known_project, help="The project, a group of rules."),
]
OfProject = Annotated[
    str | None,
    typer.Option("--project", "-p", callback=_known_project, help="Only entries of this project."),
]
Targets = Annotated[
    list[int] | None,
    typer.Option(
        "--target",
        min=1,
        max=LARGEST_ID,
        help="Only the target with this id, as `automation pricing runs targets` shows it; repeat the "
        "option for several.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end of the run.")]


def shop_status_line(what: str, *, quiet: bool) -> AbstractContextManager[object]:
    """Show a spinner on a terminal, because the shop's rate limit makes a large catalogue take minutes."""
    if quiet or not screen.is_terminal:
        return nullcontext()
    return screen.status(f"{what}, at the shop's rate limit")
