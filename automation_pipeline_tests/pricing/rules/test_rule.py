"""What a rule must be as a whole, and when two rules are one version."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import (
    OnDrift,
    canonical,
    parse_rule,
    version_hash,
)
from automation_pipeline_tests.pricing.rules.rules import any_selector, any_transform, rule
from automation_pipeline_tests.tables import every_case

TENTH_OFF = {"op": "percent", "value": -10}
NO_INSTANT = "must be a date and time with its time zone, such as 2026-05-04T02:00:00Z"
BAND = {"price": {"gte": 100, "currency": "EUR"}}


def test_a_rule_says_little_and_has_careful_defaults() -> None:
    parsed = parse_rule({"name": "Sale", "selector": {"all": True}, "transform": TENTH_OFF})
    assert (parsed.enabled, parsed.on_drift, parsed.currency, parsed.schedule_at) == (
        True,
        OnDrift.REFUSE,
        None,
        None,
    )
    assert not parsed.transform.allow_zero


@every_case(
    ("changes", "field", "fault"),
    [
        ({"name": ""}, "name", "must have at least 1 character"),
        ({"selector": None}, "selector", "must be an object"),
        ({"transform": 3}, "transform", "must be an object"),
        (
            {"currency": "eur"},
            "currency",
            "must be a currency of three capital letters, such as EUR",
        ),
        ({"tenantId": "t"}, "tenantId", "is not a known field"),
        ({"onDrift": "ignore"}, "onDrift", "must be 'refuse' or 'overwrite'"),
        ({"cooldownMinutes": -1}, "cooldownMinutes", "must be at least 0"),
        (
            {"scheduleAt": "2026-05-04T02:00:00"},
            "scheduleAt",
            "must say its time zone, such as 2026-05-04T02:00:00Z",
        ),
        ({"scheduleAt": "0001-01-01T00:00:00+14:00"}, "scheduleAt", "lies outside the calendar"),
        ({"endsAt": "9999-12-31T23:59:59-14:00"}, "endsAt", "lies outside the calendar"),
        ({"scheduleAt": 5}, "scheduleAt", NO_INSTANT),
        ({"scheduleAt": 1893456000.5}, "scheduleAt", NO_INSTANT),
        ({"scheduleAt": True}, "scheduleAt", NO_INSTANT),
        ({"scheduleAt": "1893456000"}, "scheduleAt", NO_INSTANT),
        ({"endsAt": "-1e5"}, "endsAt", NO_INSTANT),
        (
            {"scheduleAt": "2030-01-01"},
            "scheduleAt",
            "must say its time zone, such as 2026-05-04T02:00:00Z",
        ),
        (
            {"scheduleAt": "2026-05-04T02:00:00Z", "endsAt": "2026-05-04T04:00:00+02:00"},
            "endsAt",
            "must lie after scheduleAt",
        ),
        (
            {"transform": {"op": "set", "value": 5}},
            "currency",
            "is required where the transform names amounts",
        ),
        (
            {"selector": BAND, "currency": "USD"},
            "currency",
            "must be that of all prices in the selector: EUR",
        ),
        (
            {"selector": {"or": [BAND, {"price": {"lt": 5, "currency": "USD"}}]}},
            "currency",
            "must be that of all prices in the selector: EUR, USD",
        ),
        (
            {"currency": "JPY", "transform": {**TENTH_OFF, "ending": ".99"}},
            "currency",
            "has 0 decimals, so that no price ends in .99",
        ),
    ],
)
def test_each_fault_is_named_where_it_is(
    changes: dict[str, object], field: str, fault: str
) -> None:
    given = {"name": "Sale", "selector": {"all": True}, "transform": TENTH_OFF}
    with pytest.raises(InvalidInputError, match="Invalid pricing rule data") as refused:
        parse_rule(given | changes)
    assert dict(refused.value.fields) == {field: fault}


def test_every_missing_field_is_named() -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_rule({})
    assert dict(refused.value.fields) == dict.fromkeys(
        ("name", "selector", "transform"), "is required"
    )


def test_times_of_any_zone_are_kept_in_utc() -> None:
    assert rule(TENTH_OFF, scheduleAt="2026-05-04T02:00:00+02:00").schedule_at == datetime(
        2026, 5, 4, 0, tzinfo=UTC
    )


@given(any_selector, any_transform())
@settings(max_examples=60, deadline=None)
def test_a_rule_reads_back_the_same_and_is_the_same_version(
    selector: dict[str, object], transform: dict[str, object]
) -> None:
    parsed = rule(transform, selector=selector)
    again = parse_rule(json.loads(json.dumps(as_document(parsed))))
    assert again == parsed
    assert version_hash(again) == version_hash(parsed)


@given(any_selector, any_transform(), st.randoms())
@settings(max_examples=60, deadline=None)
def test_the_order_of_keys_and_of_parts_is_no_new_version(
    selector: dict[str, object], transform: dict[str, object], random: st.DataObject
) -> None:
    def shuffled(value: object) -> object:
        if isinstance(value, dict):
            names = list(value)
            random.shuffle(names)
            return {name: shuffled(value[name]) for name in names}
        if isinstance(value, list):
            entries = [shuffled(entry) for entry in value]
            random.shuffle(entries)
            return entries
        return value

    assert version_hash(rule(shuffled(transform), selector=shuffled(selector))) == version_hash(
        rule(transform, selector=selector)
    )


@every_case(
    "transform",
    [
        {"op": "percent", "value": -10.0},
        {"op": "percent", "value": "-10"},
        {**TENTH_OFF, "floor": None},
    ],
)
def test_another_spelling_is_no_new_version(transform: dict[str, object]) -> None:
    assert version_hash(rule(transform)) == version_hash(rule(TENTH_OFF))


@every_case("changes", [{"name": "B"}, {"enabled": False}, {"scheduleAt": "2026-05-04T02:00:00Z"}])
def test_what_decides_no_price_is_no_new_version(changes: dict[str, object]) -> None:
    assert canonical(rule(TENTH_OFF, **changes)) == canonical(rule(TENTH_OFF))


@every_case(
    ("transform", "changes"),
    [
        ({"op": "percent", "value": -11}, {}),
        ({**TENTH_OFF, "compareAt": None}, {}),
        ({**TENTH_OFF, "floor": 0}, {}),
        (TENTH_OFF, {"selector": {"sku": "a"}}),
        (TENTH_OFF, {"currency": "USD"}),
        (TENTH_OFF, {"onDrift": "overwrite"}),
    ],
)
def test_what_decides_prices_is_a_new_version(
    transform: dict[str, object], changes: dict[str, object]
) -> None:
    assert version_hash(rule(transform, **changes)) != version_hash(rule(TENTH_OFF))
