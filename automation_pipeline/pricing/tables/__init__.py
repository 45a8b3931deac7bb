"""Tables of pricing: rules and what they were, runs with their targets, the shops, and what was found afterwards."""

from automation_pipeline.pricing.tables.aftermath import AlertRow, CheckRow
from automation_pipeline.pricing.tables.rules import PolicyRow, RuleRow, RuleVersionRow
from automation_pipeline.pricing.tables.runs import PriceChangeRow, RuleRunRow, RuleTargetRow, SkippedVariantRow
from automation_pipeline.pricing.tables.shops import ShopRow

__all__ = [
    "AlertRow",
    "CheckRow",
    "PolicyRow",
    "PriceChangeRow",
    "RuleRow",
    "RuleRunRow",
    "RuleTargetRow",
    "RuleVersionRow",
    "ShopRow",
    "SkippedVariantRow",
]
