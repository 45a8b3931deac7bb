"""What is read to be shown."""

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.enrichment.queries.jobs import get_job
from automation_pipeline.enrichment.queries.requests import (
    find_companies,
    get_request,
    list_requests,
)
from automation_pipeline.enrichment.tables import FieldSourceRow
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import DOWN, INPI, RCS, SEARCH, SIREN
from automation_pipeline_tests.fiches.queries.mirror import statements


def test_a_job_tells_how_each_of_its_calls_ended(bench: Bench) -> None:
    bench.tell(rcs=DOWN)
    asked = bench.enriched()
    with bench.database.reading() as session:
        job = get_job(session, asked.job_id)
    told = [
        (one.source_api, one.status, one.http_status, one.error_code, one.attempts)
        for one in job.sources
    ]
    assert told == [
        (SEARCH, "SUCCESS", 200, None, 1), (INPI, "SUCCESS", 200, None, 1), (RCS, "FAILED", 503, "UPSTREAM_5XX", 3),
    ]  # fmt: skip
    assert as_document(job)["id"] == str(asked.job_id)


def test_a_job_that_is_not_there_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match="job 99"), bench.database.reading() as session:
        get_job(session, 99)


def test_a_company_that_is_not_known_is_none(bench: Bench) -> None:
    with bench.database.reading() as session:
        assert find_companies(session, [SIREN]) == {}


def test_a_field_that_a_user_has_set_says_so(bench: Bench) -> None:
    bench.enriched()
    bench.set(FieldSourceRow, source_api=None, locked_by_user="7")
    with bench.database.reading() as session:
        company = find_companies(session, [SIREN])[SIREN]
    assert company.field_sources["legal_name"] == "user:7"


def test_requests_are_listed_newest_first_a_page_at_a_time(bench: Bench) -> None:
    ids = [bench.request(siren, "t1").request_id for siren in (SIREN, "732829320", SIREN)]
    bench.request(SIREN, "t2")
    with bench.database.reading() as session:
        pages = [list_requests(session, "t1", limit=2, offset=offset) for offset in (0, 2)]
        of_one = list_requests(session, "t1", siren=SIREN, limit=10)
    assert [[one.id for one in page] for page in pages] == [[ids[2], ids[1]], [ids[0]]]
    assert [one.id for one in of_one] == [ids[2], ids[0]]


def test_a_request_costs_as_many_statements_whatever_is_known(bench: Bench) -> None:
    first = bench.request().request_id

    def cost() -> int:
        with statements(bench.database) as sent, bench.database.reading() as session:
            get_request(session, first, "main")
        return len(sent)

    few = cost()
    bench.work(bench.jobs()[0].id)
    assert cost() <= few + 1  # where each field comes from
