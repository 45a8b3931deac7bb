"""An emulated jump of the clock makes every stored time older, and changes nothing else."""

from datetime import timedelta

import pytest

from automation_pipeline.storage.claims import DatabaseClaims, LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline_tests.survival.clock import shift_clock


@pytest.mark.parametrize("seconds", [3600.0, -20.0])
def test_stored_times_become_older_by_the_jump_of_the_clock(
    database: Database, seconds: float
) -> None:
    lease = DatabaseClaims(database).take("key", "owner", 30)
    assert lease
    with database.reading() as session:
        before = session.get_one(LeaseRow, "key")
    shift_clock(database, seconds)
    with database.reading() as session:
        after = session.get_one(LeaseRow, "key")
        assert session.query(OutboxRow).count() == 0
    moved = before.expires_at - after.expires_at
    assert abs(moved - timedelta(seconds=seconds)) < timedelta(milliseconds=2)
    assert (after.token, after.owner) == (before.token, before.owner)
    assert DatabaseClaims(database).extend(lease, 30) == (seconds < 30)
