"""How long a snapshot is fresh, when it is done again by itself, and how long nobody may ask
again."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.enrichment.models import EnrichmentStatus
from automation_pipeline.enrichment.rules.evaluation import (
    Evaluation,
    cooldown_until,
    due_at,
    is_fresh,
    spread_freshness,
)
from automation_pipeline_tests.tables import every_case

NOW, DAYS = datetime(2026, 5, 4, tzinfo=UTC), timedelta(days=30)
MINUTES = timedelta(minutes=15)


def evaluation(status: str, *, again: bool) -> Evaluation:
    return Evaluation(
        status=EnrichmentStatus(status),
        success=1,
        required_failed=0,
        optional_failed=1,
        core_identity_present=True,
        error="X:-:TIMEOUT",
        is_worth_retrying=again,
    )


@every_case(
    ("age", "fresh"),
    [(timedelta(0), True), (DAYS - timedelta(seconds=1), True), (DAYS, False), (2 * DAYS, False)],
)
def test_exactly_as_old_as_that_is_stale(age: timedelta, fresh: bool) -> None:
    assert is_fresh(NOW - age, NOW, DAYS) is fresh


def test_what_is_not_there_is_not_fresh() -> None:
    assert not is_fresh(None, NOW, DAYS)


@every_case(
    ("status", "again", "retries", "hours"),
    [("PARTIAL", True, 0, 6), ("PARTIAL", True, 1, 24), ("FAILED", True, 2, 72)],
)
def test_what_may_pass_by_itself_is_tried_again_soon(
    status: str, again: bool, retries: int, hours: int
) -> None:
    assert due_at(
        "552032534", evaluation(status, again=again), retries, NOW, DAYS
    ) == NOW + timedelta(hours=hours)


@every_case(
    ("status", "again", "retries"),
    [("SUCCESS", True, 0), ("PARTIAL", False, 0), ("FAILED", True, 3)],
)
def test_all_else_waits_until_it_is_stale(status: str, again: bool, retries: int) -> None:
    due = due_at("552032534", evaluation(status, again=again), retries, NOW, DAYS)
    assert timedelta(days=30) <= due - NOW <= timedelta(days=33)


@given(st.from_regex(r"[0-9]{9}", fullmatch=True))
def test_a_refresh_is_due_within_a_tenth_after_the_freshness_ends(siren: str) -> None:
    assert DAYS <= spread_freshness(siren, DAYS) <= 1.1 * DAYS
    assert spread_freshness(siren, DAYS) == spread_freshness(siren, DAYS)


@every_case(
    ("status", "ago", "rests"),
    [
        ("SUCCESS", timedelta(minutes=14), True),
        ("SUCCESS", timedelta(minutes=15), False),
        ("PARTIAL", timedelta(0), True),
        ("FAILED", timedelta(0), False),
    ],
)
def test_nobody_asks_again_within_the_cooldown_unless_it_failed(
    status: str, ago: timedelta, rests: bool
) -> None:
    until = cooldown_until(EnrichmentStatus(status), NOW - ago, NOW, MINUTES)
    assert until == (NOW - ago + MINUTES if rests else None)


def test_whoever_asks_first_need_not_wait() -> None:
    assert cooldown_until(EnrichmentStatus.SUCCESS, None, NOW, MINUTES) is None
