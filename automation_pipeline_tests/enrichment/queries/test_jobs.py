"""Jobs as they are asked for: at most one open a SIREN, and no number of a request twice."""

import pytest
from sqlalchemy.exc import IntegrityError

from automation_pipeline.core.logs import CORRELATION_TAG, correlated
from automation_pipeline.enrichment.models import EnrichmentTrigger, Identifiers
from automation_pipeline.enrichment.queries.jobs import add_jobs, attach, request_workers
from automation_pipeline.enrichment.queries.requests import open_job
from automation_pipeline.enrichment.tables import EnrichmentJobRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.enrichment.bench import Bench, asking
from automation_pipeline_tests.enrichment.scripted import SIREN


def test_a_second_open_job_is_refused_by_the_database(bench: Bench) -> None:
    bench.request()
    with pytest.raises(IntegrityError), bench.database.transaction() as session:
        add_jobs(
            session,
            [Identifiers(SIREN)],
            EnrichmentTrigger.STALE_SWEEP,
            asking(),
            bench.clock.now(),
        )
    assert len(bench.jobs()) == 1


def test_a_job_is_open_until_it_is_done(bench: Bench) -> None:
    asked = bench.request()
    with bench.database.reading() as session:
        assert open_job(session, SIREN).id == asked.job_id
    bench.work(asked.job_id)
    with bench.database.reading() as session:
        assert open_job(session, SIREN) is None


KEY = f"{SIREN}:REQUEST_CREATED:2026-05-04"


def test_every_worker_is_asked_for_under_a_key_of_its_own(bench: Bench) -> None:
    asked = bench.request()
    for _ in range(2):
        with bench.database.transaction() as session:
            request_workers(
                session, [session.get_one(EnrichmentJobRow, asked.job_id)], bench.clock.now()
            )
    [row, *_] = bench.rows_of(RunRequestRow)
    assert [key for key, _ in bench.asked_for()] == [KEY, f"{KEY}-retry-1", f"{KEY}-retry-2"]
    assert (row.job, row.tags["enrichment/siren"], row.tags["enrichment/trigger"]) == (
        "company_enrichment", SIREN, "REQUEST_CREATED",
    )  # fmt: skip
    assert row.tags["enrichment/job_id"] == str(asked.job_id)


def test_every_worker_is_asked_for_under_the_id_of_whoever_wanted_the_job(bench: Bench) -> None:
    with correlated("of-the-run"):
        asked = bench.request(tenant="t1")
        with bench.database.transaction() as session:
            request_workers(
                session, [session.get_one(EnrichmentJobRow, asked.job_id)], bench.clock.now()
            )
    assert [row.tags[CORRELATION_TAG] for row in bench.rows_of(RunRequestRow)] == ["of-t1", "of-t1"]


def test_a_request_waits_for_a_job_once(bench: Bench) -> None:
    asked = bench.request()
    with bench.database.transaction() as session:
        job, request = open_job(session, SIREN), bench.request_row(asked.request_id)
        attach(session, job, request, "of-main", bench.clock.now())
    assert bench.waiting_for(asked.job_id) == [asked.request_id]
