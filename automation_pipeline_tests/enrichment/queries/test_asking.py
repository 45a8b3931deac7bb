"""When what is known answers a wish, and what is told of a request that was made before."""

from datetime import timedelta

import pytest

from automation_pipeline.enrichment.queries.requests import locked_enrichment
from automation_pipeline.enrichment.requests import is_answered, repeated_answer
from automation_pipeline.enrichment.tables import EnrichmentRow
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import NOBODY, SIREN

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("columns", "age", "answered"),
    [
        ({"status": "SUCCESS"}, 29 * DAY, True),
        ({"status": "PARTIAL"}, 29 * DAY, True),
        ({"status": "FAILED", "enrichment_error": "X:-:TIMEOUT"}, 29 * DAY, True),
        ({"status": "STALE"}, 29 * DAY, False),
        ({"status": "SUCCESS"}, 30 * DAY, False),
        ({"status": "FAILED", "enrichment_error": "X:-:TIMEOUT"}, 30 * DAY, False),
    ],
)
def test_a_fresh_snapshot_answers(
    bench: Bench, columns: dict[str, str], age: timedelta, answered: bool
) -> None:
    bench.enriched()
    bench.set(EnrichmentRow, **columns)
    bench.clock.pass_time(age)
    with bench.database.transaction() as session:
        row = locked_enrichment(session, SIREN, bench.clock.now())
        assert is_answered(session, row, bench.options, bench.clock.now()) is answered


@pytest.mark.parametrize(("age", "answered"), [(14 * MINUTE, True), (15 * MINUTE, False)])
def test_a_failure_without_a_snapshot_answers_for_a_while(
    bench: Bench, age: timedelta, answered: bool
) -> None:
    bench.tell(search=NOBODY)
    bench.enriched()
    bench.clock.pass_time(age)
    with bench.database.transaction() as session:
        row = locked_enrichment(session, SIREN, bench.clock.now())
        assert is_answered(session, row, bench.options, bench.clock.now()) is answered


def test_a_company_that_nobody_has_asked_about_is_not_answered(bench: Bench) -> None:
    with bench.database.transaction() as session:
        row = locked_enrichment(session, SIREN, bench.clock.now())
        assert not is_answered(session, row, bench.options, bench.clock.now())


def test_a_request_that_was_made_before_says_how_it_stands_now(bench: Bench) -> None:
    asked = bench.request()
    told = []
    for done in (False, True):
        if done:
            bench.work(asked.job_id)
        with bench.database.reading() as session:
            told.append(repeated_answer(session, bench.request_row(asked.request_id)))
    assert [(one.asked, one.status, one.job_id) for one in told] == [
        ("ATTACHED", "PENDING", asked.job_id), ("CACHE_HIT", "SUCCESS", None),
    ]  # fmt: skip
