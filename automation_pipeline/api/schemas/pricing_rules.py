"""Pricing rules and guardrails as the API takes and shows them."""

from collections.abc import Mapping

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.pricing.domain.field_rules import Flag
from automation_pipeline.pricing.domain.policy import Policy

SALE: Mapping[str, object] = {
    "name": "Spring sale",
    "selector": {"and": [{"tag": ["spring"]}, {"price": {"gte": 1000, "currency": "EUR"}}]},
    "transform": {"op": "percent", "value": -10, "floor": 900, "ending": ".99", "compareAt": "before"},
    "currency": "EUR",
    "scheduleAt": "2027-03-20T07:00:00Z",
    "endsAt": "2027-03-27T07:00:00Z",
}
FORCED: Mapping[str, object] = {"force": True}
CHANGE: Mapping[str, object] = {"enabled": False, "endsAt": None}
GUARDRAILS: Mapping[str, object] = {"maxPctDelta": 0.15, "floor": 500, "currency": "EUR", "dailyChangeBudgetPct": 0.25}


class Force(JsonModel):
    """`force` cuts the rest of a rule after its last run short."""

    force: Flag = False


class PolicyShown(Policy):
    """Once more under a name of its own: what is shown has every field."""
