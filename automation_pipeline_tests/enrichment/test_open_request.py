"""Whoever looks sees what is known now, and what is stale or missing is refreshed meanwhile, once a
day."""

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import INPI, NOBODY, RCS, SEARCH, SIREN
from automation_pipeline_tests.fiches.queries.mirror import statements


def opened(bench: Bench) -> int:
    """How often looking led to a wish."""
    triggers = [event.payload["trigger"] for event in bench.events("Requested")]
    return triggers.count("REQUEST_OPENED")


def test_a_fresh_company_is_shown_and_nothing_is_asked_for(bench: Bench) -> None:
    asked = bench.enriched()
    with statements(bench.database) as sent:
        seen = bench.open(asked.request_id)
    assert seen.company is not None
    assert (seen.company.legal_name, seen.company.vat_number) == ("DANONE", "FR27552032534")
    assert seen.company.field_sources["legal_form"] == INPI
    assert [one.source_api for one in seen.source_retrievals] == [SEARCH, INPI, RCS]
    assert len(seen.documents) == 3
    assert (seen.enrichment_running, seen.job_id) == (False, None)
    assert opened(bench) == 0
    assert not [
        one for one in sent if one.startswith(("INSERT", "UPDATE")) or "payload_json" in one
    ]


def test_a_stale_company_is_shown_while_it_is_refreshed(bench: Bench) -> None:
    asked = bench.enriched()
    bench.pass_time(days=30)
    seen = bench.open(asked.request_id)
    assert seen.company is not None
    assert (seen.request.enrichment_status, seen.enrichment_running) == ("STALE", True)
    job = bench.work(seen.job_id)
    assert (job.trigger, job.status) == ("REQUEST_OPENED", "SUCCESS")
    assert bench.open(asked.request_id).request.enrichment_status == "SUCCESS"
    assert [event.payload["request_id"] for event in bench.events("Completed")] == [
        str(asked.request_id)
    ] * 2


def test_looking_leads_to_one_wish_a_day(bench: Bench) -> None:
    bench.tell(search=NOBODY)
    asked = bench.enriched()
    bench.pass_time(hours=1)
    bench.work(bench.open(asked.request_id).job_id)
    bench.pass_time(hours=1)
    assert bench.open(asked.request_id).enrichment_running is False
    assert opened(bench) == 1
    bench.pass_time(hours=12)
    assert bench.open(asked.request_id).enrichment_running is True
    assert opened(bench) == 2


def test_one_that_has_just_failed_is_left_alone(bench: Bench) -> None:
    bench.tell(search=NOBODY)
    asked = bench.enriched()
    assert bench.open(asked.request_id).job_id is None
    assert opened(bench) == 0


@pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
def test_while_a_job_is_open_nothing_more_is_asked_for(bench: Bench, status: str) -> None:
    asked = bench.request()
    if status == "RUNNING":
        bench.work_and_die(asked.job_id)
    seen = bench.open(asked.request_id)
    assert (seen.request.enrichment_status, seen.job_id) == (status, asked.job_id)
    assert opened(bench) == 0
    assert len(bench.jobs()) == 1


def test_a_request_of_another_tenant_does_not_exist(bench: Bench) -> None:
    asked = bench.request(SIREN, "t1")
    for request_id, tenant in ((asked.request_id, "t2"), (99, "t1")):
        with pytest.raises(NotFoundError, match=f"Request {request_id}"):
            bench.open(request_id, tenant)
