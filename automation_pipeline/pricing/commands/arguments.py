"""Arguments of the pricing commands."""

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer

from automation_pipeline.cli.output import screen
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.pricing.models.rules import check_project


def _known_project(project: str | None) -> str | None:
    """None stands for every project."""
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
    typer.Option("--project", "-p", callback=_known_project, help="Only what is of this project."),
]
Targets = Annotated[
    list[int] | None,
    typer.Option(
        "--target",
        min=1,
        max=LARGEST_ID,
        help="Only this target, by the id that `automation pricing runs targets` shows; repeat it for several.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Follow the run to its end.")]


def shop_status_line(what: str, *, quiet: bool) -> AbstractContextManager[object]:
    """A spinner on a terminal: at the pace that the shop allows, a large catalogue takes
    minutes."""
    if quiet or not screen.is_terminal:
        return nullcontext()
    return screen.status(f"{what}, at the pace that the shop allows")
