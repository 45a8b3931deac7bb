"""What becomes of a wish for a company: the answer that is there, the job that is open, or a new
one."""

import logging
from datetime import timedelta

import pytest

from automation_pipeline.core.errors import ConflictError
from automation_pipeline.enrichment.models import IdentifierError
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import DOWN, NOBODY, SEARCH, SILENT, SIREN

SIRET = "55203253400646"
MONTH = timedelta(days=30)


def test_a_new_company_gets_a_job_and_a_worker_is_asked_for(bench: Bench) -> None:
    asked = bench.request()
    job, row = bench.job(asked.job_id), bench.request_row(asked.request_id)
    assert (asked.asked, asked.status) == ("ENQUEUED", "PENDING")
    assert (job.state, job.trigger, job.attempt, job.company_siren) == (
        "PENDING",
        "REQUEST_CREATED",
        0,
        SIREN,
    )
    assert bench.asked_for() == [(f"{SIREN}:REQUEST_CREATED:2026-05-04", {"job_id": job.id})]
    assert bench.waiting_for(job.id) == [asked.request_id]
    assert (row.enrichment_status, row.created_by, row.siren_raw) == ("PENDING", "user:1", SIREN)
    [event] = bench.events()
    assert (event.payload["request_id"], event.payload["trigger"]) == (
        str(asked.request_id),
        "REQUEST_CREATED",
    )


def test_a_siret_is_enough(bench: Bench) -> None:
    asked = bench.request(None, siret="552 032 534 00646")
    assert asked.siren == SIREN
    assert bench.request_row(asked.request_id).siret == SIRET
    bench.work(asked.job_id)
    assert bench.sources[SEARCH].asked == [(SIREN, SIRET)]


def test_what_is_no_number_of_a_company_leaves_nothing_behind(bench: Bench) -> None:
    with pytest.raises(IdentifierError):
        bench.request("12345")
    assert (bench.requests(), bench.events(), bench.jobs()) == ([], [], [])


def test_a_wrong_check_digit_is_warned_of(bench: Bench) -> None:
    asked = bench.request("123456789")
    assert len(asked.warnings) == 1
    assert bench.open(asked.request_id).request.warnings == asked.warnings


@pytest.mark.parametrize(("age", "calls"), [(MONTH - timedelta(seconds=1), 1), (MONTH, 2)])
def test_younger_than_thirty_days_is_answered_at_once_and_exactly_thirty_is_not(
    bench: Bench, age: timedelta, calls: int
) -> None:
    bench.enriched()
    bench.clock.pass_time(age)
    asked = bench.enriched(tenant="t2")
    assert asked.asked == ("CACHE_HIT" if calls == 1 else "ENQUEUED")
    assert asked.status == ("SUCCESS" if calls == 1 else "STALE")
    assert bench.calls()[SEARCH] == calls
    assert len(bench.events("Requested")) == 2
    assert len(bench.events("Started")) == len(bench.events("Completed")) == calls


def test_what_was_asked_for_before_is_stale_with_its_company(bench: Bench) -> None:
    first = bench.enriched()
    bench.pass_time(days=30)
    bench.request(tenant="t2")
    assert bench.moves()[-1] == ("SUCCESS", "STALE")
    assert {row.enrichment_status for row in bench.requests()} == {"STALE"}
    assert bench.open(first.request_id).company is not None


def test_a_company_that_lacks_something_is_an_answer_too(bench: Bench) -> None:
    bench.tell(rcs=DOWN)
    bench.enriched()
    asked = bench.request(tenant="t2")
    assert (asked.asked, asked.status, asked.job_id) == ("CACHE_HIT", "PARTIAL", None)
    row = bench.request_row(asked.request_id)
    assert (row.enrichment_error, row.enrichment_last_run_at) == (
        "API_ENTREPRISE_RCS:503:UPSTREAM_5XX", bench.enrichment().last_run_at,
    )  # fmt: skip


def test_a_company_that_was_not_found_is_asked_for_again_after_a_quarter_of_an_hour(
    bench: Bench,
) -> None:
    bench.tell(search=NOBODY)
    bench.enriched()
    bench.pass_time(minutes=14)
    assert bench.request().asked == "CACHE_HIT"
    bench.pass_time(minutes=1)
    assert bench.request().asked == "ENQUEUED"


def test_a_fresh_snapshot_is_an_answer_though_a_refresh_of_it_failed(bench: Bench) -> None:
    asked = bench.enriched()
    bench.pass_time(days=5)
    bench.tell(search=SILENT)
    bench.work(bench.refresh(asked.request_id).job_id)
    bench.pass_time(days=1)
    again = bench.request()
    assert (again.asked, again.status) == ("CACHE_HIT", "FAILED")


def test_with_force_what_is_fresh_is_asked_for_anew(bench: Bench) -> None:
    bench.enriched()
    asked = bench.request(force=True)
    assert (asked.asked, asked.status) == ("ENQUEUED", "STALE")
    assert bench.work(asked.job_id).status == "SUCCESS"
    assert bench.moves()[2:] == [("SUCCESS", "STALE"), ("STALE", "RUNNING"), ("RUNNING", "SUCCESS")]


def test_the_same_key_again_is_the_same_request(bench: Bench) -> None:
    first, again = bench.request(key="k1"), bench.request(key="k1")
    assert (again.request_id, again.job_id) == (first.request_id, first.job_id)
    assert len(bench.events("Requested")) == len(bench.requests()) == 1
    bench.work(first.job_id)
    done = bench.request(key="k1")
    assert (done.job_id, done.status) == (None, "SUCCESS")


def test_a_key_is_its_tenants_own(bench: Bench) -> None:
    assert bench.request(key="k1").request_id != bench.request(tenant="t2", key="k1").request_id


def test_the_same_key_for_another_company_is_refused(bench: Bench) -> None:
    first = bench.request(key="k1")
    with pytest.raises(ConflictError, match=f"request {first.request_id} was for company {SIREN}"):
        bench.request("732829320", key="k1")
    assert len(bench.requests()) == 1


def test_what_comes_of_a_wish_is_in_the_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        bench.request()
        bench.request()
    assert [record.fields["outcome"] for record in caplog.records] == ["ENQUEUED", "ATTACHED"]
