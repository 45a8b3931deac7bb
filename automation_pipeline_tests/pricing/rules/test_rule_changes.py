"""A patch changes what it names and nothing else, and comes to a whole rule or to nothing."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.rules import (
    NEVER_NULL,
    PricingRule,
    RuleInput,
    changed_rule,
    input_document,
    parse_rule,
    version_hash,
)
from automation_pipeline_tests.pricing.rules.rules import any_selector, any_transform, rule
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


def stored(written: RuleInput) -> PricingRule:
    known = {name: getattr(written, name) for name in RuleInput.model_fields}
    return PricingRule(
        **known,
        id=1,
        project_id="default",
        version=3,
        version_hash=version_hash(written),
        created_by="user:1",
        created_at=NOW,
        updated_at=NOW,
    )


KNOWN = stored(
    rule(
        {"op": "percent", "value": -10, "floor": 500},
        description="Old",
        scheduleAt="2026-06-01T00:00Z",
    )
)


def test_what_is_not_named_stays_and_null_clears() -> None:
    changed = changed_rule(KNOWN, {"name": "New", "description": None, "scheduleAt": None})
    assert changed == KNOWN.as_input.model_copy(
        update={"name": "New", "description": None, "schedule_at": None}
    )


def test_a_transform_is_replaced_whole() -> None:
    changed = changed_rule(KNOWN, {"transform": {"op": "percent", "value": -20}})
    assert (changed.transform.value, changed.transform.floor) == (-20, None)


@every_case(
    ("patch", "fields"),
    [
        ({"name": None}, {"name": NEVER_NULL}),
        ({"enabled": None, "selector": None}, {"enabled": NEVER_NULL, "selector": NEVER_NULL}),
        ({"cooldownMinutes": None}, {"cooldownMinutes": NEVER_NULL}),
        ({"version": 9}, {"version": "is not a known field"}),
        ({"endsAt": "2026-05-31T00:00Z"}, {"endsAt": "must lie after scheduleAt"}),
        ({"currency": None}, {"currency": "is required where the transform names amounts"}),
        ({"cooldown_minutes": 5}, {"cooldown_minutes": "is not a known field"}),
    ],
)
def test_a_patch_is_refused_with_every_field_at_fault(
    patch: dict[str, Any], fields: dict[str, str]
) -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid pricing rule data$") as caught:
        changed_rule(KNOWN, patch)
    assert dict(caught.value.fields) == fields


@given(any_selector, any_transform(), st.sampled_from([{}, {"name": "Other"}, {"enabled": False}]))
def test_any_rule_is_itself_after_a_patch_of_something_else(
    selector: dict[str, object], transform: dict[str, object], patch: dict[str, object]
) -> None:
    known = stored(rule(transform, selector=selector))
    changed = changed_rule(known, patch)
    assert changed == parse_rule({**input_document(known), **patch})
    assert (changed.selector, changed.transform) == (known.selector, known.transform)
    assert version_hash(changed) == known.version_hash
