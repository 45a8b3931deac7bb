"""Deleting audits and taking that back: always one is the latest, as long as there is one that is
not deleted."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from automation_pipeline.audits.reviews import set_audit_deleted
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.conftest import StandingClock


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    """Three audits of one fiche."""
    bench = Bench(database, clock)
    bench.sell("1900417")
    config_id = bench.configure(steps=1)
    for number in (1, 2, 3):
        bench.audit("1900417", config_id, f"audit-{number}")
    return bench


def latest(bench: Bench) -> list[int]:
    with bench.database.reading() as session:
        return list(session.scalars(select(AuditRow.id).where(AuditRow.is_latest)))


def test_the_one_before_takes_its_place_and_gives_it_back(bench: Bench) -> None:
    set_audit_deleted(3, deleted=True, database=bench.database)
    assert (latest(bench), bench.row("audit-3").deleted_at is None) == ([2], False)
    set_audit_deleted(3, deleted=False, database=bench.database)
    assert (latest(bench), bench.row("audit-3").deleted_at) == ([3], None)
    assert bench.notes()[-2:] == [
        "DELETE: the audit is deleted",
        "RESTORE: the audit is not deleted",
    ]


@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(moves=st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=8))
def test_the_newest_that_is_not_deleted_is_the_latest(
    bench: Bench, moves: list[tuple[bool, int]]
) -> None:
    for audit_id in (1, 2, 3):
        set_audit_deleted(audit_id, deleted=False, database=bench.database)
    left = {1, 2, 3}
    for deletes, audit_id in moves:
        set_audit_deleted(audit_id, deleted=deletes, database=bench.database)
        left = left - {audit_id} if deletes else left | {audit_id}
        assert latest(bench) == ([max(left)] if left else [])


def test_what_is_not_there_is_not_found(bench: Bench) -> None:
    for deleted in (True, False):
        with pytest.raises(NotFoundError, match="Audit not found"):
            set_audit_deleted(7, deleted=deleted, database=bench.database)
