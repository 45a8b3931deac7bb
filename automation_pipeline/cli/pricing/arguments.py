"""What several pricing commands are given in the same way."""

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer

from automation_pipeline.cli.output import screen
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.pricing.domain.pricing_rule import DEFAULT_PROJECT

RuleId = Annotated[
    int, typer.Argument(min=1, max=LARGEST_ID, help="The rule's id, as `automation pricing rules list` shows it.")
]
RunId = Annotated[
    int, typer.Argument(min=1, max=LARGEST_ID, help="The run's id, as `automation pricing runs list` shows it.")
]
Project = Annotated[str, typer.Option("--project", "-p", help="The project, a group of rules.")]
OfProject = Annotated[str | None, typer.Option("--project", "-p", help="Only what is of this project.")]
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

PROJECT = DEFAULT_PROJECT


def asking_the_shop(what: str, *, quiet: bool) -> AbstractContextManager[object]:
    """Something that moves on a terminal: at the pace that the shop allows, a large catalogue takes minutes."""
    is_seen = screen.is_terminal and not quiet
    return screen.status(f"{what}, at the pace that the shop allows") if is_seen else nullcontext()
