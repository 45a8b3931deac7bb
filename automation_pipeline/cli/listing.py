"""How commands page their lists, and say something to a person beside them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from automation_pipeline.cli.desk.span import Span
from automation_pipeline.cli.output import screen

Limit = Annotated[int, typer.Option(min=1, max=500, help="At most so many.")]
Offset = Annotated[int, typer.Option(min=0, max=1_000_000_000, help="Leave out the first so many.")]


def one_more(limit: int, offset: int) -> Span:
    """A page, and one entry beyond it, which says that there is more."""
    return Span(limit + 1, offset)


def say_more(found: Sequence[object], limit: int, offset: int) -> None:
    if len(found) > limit:
        say(f"There are more: --offset {offset + limit} shows the next.")


def say(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)


def counted(number: int, noun: str) -> str:
    """1 price, 2 prices."""
    return f"{number} {noun if number == 1 else noun + 's'}"


def minute(instant: datetime | None) -> str:
    return f"{instant:%Y-%m-%d %H:%M}" if instant else ""
