"""Tests of candidate fiches before their details: groupe, and existing latest audits."""

from datetime import date

import pytest

from automation_pipeline.audits.models.audits import AuditStatus
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.automation.models.schedules import FicheCandidate
from automation_pipeline.automation.queries.ledger import (
    fiches_named,
    fiches_of_days,
    is_audit_stored,
)
from automation_pipeline.fiches.models.fiches import SalesList
from automation_pipeline.fiches.queries.mirror import save_sales_list
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import summary
from automation_pipeline_tests.fiches.queries.mirror import statements

MONDAY, TUESDAY, SUNDAY = date(2026, 2, 2), date(2026, 2, 3), date(2026, 2, 1)


def sold(database: Database, clock: FakeClock, day: date, *fiche_ids: str) -> None:
    listed = SalesList(day, len(fiche_ids), tuple(summary(fiche_id) for fiche_id in fiche_ids))
    with database.transaction() as session:
        save_sales_list(session, listed, clock.now())


def test_fiches_of_several_days_are_read_in_one_query_ordered_by_day(
    database: Database, clock: FakeClock
) -> None:
    sold(database, clock, TUESDAY, "1", "4")
    sold(database, clock, MONDAY, "3", "2")
    sold(database, clock, SUNDAY, "5")
    with statements(database) as created, database.reading() as session:
        found = fiches_of_days(session, [MONDAY, TUESDAY])
    assert found == [FicheCandidate(fiche_id) for fiche_id in ("2", "3", "1", "4")]
    assert len([statement for statement in created if "fiche_cache" in statement]) == 1


def test_fiches_selected_by_id_keep_their_order_even_if_not_mirrored(
    database: Database, clock: FakeClock
) -> None:
    harness = AuditHarness(database, clock)
    harness.sell("2")
    with database.reading() as session:
        found = fiches_named(session, ["9", "2", "9"])
    assert found == [FicheCandidate("9"), FicheCandidate("2", "TEAM R1"), FicheCandidate("9")]


@pytest.mark.parametrize("status", AuditStatus)
@pytest.mark.parametrize("is_latest", [True, False])
def test_a_latest_audit_counts_unless_it_is_incomplete(
    status: AuditStatus, is_latest: bool, database: Database, clock: FakeClock
) -> None:
    harness = AuditHarness(database, clock)
    harness.sell("1")
    harness.sell("2")
    audit_id = harness.audit("1", harness.configure(1)).audit_id
    with database.transaction() as session:
        audit = session.get_one(AuditRow, audit_id)
        audit.status, audit.is_latest, audit.score_percentage = status, is_latest, None
    counts = is_latest and status is not AuditStatus.INCOMPLETE
    with database.reading() as session:
        assert [candidate.audited for candidate in fiches_named(session, ["1", "2"])] == [
            counts,
            False,
        ]


def test_a_stored_audit_is_found_by_its_tracking_id(database: Database, clock: FakeClock) -> None:
    harness = AuditHarness(database, clock)
    harness.sell("1")
    harness.audit("1", harness.configure(1), "audit-7")
    with database.reading() as session:
        assert [is_audit_stored(session, key) for key in ("audit-7", "audit-8")] == [True, False]
