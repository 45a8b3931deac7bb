"""Annotations of audits: changes, deletion and restoration."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from automation_pipeline.audits.models.requests import INVALID_CHANGE, AuditChange, AuditFilter
from automation_pipeline.audits.queries.documents import list_audits
from automation_pipeline.audits.reviews import set_audit_deleted, update_audit
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import parse
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.factories import make_open_run, make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock


def change(harness: AuditHarness, audit_id: int, given: Mapping[str, object]) -> dict[str, object]:
    changed = parse(AuditChange, given, INVALID_CHANGE)
    return update_audit(audit_id, changed, database=harness.database)


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    return AuditHarness(database, clock)


@pytest.fixture
def audit_id(harness: AuditHarness) -> int:
    harness.sell("1900417")
    return harness.audit("1900417", harness.configure(steps=1), trigger_source="api").audit_id


def listed(harness: AuditHarness) -> list[str]:
    with harness.database.reading() as session:
        return [str(row["id"]) for row in list_audits(session, AuditFilter())[0]]


def test_only_given_fields_change(harness: AuditHarness, audit_id: int, clock: FakeClock) -> None:
    run_id = make_open_run(harness.database, clock).run_id
    given = {
        "notes": "Called back",
        "automation_schedule_id": "1",
        "automation_run_id": run_id,
        "trigger_user_id": "anna",
    }
    document = update_audit(
        audit_id, parse(AuditChange, given, INVALID_CHANGE), database=harness.database
    )
    expected = {
        "notes": "Called back", "automationScheduleId": "1", "automationRunId": str(run_id),
        "triggerUserId": "anna", "triggerSource": "api", "niveau": "EXCELLENT",
    }  # fmt: skip
    assert expected.items() <= document.items()
    assert (
        harness.notes()[-1]
        == "UPDATE: automation_run_id, automation_schedule_id, notes, trigger_user_id"
    )
    assert change(harness, audit_id, {}) == document


@pytest.mark.parametrize(
    ("before", "given"),
    [
        ({}, {"automation_schedule_id": 2, "automation_run_id": 1}),
        ({"automation_schedule_id": 2}, {"automation_run_id": 1}),
        ({"automation_run_id": 1}, {"automation_schedule_id": 2}),
    ],
)
def test_a_run_of_another_schedule_is_refused(
    harness: AuditHarness,
    audit_id: int,
    clock: FakeClock,
    before: dict[str, object],
    given: dict[str, object],
) -> None:
    assert (
        make_open_run(harness.database, clock).run_id,
        make_schedule(harness.database, clock).id,
    ) == (
        1,
        2,
    )
    change(harness, audit_id, before)
    with pytest.raises(InvalidInputError) as refused:
        change(harness, audit_id, given)
    assert refused.value.fields == (("automation_run_id", "belongs to another schedule"),)
    result = change(harness, audit_id, {"automation_schedule_id": 1, "automation_run_id": 1})
    assert (result["automationScheduleId"], result["automationRunId"]) == ("1", "1")


def test_null_clears_a_field(harness: AuditHarness, audit_id: int, clock: FakeClock) -> None:
    run_id = make_open_run(harness.database, clock).run_id
    update_audit(
        audit_id,
        parse(AuditChange, {"notes": "x", "automation_run_id": run_id}, INVALID_CHANGE),
        database=harness.database,
    )
    given = dict.fromkeys(("notes", "automation_run_id", "trigger_source"))
    document = update_audit(
        audit_id, parse(AuditChange, given, INVALID_CHANGE), database=harness.database
    )
    assert (document["notes"], document["automationRunId"], document["triggerSource"]) == (
        None,
        None,
        None,
    )


def test_an_audit_is_deleted_and_restored(harness: AuditHarness, audit_id: int) -> None:
    later = harness.audit("1900417", 1, "audit-2").audit_id
    deleted = update_audit(
        later, parse(AuditChange, {"deleted": True}, INVALID_CHANGE), database=harness.database
    )
    assert deleted["deletedAt"] is not None
    assert listed(harness) == [str(audit_id)]
    assert (
        update_audit(
            later, parse(AuditChange, {"deleted": True}, INVALID_CHANGE), database=harness.database
        )["deletedAt"]
        == deleted["deletedAt"]
    )
    restored = update_audit(
        later,
        parse(AuditChange, {"deleted": False, "notes": "back"}, INVALID_CHANGE),
        database=harness.database,
    )
    assert (restored["deletedAt"], restored["isLatest"], restored["notes"]) == (None, True, "back")
    assert listed(harness) == [str(later)]


@pytest.mark.parametrize(
    ("given", "field", "fault"),
    [
        ({"notes": "x" * 20_001}, "notes", "must have at most 20000 characters"),
        ({"notes": "a\0b"}, "notes", "must not hold the character NUL"),
        ({"deleted": None}, "deleted", "must be true or false"),
        ({"deleted": "yes"}, "deleted", "must be true or false"),
        ({"trigger_source": "x" * 51}, "trigger_source", "must have at most 50 characters"),
        ({"trigger_user_id": "x" * 201}, "trigger_user_id", "must have at most 200 characters"),
        ({"automation_run_id": 77}, "automation_run_id", "does not exist"),
        ({"automation_schedule_id": "77"}, "automation_schedule_id", "does not exist"),
        (
            {"automation_run_id": True},
            "automation_run_id",
            "must be a whole number, or its digits as a text",
        ),
        ({"automation_run_id": 2**63}, "automation_run_id", f"must be at most {2**63 - 1}"),
        ({"niveau": "BON"}, "niveau", "is not a known field"),
    ],
)
def test_an_invalid_change_changes_nothing(
    harness: AuditHarness, audit_id: int, given: dict[str, object], field: str, fault: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        update_audit(
            audit_id,
            parse(AuditChange, {"trigger_source": "cli", **given}, INVALID_CHANGE),
            database=harness.database,
        )
    assert refused.value.fields == ((field, fault),)
    assert harness.row().trigger_source == "api"


def test_an_unknown_audit_is_not_found(harness: AuditHarness) -> None:
    with pytest.raises(NotFoundError, match="Audit not found"):
        update_audit(
            77, parse(AuditChange, {"notes": "x"}, INVALID_CHANGE), database=harness.database
        )


@pytest.fixture
def three_audits(database: Database, clock: FakeClock) -> AuditHarness:
    """Three audits of one fiche."""
    three_audits = AuditHarness(database, clock)
    three_audits.sell("1900417")
    config_id = three_audits.configure(steps=1)
    for number in (1, 2, 3):
        three_audits.audit("1900417", config_id, f"audit-{number}")
    return three_audits


def latest(three_audits: AuditHarness) -> list[int]:
    with three_audits.database.reading() as session:
        return list(session.scalars(select(AuditRow.id).where(AuditRow.is_latest)))


def test_the_previous_audit_is_the_latest_while_the_newest_is_deleted(
    three_audits: AuditHarness,
) -> None:
    set_audit_deleted(3, deleted=True, database=three_audits.database)
    assert (latest(three_audits), three_audits.row("audit-3").deleted_at is None) == ([2], False)
    set_audit_deleted(3, deleted=False, database=three_audits.database)
    assert (latest(three_audits), three_audits.row("audit-3").deleted_at) == ([3], None)
    assert three_audits.notes()[-2:] == [
        "DELETE: the audit is deleted",
        "RESTORE: the audit is not deleted",
    ]


@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(moves=st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=8))
def test_the_newest_that_is_not_deleted_is_the_latest(
    three_audits: AuditHarness, moves: list[tuple[bool, int]]
) -> None:
    for audit_id in (1, 2, 3):
        set_audit_deleted(audit_id, deleted=False, database=three_audits.database)
    left = {1, 2, 3}
    for deletes, audit_id in moves:
        set_audit_deleted(audit_id, deleted=deletes, database=three_audits.database)
        left = left - {audit_id} if deletes else left | {audit_id}
        assert latest(three_audits) == ([max(left)] if left else [])


def test_an_unknown_audit_cannot_be_deleted(three_audits: AuditHarness) -> None:
    for deleted in (True, False):
        with pytest.raises(NotFoundError, match="Audit not found"):
            set_audit_deleted(7, deleted=deleted, database=three_audits.database)
