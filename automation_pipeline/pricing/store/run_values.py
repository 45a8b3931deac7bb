"""Rows of runs, targets and skipped variants, as the values that are shown."""

from collections.abc import Iterable

from automation_pipeline.pricing.domain.money import PriceDocument
from automation_pipeline.pricing.domain.outcome import Skip
from automation_pipeline.pricing.domain.rule_run import BLOCKED, RuleRun, RuleTarget, SkippedVariant, TargetCounts
from automation_pipeline.pricing.domain.run_result import success_rate
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow, SkippedVariantRow

BLOCKED_WHY = "The project's guardrails do not allow its new price."

_OF_ROW = RuleRun.model_fields.keys() - {"rule_name", "targets", "success_rate", "explain"}
_OF_TARGET = RuleTarget.model_fields.keys() - {"before", "after", "trace", "warnings", "observed_price"}
_OF_SKIPPED = SkippedVariant.model_fields.keys() - {"why", "checks"}


def run_value(row: RuleRunRow, rule_name: str, counts: TargetCounts) -> RuleRun:
    return RuleRun.model_validate(
        {name: getattr(row, name) for name in _OF_ROW}
        | {"rule_name": rule_name, "targets": counts, "success_rate": rate_of(counts), "explain": row.explain_json}
    )


def rate_of(counts: TargetCounts) -> float | None:
    """A target that was rolled back was applied: a rollback does not make the run less successful."""
    rate = success_rate(counts.applied + counts.rolled_back, counts.failed - counts.cancelled)
    return None if rate is None else round(float(rate), 4)


def counts_value(counted: Iterable[tuple[str, bool, int]]) -> TargetCounts:
    """Of status, whether it was cancelled, and how many."""
    counts = dict.fromkeys(TargetCounts.model_fields, 0)
    for status, is_cancelled, count in counted:
        counts[status.lower()] += count
        counts["cancelled"] += count if is_cancelled else 0
    return TargetCounts(**counts)


def target_value(row: RuleTargetRow) -> RuleTarget:
    observed = row.observed_price
    return RuleTarget.model_validate(
        {name: getattr(row, name) for name in _OF_TARGET}
        | {
            "before": PriceDocument.model_validate(row.before_json),
            "after": PriceDocument.model_validate(row.after_json),
            "trace": row.trace_json,
            "warnings": tuple(row.warnings),
            "observed_price": None if observed is None else PriceDocument.model_validate(observed),
        }
    )


def skipped_value(row: SkippedVariantRow) -> SkippedVariant:
    why = BLOCKED_WHY if row.reason == BLOCKED else Skip(row.reason).why
    return SkippedVariant.model_validate(
        {name: getattr(row, name) for name in _OF_SKIPPED} | {"why": why, "checks": tuple(row.checks or ())}
    )
