"""What several pricing commands are given in the same way, and how they page their lists."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, TypeVar

import typer

from automation_pipeline.cli.desk.pricing_ports import Span
from automation_pipeline.cli.output import screen
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.pricing.domain.pricing_rule import DEFAULT_PROJECT

Entry = TypeVar("Entry")

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
Limit = Annotated[int, typer.Option(min=1, max=500, help="At most so many.")]
Offset = Annotated[int, typer.Option(min=0, max=1_000_000_000, help="Leave out the first so many.")]

PROJECT = DEFAULT_PROJECT


def one_more(limit: int, offset: int) -> Span:
    """A page, and one entry beyond it, which says that there is more."""
    return Span(limit + 1, offset)


def say_more(found: Sequence[object], limit: int, offset: int) -> None:
    if len(found) > limit:
        say(f"There are more: --offset {offset + limit} shows the next.")


def say(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)


def asking_the_shop(what: str, *, quiet: bool) -> AbstractContextManager[object]:
    """Something that moves on a terminal: at the pace that the shop allows, a large catalogue takes minutes."""
    is_seen = screen.is_terminal and not quiet
    return screen.status(f"{what}, at the pace that the shop allows") if is_seen else nullcontext()


def counted(number: int, noun: str) -> str:
    """1 price, 2 prices."""
    return f"{number} {noun if number == 1 else noun + 's'}"
