"""The end of a job: all of it is kept, or nothing."""

import pytest

from automation_pipeline.enrichment.models import SourceApi, SourceError
from automation_pipeline.enrichment.queries.jobs import known_of
from automation_pipeline.enrichment.tables import CompanyDocumentRow, FieldSourceRow, RetrievalRow
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import (
    DOWN,
    INPI,
    RCS,
    SEARCH,
    SILENT,
    SIREN,
    UNKNOWN,
    says,
)


def test_nothing_of_an_end_that_is_not_kept_can_be_seen(bench: Bench) -> None:
    asked = bench.request()
    bench.work_and_die(asked.job_id, None)
    assert (bench.company(), bench.events("Completed"), bench.rows_of(CompanyDocumentRow)) == (
        None,
        [],
        [],
    )
    assert bench.request_row(asked.request_id).enrichment_status == "RUNNING"
    assert bench.job(asked.job_id).finished_at is None


def test_what_is_known_says_where_each_field_comes_from(bench: Bench) -> None:
    with bench.database.reading() as session:
        assert known_of(session, SIREN).snapshot is None
    bench.enriched()
    bench.set(FieldSourceRow, locked_by_user="user:7")
    with bench.database.reading() as session:
        known = known_of(session, SIREN)
    assert known.snapshot is not None
    assert known.snapshot.values.legal_name == "DANONE"
    assert {
        known.snapshot.sources[field] for field in ("legal_name", "legal_form", "rcs_city")
    } == {SEARCH, INPI, RCS}
    assert known.locked == set(known.snapshot.sources)


def test_a_company_that_may_not_be_shown_whole_is_marked(bench: Bench) -> None:
    bench.tell(search=says(SEARCH, brand_name=None, is_masked=True))
    bench.enriched()
    company = bench.company()
    assert company is not None
    assert company.is_masked


def test_the_counts_of_a_job_are_kept_with_it(bench: Bench) -> None:
    bench.tell(search=SILENT)
    asked = bench.enriched()
    job = bench.job(asked.job_id)
    assert (job.sources_success_count, job.required_failed_count, job.optional_failed_count) == (
        2,
        1,
        0,
    )
    assert (job.core_identity_present, job.enrichment_error) == (
        False,
        "API_RECHERCHE_ENTREPRISES:-:TIMEOUT",
    )
    assert job.finished_at == bench.enrichment().last_run_at == bench.clock.now()


def test_requests_of_a_process_whose_clock_is_ahead_are_told_too(bench: Bench) -> None:
    asked = bench.request()
    bench.set_request(asked.request_id, created_at=bench.clock.now().replace(minute=5))
    bench.work(asked.job_id)
    assert bench.request_row(asked.request_id).enrichment_status == "SUCCESS"


@pytest.mark.parametrize(
    ("inpi", "form", "source"), [(DOWN, "5510", INPI), (UNKNOWN, "5599", SEARCH)]
)
def test_a_better_source_that_fails_leaves_what_it_has_said_and_when(
    bench: Bench, inpi: SourceError, form: str, source: SourceApi
) -> None:
    bench.enriched()
    began = bench.clock.now()
    bench.pass_time(days=30)
    bench.tell(search=says(SEARCH, legal_form="5599"), inpi=inpi)
    bench.enriched()
    company = bench.company()
    assert company is not None
    assert company.legal_form == form
    [row] = [one for one in bench.rows_of(FieldSourceRow) if one.field == "legal_form"]
    assert (row.source_api, row.fetched_at == began) == (source, source == INPI)
    assert (bench.jobs()[-1].changes is None) is (source == INPI)


def test_what_was_heard_before_a_job_is_given_up_is_counted_and_kept(bench: Bench) -> None:
    bench.tell(inpi=DOWN)
    asked = bench.request()
    for _ in range(3):
        bench.work_and_die(asked.job_id, RCS)
        bench.pass_time(seconds=120)
    bench.work(asked.job_id)
    job = bench.job(asked.job_id)
    assert (job.status, job.sources_success_count, job.required_failed_count, job.optional_failed_count) == (
        "FAILED", 1, 0, 1,
    )  # fmt: skip
    assert (job.core_identity_present, job.enrichment_error) == (
        False,
        "INPI_RNE:503:UPSTREAM_5XX|-:-:INTERNAL_ERROR",
    )
    assert [row.source_api for row in bench.rows_of(CompanyDocumentRow)] == [SEARCH]
    told = {
        row.source_api: (row.last_status, row.last_error) for row in bench.rows_of(RetrievalRow)
    }
    assert told == {SEARCH: ("SUCCESS", None), INPI: ("FAILED", "UPSTREAM_5XX")}
    assert bench.company() is None
