"""Which run of a rule is in the way of another, and since when the rule rests."""

from datetime import timedelta

import pytest

from automation_pipeline.pricing.queries.runs import (
    active_run_of,
    blocking_reason,
    last_applied_at,
    open_runs_of,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import a_rule, a_run

ENDED = ("APPLIED", "PARTIAL", "FAILED", "ROLLED_BACK")


@pytest.mark.parametrize(
    ("status", "wish", "cancelled", "is_open", "is_active"),
    [
        ("PREVIEW", None, False, False, False),
        ("PREVIEW", "apply", False, True, False),
        ("PREVIEW", "apply", True, False, False),
        ("QUEUED", None, False, True, True),
        ("QUEUED", None, True, True, True),
        ("APPLYING", None, True, True, True),
        *((status, None, False, False, False) for status in ENDED),
        ("PARTIAL", "retry", False, True, False),
        ("APPLIED", "rollback", False, False, False),
    ],
)
def test_what_is_in_the_way_of_another_run(
    status: str,
    wish: str | None,
    *,
    cancelled: bool,
    is_open: bool,
    is_active: bool,
    database: Database,
    clock: StandingClock,
) -> None:
    rule, other = a_rule(database, clock), a_rule(database, clock)
    run_id = a_run(
        database,
        rule,
        status,
        clock.now(),
        wish=wish,
        cancel_requested_at=clock.now() if cancelled else None,
    )
    with database.reading() as session:
        found, active = (
            open_runs_of(session, [rule.id]).get(rule.id),
            active_run_of(session, rule.id),
        )
        both = open_runs_of(session, [rule.id, other.id])
        comes_first = blocking_reason(session, rule.id) is not None
        assert blocking_reason(session, other.id) is None
    assert (found and (found.id, found.status)) == ((run_id, status) if is_open else None)
    assert both == ({rule.id: found} if is_open else {})
    assert active == (run_id if is_active else None)
    assert comes_first is (is_active or wish == "retry")


def test_a_rule_rests_since_its_last_run_that_stands(
    database: Database, clock: StandingClock
) -> None:
    rule, now = a_rule(database, clock), clock.now()
    with database.reading() as session:
        assert last_applied_at(session, rule.id) is None
    for hours, status in ((5, "APPLIED"), (4, "PARTIAL"), (3, "FAILED"), (2, "ROLLED_BACK")):
        a_run(database, rule, status, now - timedelta(hours=hours))
    with database.reading() as session:
        assert last_applied_at(session, rule.id) == now - timedelta(hours=4)
