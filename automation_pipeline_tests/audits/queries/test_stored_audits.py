"""Stored audits and batches, changed by several processes."""

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from automation_pipeline.audits.queries.audits import claim_audits, set_deleted, update_audit_row
from automation_pipeline.audits.requests import RequestedAudit, add_batch
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.harness import AuditHarness, stored_batch
from automation_pipeline_tests.audits.processes import end_items, start_audits
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.processes import run_in_processes


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    harness = AuditHarness(database, clock)
    harness.sell("1900417")
    return harness


def versions(harness: AuditHarness) -> list[tuple[int, bool]]:
    with harness.database.reading() as session:
        rows = session.execute(
            select(AuditRow.version, AuditRow.is_latest).order_by(AuditRow.version)
        )
        return list(rows.tuples())


def test_concurrently_started_audits_have_one_latest_and_distinct_versions(
    harness: AuditHarness, database_url: str
) -> None:
    config = harness.configure(steps=1)
    tracking_ids = [[f"{worker}-{number}" for number in range(5)] for worker in range(4)]
    run_in_processes(
        start_audits, *((database_url, "1900417", config, ids) for ids in tracking_ids)
    )
    assert versions(harness) == [(number, number == 20) for number in range(1, 21)]


def test_concurrent_repetitions_of_a_request_start_one_audit(
    harness: AuditHarness, database_url: str
) -> None:
    config = harness.configure(steps=1)
    started = run_in_processes(
        start_audits, *((database_url, "1900417", config, ["the same"]) for _ in range(4))
    )
    assert len({audit_id for ids in started for audit_id in ids}) == 1
    assert versions(harness) == [(1, True)]


def test_audits_of_other_configurations_and_fiches_do_not_count(harness: AuditHarness) -> None:
    harness.sell("1900418")
    one, other = harness.configure(steps=1), harness.configure(steps=1, name="Other")
    for fiche, config in (("1900417", one), ("1900417", other), ("1900418", one)):
        harness.audit(fiche, config, f"{fiche}-{config}")
    assert versions(harness) == [(1, True)] * 3


def delete(harness: AuditHarness, tracking_id: str, *, deleted: bool = True) -> None:
    with harness.database.transaction() as session:
        audit_id = session.scalars(
            select(AuditRow.id).where(AuditRow.tracking_id == tracking_id)
        ).one()
        set_deleted(session, audit_id, harness.clock.now() if deleted else None)


def test_the_previous_audit_is_the_latest_while_a_later_one_is_deleted(
    harness: AuditHarness,
) -> None:
    config = harness.configure(steps=1)
    for name in ("first", "second", "third"):
        harness.audit("1900417", config, name)
    delete(harness, "second")
    assert versions(harness) == [(1, False), (2, False), (3, True)]
    delete(harness, "third")
    assert versions(harness) == [(1, True), (2, False), (3, False)]
    delete(harness, "second", deleted=False)
    assert versions(harness) == [(1, False), (2, True), (3, False)]


def test_a_version_is_not_reused_after_a_deletion(harness: AuditHarness) -> None:
    config = harness.configure(steps=1)
    harness.audit("1900417", config, "first")
    delete(harness, "first")
    harness.audit("1900417", config, "second")
    assert versions(harness) == [(1, False), (2, True)]


def is_claimed(harness: AuditHarness, token: int) -> bool:
    with harness.database.transaction() as session:
        found = claim_audits(session, {1: token})[1]
        return found.fence == token and not found.summary.is_final


def test_an_unfinished_audit_is_claimed_only_with_a_higher_token(
    harness: AuditHarness,
) -> None:
    harness.audit("1900417", harness.configure(steps=1))
    assert not is_claimed(harness, 2**40)
    with harness.database.transaction() as session:
        update_audit_row(session, 1, {"status": "running", "fence": 7})
    assert [is_claimed(harness, token) for token in (6, 7, 8, 7)] == [False, True, True, False]
    assert harness.row().fence == 8


def test_deleting_an_unknown_audit_is_not_found(harness: AuditHarness) -> None:
    with (
        harness.database.transaction() as session,
        pytest.raises(NotFoundError, match="Audit not found"),
    ):
        set_deleted(session, 77, None)


def test_a_constraint_refuses_a_second_latest_audit(harness: AuditHarness) -> None:
    config = harness.configure(steps=1)
    harness.audit("1900417", config, "first")
    harness.audit("1900417", config, "second")
    with harness.database.reading() as session:
        before = session.scalars(select(AuditRow.id).where(AuditRow.is_latest.is_(False))).one()
    with pytest.raises(IntegrityError), harness.database.transaction() as session:
        update_audit_row(session, before, {"is_latest": True})


def test_batch_items_ended_concurrently_are_counted_once(
    database: Database, database_url: str, clock: FakeClock
) -> None:
    harness = AuditHarness(database, clock)
    config = harness.configure(steps=1)
    items = [RequestedAudit(f"19004{number:02}", f"item {number}") for number in range(20)]
    with database.transaction() as session:
        add_batch(session, "batch", config, items, clock.now())
    names = [item.tracking_id for item in items]
    completions = run_in_processes(
        end_items, *((database_url, ids) for ids in (names, names[::-1], names[7:], names[:12]))
    )
    assert counted(database) == (20, 0, True)
    assert sum(completions) == 1


def counted(database: Database) -> tuple[int, int, bool]:
    batch = stored_batch(database, "batch")
    return batch.succeeded, batch.failed, batch.is_complete
