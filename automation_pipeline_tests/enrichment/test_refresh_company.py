"""A refresh by hand: by the only legal path, and not again at once."""

from datetime import timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import DOWN, NOBODY


def test_a_fresh_company_grows_stale_first(bench: Bench) -> None:
    asked = bench.enriched()
    again = bench.refresh(asked.request_id)
    assert (again.asked, again.status) == ("ENQUEUED", "STALE")
    assert (
        bench.events("Requested")[-1].payload["trigger"]
        == bench.job(again.job_id).trigger
        == "MANUAL_REFRESH"
    )
    bench.work(again.job_id)
    assert bench.moves()[2:] == [("SUCCESS", "STALE"), ("STALE", "RUNNING"), ("RUNNING", "SUCCESS")]
    assert len(bench.events("Completed")) == 2


def test_a_partial_one_is_begun_as_it_is(bench: Bench) -> None:
    bench.tell(rcs=DOWN)
    asked = bench.enriched()
    bench.tell(rcs=())
    bench.work(bench.refresh(asked.request_id).job_id)
    assert bench.moves()[2] == ("PARTIAL", "RUNNING")


def test_it_can_be_done_again_after_a_quarter_of_an_hour(bench: Bench) -> None:
    asked = bench.enriched()
    bench.work(bench.refresh(asked.request_id).job_id)
    events = len(bench.events())
    bench.pass_time(minutes=14, seconds=59)
    with pytest.raises(ConflictError, match=r"again from 2026-05-04T10:15:00\S* on"):
        bench.refresh(asked.request_id)
    assert len(bench.events()) == events
    bench.pass_time(seconds=1)
    assert bench.refresh(asked.request_id).asked == "ENQUEUED"


def test_the_quarter_of_an_hour_is_the_companys_whoever_asks(bench: Bench) -> None:
    first, other = bench.enriched(tenant="t1"), bench.request(tenant="t2")
    bench.work(bench.refresh(first.request_id, "t1").job_id)
    with pytest.raises(ConflictError):
        bench.refresh(other.request_id, "t2")


def test_one_that_failed_may_be_tried_again_at_once(bench: Bench) -> None:
    bench.tell(search=NOBODY)
    asked = bench.enriched()
    for _ in range(2):
        again = bench.refresh(asked.request_id)
        assert again.asked == "ENQUEUED"
        bench.work(again.job_id)
        bench.pass_time(seconds=1)
    assert bench.enrichment().status == "FAILED"


def test_where_a_job_is_open_the_request_waits_for_it(bench: Bench) -> None:
    asked = bench.enriched()
    first = bench.refresh(asked.request_id)
    again = bench.refresh(asked.request_id)
    assert (again.asked, again.job_id) == ("ATTACHED", first.job_id)
    assert bench.waiting_for(first.job_id) == [asked.request_id]


def test_a_request_of_another_tenant_does_not_exist(bench: Bench) -> None:
    asked = bench.enriched(tenant="t1")
    with pytest.raises(NotFoundError):
        bench.refresh(asked.request_id, "t2")
    assert bench.enrichment().last_manual_at is None
    assert bench.enrichment().due_at - bench.clock.now() >= timedelta(days=27)
