"""A company is asked about once a day (UTC) because somebody looks."""

from datetime import UTC, datetime

import pytest

from automation_pipeline.enrichment.queries.jobs import was_opened_today
from automation_pipeline.enrichment.tables import EnrichmentJobRow
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import SIREN


@pytest.mark.parametrize(
    ("trigger", "at", "asked"),
    [
        ("REQUEST_OPENED", datetime(2026, 5, 4, 0, 0, tzinfo=UTC), True),
        ("REQUEST_OPENED", datetime(2026, 5, 3, 23, 59, tzinfo=UTC), False),
        ("MANUAL_REFRESH", datetime(2026, 5, 4, 9, 0, tzinfo=UTC), False),
    ],
)
def test_the_day_begins_at_midnight(bench: Bench, trigger: str, at: datetime, asked: bool) -> None:
    bench.request()
    bench.set(EnrichmentJobRow, trigger=trigger, created_at=at)
    with bench.database.reading() as session:
        assert was_opened_today(session, SIREN, bench.clock.now()) is asked
        assert not was_opened_today(session, "732829320", bench.clock.now())
