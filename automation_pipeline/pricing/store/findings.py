"""What was found in the shop, weighed against what was applied: reports are kept, and every difference is told."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from automation_pipeline.core.events import Event
from automation_pipeline.pricing.domain.keys import mismatch_key
from automation_pipeline.pricing.domain.money import Price
from automation_pipeline.pricing.domain.pricing_rule import TENANT
from automation_pipeline.pricing.domain.reconciliation import Reading, ReconciliationReport, report
from automation_pipeline.pricing.store.checks import keep_report
from automation_pipeline.pricing.store.standing import StandingTarget, standing_targets, variants_in_flux
from automation_pipeline.storage.outbox import enqueue

_IN_FLUX = "its price was being changed meanwhile"

# By variant, its price in the shop; or why that could not be read.
Seen = Mapping[str, Price | str]


def keep_findings(
    session: Session, name: str, looked_at: Mapping[int, Sequence[StandingTarget]], seen: Seen, shop: str, now: datetime
) -> list[ReconciliationReport]:
    """By run, the targets whose prices were looked up. Those that were taken back or applied over meanwhile are out."""
    still = {target.id for target in standing_targets(session, looked_at)}
    left = {run: [target for target in targets if target.id in still] for run, targets in looked_at.items()}
    variants = [target.variant_id for targets in left.values() for target in targets]
    in_flux = variants_in_flux(session, shop, variants)
    told: Seen = {**seen, **dict.fromkeys(in_flux, _IN_FLUX)}
    reports = [report(str(run), [_reading(one, told) for one in targets], now) for run, targets in left.items()]
    keep_report(session, name, reports, now)
    enqueue(session, [event for found in reports for event in _events(found, name, now)])
    return reports


def _reading(target: StandingTarget, seen: Seen) -> Reading:
    found = seen[target.variant_id]
    read = Reading(target_id=str(target.id), sku_id=target.sku_id, expected=target.expected, actual=None)
    return replace(read, reason=found) if isinstance(found, str) else replace(read, actual=found)


def _events(found: ReconciliationReport, name: str, now: datetime) -> Iterator[Event]:
    for one in found.details:
        payload: dict[str, object] = {
            "targetId": one.target_id,
            "runId": found.run_id,
            "expected": one.expected_price,
            "actual": one.actual_price,
            "currency": one.currency,
            "actualCurrency": one.actual_currency,
            "difference": one.difference,
            "severity": one.severity,
        }
        key = mismatch_key(found.run_id, one.target_id, name)
        aggregate = f"rule-run-{found.run_id}"
        yield Event(TENANT, key, "automation.reconciliation.mismatch", "pricing", aggregate, now, payload)
