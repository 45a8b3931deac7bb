"""Lists that are read whole, a page at a time."""

from collections.abc import Iterator

from automation_pipeline.cli.desk.pricing_ports import PricingDesk, PricingRunDesk
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.pricing.domain.price_change import PriceChange, PriceChangeFilter
from automation_pipeline.pricing.domain.rule_run import RuleTarget, SkippedVariant
from automation_pipeline.pricing.domain.run_log import LoggedMove
from automation_pipeline.pricing.domain.states import TargetState

PAGE = 500


def every_target(runs: PricingRunDesk, run_id: int, status: TargetState | None) -> Iterator[RuleTarget]:
    after = 0
    while page := runs.targets(run_id, status=status, limit=PAGE, after_id=after):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].id


def every_skipped(runs: PricingRunDesk, run_id: int, reason: str | None) -> Iterator[SkippedVariant]:
    offset = 0
    while page := runs.skipped(run_id, reason=reason, span=Span(PAGE, offset)):
        yield from page
        if len(page) < PAGE:
            return
        offset += PAGE


def every_log_line(runs: PricingRunDesk, run_id: int) -> Iterator[LoggedMove]:
    after = 0
    while page := runs.log(run_id, limit=PAGE, after_id=after):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].id


def every_change(pricing: PricingDesk, chosen: PriceChangeFilter) -> Iterator[PriceChange]:
    after = 0
    while page := pricing.changes(chosen, limit=PAGE, after_id=after):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].id
