"""Arguments, paging and following of the pricing commands."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer

from automation_pipeline.cli.client.ports import PricingClient, PricingRunClient, Span
from automation_pipeline.cli.output import screen
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.pricing.models.history import PriceChange, PriceChangeFilter
from automation_pipeline.pricing.models.rules import DEFAULT_PROJECT
from automation_pipeline.pricing.models.runs import (
    LoggedMove,
    RuleTarget,
    SkippedVariant,
    TargetState,
)

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
Project = Annotated[str, typer.Option("--project", "-p", help="The project, a group of rules.")]
OfProject = Annotated[
    str | None, typer.Option("--project", "-p", help="Only what is of this project.")
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

PROJECT = DEFAULT_PROJECT


def shop_status_line(what: str, *, quiet: bool) -> AbstractContextManager[object]:
    """Something that moves on a terminal: at the pace that the shop allows, a large catalogue takes
    minutes."""
    is_seen = screen.is_terminal and not quiet
    return screen.status(f"{what}, at the pace that the shop allows") if is_seen else nullcontext()


PAGE = 500


def every_target(
    runs: PricingRunClient, run_id: int, status: TargetState | None
) -> Iterator[RuleTarget]:
    after = 0
    while page := runs.targets(run_id, status=status, limit=PAGE, after_id=after):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].id


def every_skipped(
    runs: PricingRunClient, run_id: int, reason: str | None
) -> Iterator[SkippedVariant]:
    offset = 0
    while page := runs.skipped(run_id, reason=reason, span=Span(PAGE, offset)):
        yield from page
        if len(page) < PAGE:
            return
        offset += PAGE


def every_log_line(runs: PricingRunClient, run_id: int) -> Iterator[LoggedMove]:
    after = 0
    while page := runs.log(run_id, limit=PAGE, after_id=after):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].id


def every_change(pricing: PricingClient, chosen: PriceChangeFilter) -> Iterator[PriceChange]:
    after = 0
    while page := pricing.changes(chosen, limit=PAGE, after_id=after):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].id
