"""Validation of rule, selector, transform and policy input."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.events import (
    policy_changed,
    policy_removed,
    promotion_ended,
    run_scheduled,
    schedule_missed,
)
from automation_pipeline.pricing.models.rules import (
    NEVER_NULL,
    OnDrift,
    PricingRule,
    RuleInput,
    bands_of,
    canonical,
    changed_rule,
    check_project,
    input_document,
    parse_policy,
    parse_rule,
    version_hash,
)
from automation_pipeline.pricing.models.transforms import Round, names_amounts
from automation_pipeline.pricing.rules.monitoring import validate_check_name
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.pricing.rules.rules import (
    any_selector,
    any_transform,
    rule,
    selector,
)

TENTH_OFF = {"op": "percent", "value": -10}
NO_INSTANT = "must be a date and time with its time zone, such as 2026-05-04T02:00:00Z"
BAND = {"price": {"gte": 100, "currency": "EUR"}}


def test_a_rule_has_conservative_defaults() -> None:
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
        ({"name": "x" * 256}, "name", "must have at most 255 characters"),
        ({"description": "x" * 2001}, "description", "must have at most 2000 characters"),
        ({"cooldownMinutes": 43_201}, "cooldownMinutes", "must be at most 43200"),
        (
            {"currency": "EUR", "transform": {**TENTH_OFF, "ending": "99"}},
            "currency",
            "has 2 decimals, so that no price ends in 99",
        ),
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
            "must have a time zone, such as 2026-05-04T02:00:00Z",
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
            "must have a time zone, such as 2026-05-04T02:00:00Z",
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
def test_each_invalid_field_is_named_by_its_path(
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


def test_times_are_converted_to_utc() -> None:
    assert rule(TENTH_OFF, scheduleAt="2026-05-04T02:00:00+02:00").schedule_at == datetime(
        2026, 5, 4, 0, tzinfo=UTC
    )
    promotion = rule(TENTH_OFF, endsAt="2026-05-04T02:00:00+02:00")
    assert promotion.ends_at == datetime(2026, 5, 4, 0, tzinfo=UTC)


@given(any_selector, any_transform())
@settings(max_examples=60, deadline=None)
def test_a_parsed_rule_round_trips_with_the_same_version_hash(
    selector: dict[str, object], transform: dict[str, object]
) -> None:
    parsed = rule(transform, selector=selector)
    again = parse_rule(json.loads(json.dumps(as_document(parsed))))
    assert again == parsed
    assert version_hash(again) == version_hash(parsed)


@given(any_selector, any_transform(), st.randoms())
@settings(max_examples=60, deadline=None)
def test_the_order_of_keys_does_not_change_the_version(
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
def test_equivalent_spellings_have_the_same_version(transform: dict[str, object]) -> None:
    assert version_hash(rule(transform)) == version_hash(rule(TENTH_OFF))


@every_case("changes", [{"name": "B"}, {"enabled": False}, {"scheduleAt": "2026-05-04T02:00:00Z"}])
def test_fields_that_do_not_affect_prices_keep_the_version(changes: dict[str, object]) -> None:
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
def test_a_change_that_affects_prices_is_a_new_version(
    transform: dict[str, object], changes: dict[str, object]
) -> None:
    assert version_hash(rule(transform, **changes)) != version_hash(rule(TENTH_OFF))


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


def test_a_patch_keeps_omitted_fields_and_null_clears_a_field() -> None:
    changed = changed_rule(KNOWN, {"name": "New", "description": None, "scheduleAt": None})
    assert changed == KNOWN.as_input.model_copy(
        update={"name": "New", "description": None, "schedule_at": None}
    )


def test_a_patch_replaces_the_whole_transform() -> None:
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
def test_an_invalid_patch_names_every_invalid_field(
    patch: dict[str, Any], fields: dict[str, str]
) -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid pricing rule data$") as caught:
        changed_rule(KNOWN, patch)
    assert dict(caught.value.fields) == fields


@given(any_selector, any_transform(), st.sampled_from([{}, {"name": "Other"}, {"enabled": False}]))
def test_a_patch_of_one_field_keeps_the_rest_of_any_rule(
    selector: dict[str, object], transform: dict[str, object], patch: dict[str, object]
) -> None:
    known = stored(rule(transform, selector=selector))
    changed = changed_rule(known, patch)
    assert changed == parse_rule({**input_document(known), **patch})
    assert (changed.selector, changed.transform) == (known.selector, known.transform)
    assert version_hash(changed) == known.version_hash


KINDS = "must have exactly one of all, sku, tag, product, price, field, and, or, not"


def faults(given: object) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as refused:
        selector(given)
    return dict(refused.value.fields)


@every_case(
    ("given", "field", "fault"),
    [
        ({}, "selector", KINDS),
        ({"sku": None}, "selector", KINDS),
        ({"sku": "a", "tag": "b"}, "selector", KINDS),
        ("all", "selector", "must be an object"),
        ({"all": False}, "selector.all", "must be true"),
        ({"everybody": True}, "selector.everybody", "is not a known field"),
        ({"all": True, "op": "eq"}, "selector", "has op or value, which go with field only"),
        ({"sku": []}, "selector.sku", "must have 1 to 10000 entries"),
        ({"tag": ["a", " "]}, "selector.tag", "must not hold an empty text"),
        ({"sku": [1]}, "selector.sku.0", "must be a text"),
        ({"and": []}, "selector.and", "must have 1 to 10000 entries"),
        ({"and": [{"all": True}, {}]}, "selector.and.1", KINDS),
        ({"not": {"or": [{}]}}, "selector.not.or.0", KINDS),
        (
            {"price": {"currency": "EUR"}},
            "selector.price",
            "must have at least one of gt, gte, lt, lte and eq",
        ),
        ({"price": {"gt": 5}}, "selector.price.currency", "is required"),
        ({"price": {"gt": -1, "currency": "EUR"}}, "selector.price.gt", "must be at least 0"),
        (
            {"price": {"gt": 9.99, "currency": "EUR"}},
            "selector.price.gt",
            "must be a whole number of minor units, such as 1299 for 12.99",
        ),
        ({"field": "vendor", "value": "x"}, "selector.op", "is required"),
        ({"field": "vendor", "op": "eq"}, "selector.value", "must be a text that is not empty"),
        ({"field": "vendor", "op": "in", "value": "x"}, "selector.value", "must be a list"),
        (
            {"field": "vendor", "op": "in", "value": []},
            "selector.value",
            "must have 1 to 10000 entries",
        ),
        (
            {"field": "inventory", "op": "eq", "value": True},
            "selector.value",
            "must be a whole number",
        ),
        (
            {"field": "onSale", "op": "eq", "value": "yes"},
            "selector.value",
            "must be true or false",
        ),
        (
            {"field": "onSale", "op": "in", "value": [True]},
            "selector.op",
            "must be one of eq, ne for onSale",
        ),
    ],
)
def test_each_invalid_part_of_a_selector_is_named(given: object, field: str, fault: str) -> None:
    assert faults(given) == {field: fault}


@every_case("field", ["tenant_id", "id", "price", "__class__"])
def test_an_unknown_selector_field_is_refused(field: str) -> None:
    assert "must be 'sku'" in faults({"field": field, "op": "eq", "value": "x"})["selector.field"]


@every_case(("field", "op"), [("vendor", "gt"), ("inventory", "contains"), ("vendor", "like")])
def test_a_comparison_that_the_field_does_not_support_is_refused(field: str, op: str) -> None:
    assert "selector.op" in faults({"field": field, "op": op, "value": "x"})


def test_a_selector_that_is_too_deep_or_too_large_is_refused_before_parsing() -> None:
    deep: dict[str, object] = {"all": True}
    for _ in range(100_000):
        deep = {"not": deep}
    assert faults(deep) == {"selector": "must not be nested deeper than 10"}
    assert faults({"or": [{"all": True}] * 1000}) == {"selector": "must have at most 1000 parts"}
    assert len(selector({"or": [{"all": True}] * 999}).any_of or ()) == 999


def test_a_single_value_becomes_a_list_without_duplicates() -> None:
    assert selector({"sku": " a "}).sku == ("a",)
    assert selector({"sku": ["a", "b", "a "]}).sku == ("a", "b")


@given(any_selector)
@settings(max_examples=50, deadline=None)
def test_a_written_value_round_trips(given: dict[str, object]) -> None:
    parsed = selector(given)
    assert selector(as_document(parsed)) == parsed


def test_price_bands_are_found_at_any_depth() -> None:
    band = {"price": {"gt": 1, "currency": "EUR"}}
    assert len(bands_of(selector({"and": [band, {"not": {"or": [band, {"all": True}]}}]}))) == 2


COMPARE_AT = 'must be null to clear it, a whole number of minor units to set it, or "before" for the price so far'


@every_case(
    ("given", "field", "fault"),
    [
        ({"op": "percent"}, "value", "is required for percent"),
        ({"op": "set"}, "value", "is required for set"),
        ({"op": "multiply"}, "factor", "is required for multiply"),
        ({"op": "multiply", "factor": 0}, "factor", "must be more than 0"),
        ({"op": "multiply", "factor": 1000.1}, "factor", "must be at most 1000"),
        ({**TENTH_OFF, "value": 10_000.1}, "value", "must be more than -100 and at most 10000"),
        ({**TENTH_OFF, "maxChangePercent": 10_000.1}, "maxChangePercent", "must be at most 10000"),
        (
            {**TENTH_OFF, "marginOverCostPercent": 10_000.1},
            "marginOverCostPercent",
            "must be at most 10000",
        ),
        ({**TENTH_OFF, "precision": -1}, "precision", "must be at least 0"),
        ({**TENTH_OFF, "floor": -1}, "floor", "must be at least 0"),
        ({**TENTH_OFF, "floor": 10**12 + 1}, "floor", f"must lie between -{10**12} and {10**12}"),
        ({**TENTH_OFF, "value": "-"}, "value", "must be a number"),
        (
            {**TENTH_OFF, "ending": ""},
            "ending",
            'must be the ending of prices, as a text such as ".99"',
        ),
        (
            {"op": "multiply", "factor": 2, "value": 5},
            "value",
            "does not go with multiply, which has a factor",
        ),
        ({"op": "percent", "value": 5, "factor": 2}, "factor", "goes with multiply only"),
        ({"op": "percent", "value": -100}, "value", "must be more than -100 and at most 10000"),
        ({"op": "percent", "value": "NaN"}, "value", "must be a number"),
        ({"op": "percent", "value": float("nan")}, "value", "must be a finite number"),
        ({"op": "percent", "value": float("inf")}, "value", "must be a finite number"),
        ({"op": "percent", "value": True}, "value", "must be a number"),
        ({"op": "percent", "value": "1_0"}, "value", "must be a number"),
        ({"op": "percent", "value": [1]}, "value", "must be a number"),
        ({"op": "percent", "value": "0.1234567"}, "value", "must have at most 6 decimals"),
        ({"op": "percent", "value": 10**5000}, "value", f"must lie between -{10**12} and {10**12}"),
        (
            {"op": "set", "value": 9.99},
            "value",
            "must be a whole number of minor units, such as 1299 for 12.99",
        ),
        ({"op": "set", "value": -1}, "value", "must be at least 0"),
        ({"op": "set", "value": 0}, "value", "must be at least 1 unless allowZero is true"),
        (
            {"op": "set", "value": 5, "floor": 9.99},
            "floor",
            "must be a whole number of minor units, such as 1299 for 12.99",
        ),
        (
            {"op": "set", "value": 5, "floor": 10, "ceiling": 9},
            "ceiling",
            "must not be below the floor of 10",
        ),
        (
            {"op": "set", "value": 5, "floor": 10, "ceil": 9},
            "ceiling",
            "must not be below the floor of 10",
        ),
        ({"op": "set", "value": 5, "ceil": 9, "ceiling": 8}, "ceil", "is not a known field"),
        (
            {"op": "set", "value": 5, "maxChangePercent": 0},
            "maxChangePercent",
            "must be more than 0",
        ),
        (
            {"op": "set", "value": 5, "marginOverCostPercent": -1},
            "marginOverCostPercent",
            "must be at least 0",
        ),
        ({"op": "set", "value": 5, "precision": 5}, "precision", "must be at most 4"),
        (
            {"op": "set", "value": 5, "ending": ".99", "precision": 1},
            "precision",
            "cannot go with an ending",
        ),
        (
            {"op": "set", "value": 5, "ending": ".99", "round": "none"},
            "round",
            "must be up, down or nearest with an ending",
        ),
        (
            {"op": "set", "value": 5, "ending": 0.99},
            "ending",
            'must be the ending of prices, as a text such as ".99"',
        ),
        (
            {"op": "set", "value": 5, "ending": "99 cents"},
            "ending",
            'must be the ending of prices, as a text such as ".99"',
        ),
        (
            {"op": "set", "value": 5, "round": "nearest_95"},
            "round",
            "must be 'none', 'up', 'down' or 'nearest'",
        ),
        ({"op": "set", "value": 5, "compareAt": -1}, "compareAt", COMPARE_AT),
        ({"op": "set", "value": 5, "compareAt": ["before"]}, "compareAt", COMPARE_AT),
        ({"op": "set", "value": 5, "allowZero": 1}, "allowZero", "must be true or false"),
    ],
)
def test_each_invalid_part_of_a_transform_is_named(
    given: dict[str, object], field: str, fault: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        rule(given)
    assert dict(refused.value.fields) == {f"transform.{field}": fault}


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(InvalidInputError) as refused:
        rule({"op": "percentage", "value": 5})
    assert dict(refused.value.fields)["transform.op"].startswith(
        "must be 'percent', 'absolute', 'set'"
    )


def test_the_largest_amount_is_accepted() -> None:
    transform = rule({**TENTH_OFF, "floor": 10**12}).transform
    assert transform.floor == 10**12


def test_numbers_of_any_notation_are_parsed_as_decimals() -> None:
    written = [
        rule({"op": "percent", "value": value}).transform.value for value in (0.1, "0.1", "0.10")
    ]
    assert written == [Decimal("0.1")] * 3


def test_field_aliases_of_a_transform_are_accepted() -> None:
    transform = rule({"op": "percent", "value": 5, "ceil": 900, "round": "nearest_99"}).transform
    assert (transform.ceiling, transform.round, transform.ending) == (900, Round.NEAREST, ".99")
    assert rule({"op": "percent", "value": 5, "ending": "0.95"}).transform.ending == ".95"


@every_case(
    ("options", "way"),
    [
        ({"ending": ".95"}, Round.NEAREST),
        ({"precision": 0}, Round.NEAREST),
        ({"precision": 1, "round": "up"}, Round.UP),
        ({"precision": 1, "round": "none"}, Round.NONE),
        ({"precision": None, "ending": None}, Round.NONE),
        ({}, Round.NONE),
    ],
)
def test_rounding_without_a_mode_goes_to_the_nearest(
    options: dict[str, object], way: Round
) -> None:
    assert rule({"op": "percent", "value": 5, **options}).transform.round is way


@every_case(
    ("given", "named"),
    [
        ({"op": "percent", "value": 5}, False),
        ({"op": "percent", "value": 5, "compareAt": None}, False),
        ({"op": "percent", "value": 5, "compareAt": "before"}, False),
        ({"op": "percent", "value": 5, "compareAt": 500}, True),
        ({"op": "multiply", "factor": 2, "floor": 0}, True),
        ({"op": "absolute", "value": 5}, True),
    ],
)
def test_a_rule_with_amounts_needs_a_currency(given: dict[str, object], *, named: bool) -> None:
    assert names_amounts(rule(given).transform) is named


@every_case("name", ["default", "a", "Shop_2.eu-west", "x" * 100])
def test_valid_project_names(name: str) -> None:
    check_project(name, "Invalid")


@every_case("name", ["", "x" * 101, "two words", "é", "a/b", "a\n", "a\0", "%"])
def test_invalid_project_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid$") as caught:
        check_project(name, "Invalid")
    [(field, why)] = caught.value.fields
    assert (field, why) == (
        "project",
        "must be 1 to 100 of the letters A to Z, digits, dots, dashes and underscores",
    )


@every_case("name", ["5m", "1h", "2026-05-04", "manual-1", "manual-12"])
def test_valid_check_names(name: str) -> None:
    validate_check_name(name)


@every_case("name", ["", "2h", "manual-0", "manual-", "2026-5-4", "5m\n", "manual-1\n", "manual-²"])
def test_unknown_check_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        validate_check_name(name)
    assert refused.value.fields == (
        ("check", "must be 5m, 1h, a day such as 2026-05-04, or manual-1 and so on"),
    )


HOUR = timedelta(hours=1)


def test_a_scheduled_start_has_one_event_key_per_time() -> None:
    first, again = (
        run_scheduled(3, "default", 7, NOW, NOW),
        run_scheduled(3, "default", 7, NOW, NOW + HOUR),
    )
    assert (first.key, first.name, first.correlation_id) == (
        "rule-schedule-3-1777888800000",
        "rule.scheduled.queued",
        "rule-run-7",
    )
    assert first.payload == {
        "ruleId": "3",
        "projectId": "default",
        "runId": "7",
        "scheduledFor": "2026-05-04T10:00:00.000Z",
    }
    assert again.key == first.key
    assert run_scheduled(3, "default", 8, NOW + HOUR, NOW).key != first.key


def test_missed_and_started_events_have_different_keys() -> None:
    event = schedule_missed(3, "default", NOW, NOW)
    assert (event.name, event.correlation_id) == ("rule.scheduled.missed", "rule-3")
    assert event.key != run_scheduled(3, "default", 7, NOW, NOW).key


def test_the_end_of_a_promotion_has_one_event_per_run() -> None:
    first, second = (promotion_ended(3, "default", run_id, NOW, NOW) for run_id in (7, 8))
    assert (first.key, second.key) == (
        "rule-run-7-end-1777888800000",
        "rule-run-8-end-1777888800000",
    )
    assert first.payload == {
        "ruleId": "3",
        "projectId": "default",
        "runId": "7",
        "endsAt": "2026-05-04T10:00:00.000Z",
    }


def test_a_policy_change_emits_an_event_with_the_policy() -> None:
    policy = parse_policy({"autoApply": True})
    first, second = (policy_changed("eu", policy, "user:1", NOW, change) for change in ("a", "b"))
    assert (first.name, first.correlation_id) == ("policy.changed", "policy-eu")
    assert first.key != second.key
    assert first.payload == {
        "projectId": "eu",
        "changedBy": "user:1",
        "policy": as_document(policy),
    }


def test_removing_a_policy_twice_emits_two_events() -> None:
    first, second = policy_removed("eu", "user:1", NOW), policy_removed("eu", "user:1", NOW + HOUR)
    assert first.key != second.key
    assert first.payload == {"projectId": "eu", "removedBy": "user:1"}
