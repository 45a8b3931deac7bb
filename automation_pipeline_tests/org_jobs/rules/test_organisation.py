"""Validation of organisations, hosts and servers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import parse
from automation_pipeline.org_jobs.models.organisations import (
    HostInput,
    OrganisationInput,
    OrgScope,
    ServerInput,
    changed_fields,
    differences,
    id_fault,
)
from automation_pipeline_tests.cases import every_case

LEAST = {"id": "acme", "name": "Acme"}


@every_case("org_id", ["a", "7", "acme", "acme-eu", "a-b-c", "2fast", "a" * 40])
def test_valid_organisation_ids(org_id: str) -> None:
    assert parse(OrganisationInput, LEAST | {"id": org_id}, "Invalid organisation").id == org_id


@every_case(
    "org_id",
    [
        "",
        "A",
        "acme ",
        " acme",
        "-a",
        "a-",
        "a--b",
        "a_b",
        "é",
        "a.b",
        "a/b",
        "a\n",
        "a\0",
        "a" * 41,
    ],
)
def test_invalid_organisation_ids(org_id: str) -> None:
    with pytest.raises(InvalidInputError, match="Invalid organisation") as refused:
        parse(OrganisationInput, LEAST | {"id": org_id}, "Invalid organisation")
    assert [field for field, _ in refused.value.fields] == ["id"]


def test_a_name_may_have_two_hundred_characters() -> None:
    created = parse(OrganisationInput, LEAST | {"name": f" {'x' * 200} "}, "Invalid organisation")
    assert created.name == "x" * 200


@every_case(
    ("scope", "org_id", "is_included"),
    [(None, "acme", True), ("acme", "acme", True), ("acme", "globex", False)],
)
def test_a_scope_includes_its_organisation(
    scope: str | None, org_id: str, *, is_included: bool
) -> None:
    assert OrgScope(scope).includes(org_id) is is_included


@given(st.text(alphabet="ab0-", max_size=45))
def test_hyphens_are_single_and_inside(text: str) -> None:
    is_id = (
        0 < len(text) <= 40
        and not text.startswith("-")
        and not text.endswith("-")
        and "--" not in text
    )
    assert (id_fault(text) is None) is is_id


@every_case(
    ("given", "field", "why"),
    [
        ({"name": " "}, "name", "must not be empty"),
        ({"name": "x" * 201}, "name", "must have at most 200 characters"),
        ({"name": "a\0"}, "name", "must not hold the character NUL"),
        ({"maxRunning": 0}, "maxRunning", "must be at least 1"),
        ({"maxRunning": 1001}, "maxRunning", "must be at most 1000"),
        ({"maxRunning": True}, "maxRunning", "must be a whole number"),
        ({"maintenanceUntil": "2026-05-04T10:00:00"}, "maintenanceUntil", "must have a time zone"),
        ({"maintenanceUntil": 1777888800}, "maintenanceUntil", "must be a date and time"),
        ({"suspendedAt": None}, "suspendedAt", "is not a known field"),
    ],
)
def test_the_error_names_the_invalid_field(given: dict[str, object], field: str, why: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse(OrganisationInput, LEAST | given, "Invalid organisation")
    [(named, faults)] = refused.value.fields
    assert (named, faults.startswith(why)) == (field, True)


def test_minimal_organisation() -> None:
    wanted = parse(OrganisationInput, {"id": "acme", "name": "  Acme  "}, "Invalid organisation")
    assert (wanted.name, wanted.max_running, wanted.maintenance_until) == ("Acme", 10, None)


def test_a_time_is_stored_in_utc() -> None:
    wanted = parse(
        HostInput, {"name": "h", "maintenanceUntil": "2026-05-04T12:00:00+02:00"}, "host"
    )
    assert wanted.maintenance_until == datetime(2026, 5, 4, 10, tzinfo=UTC)


@every_case(("host", "kept"), [("11", 11), (11, 11), (None, None)])
def test_a_host_is_named_by_its_number_or_its_digits(host: object, kept: int | None) -> None:
    assert parse(ServerInput, {"name": "s", "hostId": host}, "Invalid server").host_id == kept


@every_case("host", [0, -1, "0", "x", "1 ", True, 1.0, "9" * 19])
def test_invalid_host_id_is_refused(host: object) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse(ServerInput, {"name": "s", "hostId": host}, "Invalid server")
    assert [field for field, _ in refused.value.fields] == ["hostId"]


def test_a_patch_keeps_omitted_fields_and_null_clears() -> None:
    stored = parse(ServerInput, {"name": "s", "hostId": 3, "isEnabled": False}, "Invalid server")
    assert changed_fields(ServerInput, stored, {}, "server") == stored
    cleared = changed_fields(ServerInput, stored, {"hostId": None}, "server")
    assert (cleared.name, cleared.host_id, cleared.is_enabled) == ("s", None, False)


@every_case("field", ["name", "isEnabled"])
def test_null_is_refused_for_required_fields(field: str) -> None:
    stored = parse(ServerInput, {"name": "s"}, "Invalid server")
    with pytest.raises(InvalidInputError) as refused:
        changed_fields(ServerInput, stored, {field: None}, "server")
    assert refused.value.fields == ((field, "cannot be null: omit it to keep it"),)


DOCUMENTS = st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 2))


@given(DOCUMENTS, DOCUMENTS)
def test_differences_hold_only_changed_fields(
    before: dict[str, object], after: dict[str, object]
) -> None:
    was, became = differences(before, after)
    assert was.keys() == became.keys()
    assert all(was[name] == before.get(name) != after[name] == became[name] for name in became)
    assert all(before.get(name) == after[name] for name in after.keys() - became.keys())
