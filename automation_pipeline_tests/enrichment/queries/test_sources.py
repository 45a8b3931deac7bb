"""The shared state of sources: daily quota, rests and login tokens."""

from datetime import timedelta

import pytest

from automation_pipeline.enrichment.models import SourceStatus
from automation_pipeline.enrichment.sources import (
    DatabaseLoginTokens,
    record_answer,
    record_failure,
    return_call,
    set_rest,
    source_statuses,
    take_call,
)
from automation_pipeline.enrichment.tables import SourceStatusRow
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness
from automation_pipeline_tests.enrichment.processes import take_calls
from automation_pipeline_tests.enrichment.scripted import INPI, RCS
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes

MINUTE = timedelta(minutes=1)


def status_of(harness: EnrichmentHarness) -> SourceStatus:
    with harness.database.reading() as session:
        return source_statuses(session)[INPI]


def test_a_source_without_calls_is_available(harness: EnrichmentHarness) -> None:
    assert status_of(harness) == SourceStatus(INPI)
    assert not status_of(harness).is_resting(harness.clock.now())
    assert status_of(harness).used_on(harness.clock.now().date()) == 0


@pytest.mark.parametrize(("max_per_day", "taken"), [(None, 3), (2, 2), (5, 3)])
def test_calls_beyond_the_daily_quota_are_refused(
    harness: EnrichmentHarness, max_per_day: int | None, taken: int
) -> None:
    with harness.database.transaction() as session:
        granted = [take_call(session, INPI, max_per_day, harness.clock.now()) for _ in range(3)]
    assert granted == [True] * taken + [False] * (3 - taken)
    assert status_of(harness).used_on(harness.clock.now().date()) == taken
    tomorrow = harness.advance(days=1)
    assert status_of(harness).used_on(tomorrow.date()) == 0
    with harness.database.transaction() as session:
        assert take_call(session, INPI, max_per_day, tomorrow)


def test_concurrent_processes_do_not_exceed_the_daily_quota(
    harness: EnrichmentHarness, database_url: str
) -> None:
    taken = run_in_processes(
        take_calls, *[(database_url, harness.clock.now().isoformat(), INPI, 4, 10)] * PROCESS_COUNT
    )
    assert sum(taken) == 10
    assert status_of(harness).quota_used == 10


def test_a_call_that_was_not_made_is_returned_to_the_quota_of_its_day(
    harness: EnrichmentHarness,
) -> None:
    now = harness.clock.now()
    with harness.database.transaction() as session:
        assert take_call(session, INPI, 1, now)
        return_call(session, INPI, now.date() - timedelta(days=1), now)
        assert not take_call(session, INPI, 1, now)
        for _ in range(2):
            return_call(session, INPI, now.date(), now)
        assert [take_call(session, INPI, 1, now) for _ in range(2)] == [True, False]


def test_consecutive_failures_are_counted_until_the_source_answers(
    harness: EnrichmentHarness,
) -> None:
    with harness.database.transaction() as session:
        assert [
            record_failure(session, INPI, harness.clock.now(), is_silent=True) for _ in range(3)
        ] == [1, 2, 3]
        record_failure(session, RCS, harness.clock.now(), is_silent=False)
        record_answer(session, INPI, harness.clock.now())
    assert status_of(harness).failures == 0
    with harness.database.transaction() as session:
        assert record_failure(session, INPI, harness.clock.now(), is_silent=True) == 1
        assert record_failure(session, RCS, harness.clock.now(), is_silent=False) == 2


@pytest.mark.parametrize(
    ("then", "left", "reason"), [(2, 10, "first"), (10, 10, "first"), (20, 20, "second")]
)
def test_the_longer_of_two_rests_applies(
    harness: EnrichmentHarness, then: int, left: int, reason: str
) -> None:
    now = harness.clock.now()
    with harness.database.transaction() as session:
        take_call(session, INPI, None, now)
        set_rest(session, INPI, 10 * MINUTE, "first", now)
        set_rest(session, INPI, then * MINUTE, "second", now)
    known = status_of(harness)
    assert (known.open_until, known.open_reason, known.quota_used) == (
        now + left * MINUTE,
        reason,
        1,
    )
    assert known.rest_seconds(now + MINUTE) == (left - 1) * 60
    assert known.is_resting(now + left * MINUTE - timedelta(seconds=0.5))
    assert not known.is_resting(now + left * MINUTE)


def test_a_failure_of_the_other_kind_restarts_the_count(harness: EnrichmentHarness) -> None:
    now = harness.clock.now()
    with harness.database.transaction() as session:
        kinds = (True, True, False, False, False, True)
        assert [record_failure(session, INPI, now, is_silent=kind) for kind in kinds] == [
            1,
            2,
            1,
            2,
            3,
            1,
        ]
    assert status_of(harness).failures == 1


HOUR = timedelta(hours=1)


def tokens(harness: EnrichmentHarness) -> DatabaseLoginTokens:
    return DatabaseLoginTokens(harness.database, harness.clock, INPI)


def test_a_stored_token_is_shared_until_it_expires(harness: EnrichmentHarness) -> None:
    assert tokens(harness).current() is None
    tokens(harness).store("jwt.s3cret", harness.clock.now() + HOUR)
    assert tokens(harness).current() == "jwt.s3cret"
    assert status_of(harness) == SourceStatus(INPI)
    assert DatabaseLoginTokens(harness.database, harness.clock, RCS).current() is None
    harness.advance(hours=1)
    assert tokens(harness).current() is None


def test_a_new_token_replaces_the_old_one(harness: EnrichmentHarness) -> None:
    for token in ("old", "new"):
        tokens(harness).store(token, harness.clock.now() + HOUR)
    assert tokens(harness).current() == "new"


def test_only_the_refused_token_is_deleted(harness: EnrichmentHarness) -> None:
    tokens(harness).store("new", harness.clock.now() + HOUR)
    tokens(harness).discard("old")
    assert tokens(harness).current() == "new"
    tokens(harness).discard("new")
    assert tokens(harness).current() is None


def test_tokens_and_the_status_of_the_source_do_not_affect_each_other(
    harness: EnrichmentHarness,
) -> None:
    now = harness.clock.now()
    with harness.database.transaction() as session:
        take_call(session, INPI, None, now)
        set_rest(session, INPI, HOUR, "It is busy.", now)
        before = source_statuses(session)[INPI]
    tokens(harness).store("jwt.s3cret", now + HOUR)
    tokens(harness).discard("jwt.s3cret")
    tokens(harness).store("jwt.s3cret", now + HOUR)
    with harness.database.transaction() as session:
        assert source_statuses(session)[INPI] == before
        take_call(session, INPI, None, now)
    assert tokens(harness).current() == "jwt.s3cret"


def test_the_status_of_sources_is_read_without_the_token(harness: EnrichmentHarness) -> None:
    tokens(harness).store("jwt.s3cret", harness.clock.now() + HOUR)
    with harness.database.reading() as session:
        row = session.get_one(SourceStatusRow, INPI)
        assert "token" not in vars(row)
        assert "s3cret" not in repr((vars(row), row, tokens(harness), source_statuses(session)))
