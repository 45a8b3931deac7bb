"""What is kept of each variant that a rule picks, as columns of its row; nothing in them that JSON cannot hold."""

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.money import price_document
from automation_pipeline.pricing.domain.plan import LeftAlone, PlannedTarget, check_document
from automation_pipeline.pricing.domain.states import FIRST_TARGET_STATE
from automation_pipeline.pricing.domain.variant import Variant


def target_columns(target: PlannedTarget) -> dict[str, object]:
    outcome = target.outcome
    return _of_variant(target.variant) | {
        "currency": target.before.currency,
        "before_json": price_document(target.before),
        "after_json": price_document(target.after),
        "writes_compare_at": outcome.writes_compare_at,
        "trace_json": None if outcome.trace is None else as_document(outcome.trace),
        "warnings": [warning.words for warning in outcome.warnings],
        "status": FIRST_TARGET_STATE.value,
    }


def skipped_columns(left: LeftAlone) -> dict[str, object]:
    return _of_variant(left.variant) | {
        "reason": str(left.reason),
        "checks": [check_document(check) for check in left.checks] or None,
        "current_amount": left.variant.amount,
        "proposed_amount": None if left.proposed is None else left.proposed.unit_amount,
        "currency": left.variant.currency,
    }


def _of_variant(variant: Variant) -> dict[str, object]:
    return {
        "product_id": variant.product_id,
        "variant_id": variant.variant_id,
        "sku_id": variant.sku,
        "title": _title(variant),
    }


def _title(variant: Variant) -> str | None:
    """As a person knows it: the product, and which of its variants."""
    return " · ".join(part for part in (variant.title, variant.variant_title) if part) or None
