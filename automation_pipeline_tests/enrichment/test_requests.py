"""Requests for companies: created, opened, refreshed."""

import logging
from datetime import timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.enrichment.models import IdentifierError
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import (
    DOWN,
    INPI,
    NOT_FOUND,
    RCS,
    SEARCH,
    SILENT,
    SIREN,
)
from automation_pipeline_tests.fiches.queries.mirror import statements

SIRET = "55203253400646"
MONTH = timedelta(days=30)


def test_a_request_for_a_new_company_creates_a_job_and_requests_a_worker(bench: Bench) -> None:
    answer = bench.request()
    job, row = bench.job(answer.job_id), bench.request_row(answer.request_id)
    assert (answer.asked, answer.status) == ("ENQUEUED", "PENDING")
    assert (job.state, job.trigger, job.attempt, job.company_siren) == (
        "PENDING",
        "REQUEST_CREATED",
        0,
        SIREN,
    )
    assert bench.run_requests() == [(f"{SIREN}:REQUEST_CREATED:2026-05-04", {"job_id": job.id})]
    assert bench.attached_requests(job.id) == [answer.request_id]
    assert (row.enrichment_status, row.created_by, row.siren_raw) == ("PENDING", "user:1", SIREN)
    [event] = bench.events()
    assert (event.payload["request_id"], event.payload["trigger"]) == (
        str(answer.request_id),
        "REQUEST_CREATED",
    )


def test_a_siret_is_enough(bench: Bench) -> None:
    answer = bench.request(None, siret="552 032 534 00646")
    assert answer.siren == SIREN
    assert bench.request_row(answer.request_id).siret == SIRET
    bench.work(answer.job_id)
    assert bench.sources[SEARCH].asked == [(SIREN, SIRET)]


def test_an_invalid_identifier_stores_nothing(bench: Bench) -> None:
    with pytest.raises(IdentifierError):
        bench.request("12345")
    assert (bench.requests(), bench.events(), bench.jobs()) == ([], [], [])


def test_a_wrong_check_digit_is_stored_as_a_warning(bench: Bench) -> None:
    answer = bench.request("123456789")
    assert len(answer.warnings) == 1
    assert bench.open(answer.request_id).request.warnings == answer.warnings


@pytest.mark.parametrize(("age", "calls"), [(MONTH - timedelta(seconds=1), 1), (MONTH, 2)])
def test_a_snapshot_younger_than_thirty_days_is_a_cache_hit(
    bench: Bench, age: timedelta, calls: int
) -> None:
    bench.enriched()
    bench.clock.pass_time(age)
    answer = bench.enriched(tenant="t2")
    assert answer.asked == ("CACHE_HIT" if calls == 1 else "ENQUEUED")
    assert answer.status == ("SUCCESS" if calls == 1 else "STALE")
    assert bench.calls()[SEARCH] == calls
    assert len(bench.events("Requested")) == 2
    assert len(bench.events("Started")) == len(bench.events("Completed")) == calls


def test_earlier_requests_become_stale_with_their_company(bench: Bench) -> None:
    first = bench.enriched()
    bench.pass_time(days=30)
    bench.request(tenant="t2")
    assert bench.moves()[-1] == ("SUCCESS", "STALE")
    assert {row.enrichment_status for row in bench.requests()} == {"STALE"}
    assert bench.open(first.request_id).company is not None


def test_a_partial_company_is_a_cache_hit(bench: Bench) -> None:
    bench.script(rcs=DOWN)
    bench.enriched()
    answer = bench.request(tenant="t2")
    assert (answer.asked, answer.status, answer.job_id) == ("CACHE_HIT", "PARTIAL", None)
    row = bench.request_row(answer.request_id)
    assert (row.enrichment_error, row.enrichment_last_run_at) == (
        "API_ENTREPRISE_RCS:503:UPSTREAM_5XX", bench.enrichment().last_run_at,
    )  # fmt: skip


def test_a_company_that_was_not_found_is_fetched_again_after_fifteen_minutes(
    bench: Bench,
) -> None:
    bench.script(search=NOT_FOUND)
    bench.enriched()
    bench.pass_time(minutes=14)
    assert bench.request().asked == "CACHE_HIT"
    bench.pass_time(minutes=1)
    assert bench.request().asked == "ENQUEUED"


def test_a_fresh_snapshot_is_a_cache_hit_after_a_failed_refresh(bench: Bench) -> None:
    answer = bench.enriched()
    bench.pass_time(days=5)
    bench.script(search=SILENT)
    bench.work(bench.refresh(answer.request_id).job_id)
    bench.pass_time(days=1)
    again = bench.request()
    assert (again.asked, again.status) == ("CACHE_HIT", "FAILED")


def test_force_refreshes_a_fresh_company(bench: Bench) -> None:
    bench.enriched()
    answer = bench.request(force=True)
    assert (answer.asked, answer.status) == ("ENQUEUED", "STALE")
    assert bench.work(answer.job_id).status == "SUCCESS"
    assert bench.moves()[2:] == [("SUCCESS", "STALE"), ("STALE", "RUNNING"), ("RUNNING", "SUCCESS")]


def test_a_repeated_idempotency_key_returns_the_same_request(bench: Bench) -> None:
    first, again = bench.request(key="k1"), bench.request(key="k1")
    assert (again.request_id, again.job_id) == (first.request_id, first.job_id)
    assert len(bench.events("Requested")) == len(bench.requests()) == 1
    bench.work(first.job_id)
    done = bench.request(key="k1")
    assert (done.job_id, done.status) == (None, "SUCCESS")


def test_idempotency_keys_are_scoped_to_the_tenant(bench: Bench) -> None:
    assert bench.request(key="k1").request_id != bench.request(tenant="t2", key="k1").request_id


def test_an_idempotency_key_used_for_another_company_is_rejected(bench: Bench) -> None:
    first = bench.request(key="k1")
    with pytest.raises(ConflictError, match=f"request {first.request_id} was for company {SIREN}"):
        bench.request("732829320", key="k1")
    assert len(bench.requests()) == 1


def test_the_outcome_of_a_request_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        bench.request()
        bench.request()
    assert [record.fields["outcome"] for record in caplog.records] == ["ENQUEUED", "ATTACHED"]


def jobs_from_opening(bench: Bench) -> int:
    """The number of jobs that opening a request has started."""
    triggers = [event.payload["trigger"] for event in bench.events("Requested")]
    return triggers.count("REQUEST_OPENED")


def test_opening_a_fresh_company_starts_no_job(bench: Bench) -> None:
    answer = bench.enriched()
    with statements(bench.database) as sent:
        seen = bench.open(answer.request_id)
    assert seen.company is not None
    assert (seen.company.legal_name, seen.company.vat_number) == ("DANONE", "FR27552032534")
    assert seen.company.field_sources["legal_form"] == INPI
    assert [one.source_api for one in seen.source_retrievals] == [SEARCH, INPI, RCS]
    assert len(seen.documents) == 3
    assert (seen.enrichment_running, seen.job_id) == (False, None)
    assert jobs_from_opening(bench) == 0
    assert not [
        one for one in sent if one.startswith(("INSERT", "UPDATE")) or "payload_json" in one
    ]


def test_opening_a_stale_company_shows_it_and_starts_a_refresh(bench: Bench) -> None:
    answer = bench.enriched()
    bench.pass_time(days=30)
    seen = bench.open(answer.request_id)
    assert seen.company is not None
    assert (seen.request.enrichment_status, seen.enrichment_running) == ("STALE", True)
    job = bench.work(seen.job_id)
    assert (job.trigger, job.status) == ("REQUEST_OPENED", "SUCCESS")
    assert bench.open(answer.request_id).request.enrichment_status == "SUCCESS"
    assert [event.payload["request_id"] for event in bench.events("Completed")] == [
        str(answer.request_id)
    ] * 2


def test_opening_a_request_refreshes_once_per_day(bench: Bench) -> None:
    bench.script(search=NOT_FOUND)
    answer = bench.enriched()
    bench.pass_time(hours=1)
    bench.work(bench.open(answer.request_id).job_id)
    bench.pass_time(hours=1)
    assert bench.open(answer.request_id).enrichment_running is False
    assert jobs_from_opening(bench) == 1
    bench.pass_time(hours=12)
    assert bench.open(answer.request_id).enrichment_running is True
    assert jobs_from_opening(bench) == 2


def test_opening_a_company_that_has_just_failed_starts_no_job(bench: Bench) -> None:
    bench.script(search=NOT_FOUND)
    answer = bench.enriched()
    assert bench.open(answer.request_id).job_id is None
    assert jobs_from_opening(bench) == 0


@pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
def test_opening_a_company_with_an_open_job_starts_no_other_job(bench: Bench, status: str) -> None:
    answer = bench.request()
    if status == "RUNNING":
        bench.work_and_die(answer.job_id)
    seen = bench.open(answer.request_id)
    assert (seen.request.enrichment_status, seen.job_id) == (status, answer.job_id)
    assert jobs_from_opening(bench) == 0
    assert len(bench.jobs()) == 1


def test_a_request_of_another_tenant_is_not_found(bench: Bench) -> None:
    answer = bench.request(SIREN, "t1")
    for request_id, tenant in ((answer.request_id, "t2"), (99, "t1")):
        with pytest.raises(NotFoundError, match=f"Request {request_id}"):
            bench.open(request_id, tenant)


def test_a_manual_refresh_marks_a_fresh_company_stale_first(bench: Bench) -> None:
    answer = bench.enriched()
    again = bench.refresh(answer.request_id)
    assert (again.asked, again.status) == ("ENQUEUED", "STALE")
    assert (
        bench.events("Requested")[-1].payload["trigger"]
        == bench.job(again.job_id).trigger
        == "MANUAL_REFRESH"
    )
    bench.work(again.job_id)
    assert bench.moves()[2:] == [("SUCCESS", "STALE"), ("STALE", "RUNNING"), ("RUNNING", "SUCCESS")]
    assert len(bench.events("Completed")) == 2


def test_a_manual_refresh_starts_a_partial_company_directly(bench: Bench) -> None:
    bench.script(rcs=DOWN)
    answer = bench.enriched()
    bench.script(rcs=())
    bench.work(bench.refresh(answer.request_id).job_id)
    assert bench.moves()[2] == ("PARTIAL", "RUNNING")


def test_a_manual_refresh_can_be_repeated_after_fifteen_minutes(bench: Bench) -> None:
    answer = bench.enriched()
    bench.work(bench.refresh(answer.request_id).job_id)
    events = len(bench.events())
    bench.pass_time(minutes=14, seconds=59)
    with pytest.raises(ConflictError, match=r"again from 2026-05-04T10:15:00\S* on"):
        bench.refresh(answer.request_id)
    assert len(bench.events()) == events
    bench.pass_time(seconds=1)
    assert bench.refresh(answer.request_id).asked == "ENQUEUED"


def test_the_cooldown_is_per_company_for_all_requesters(bench: Bench) -> None:
    first, other = bench.enriched(tenant="t1"), bench.request(tenant="t2")
    bench.work(bench.refresh(first.request_id, "t1").job_id)
    with pytest.raises(ConflictError):
        bench.refresh(other.request_id, "t2")


def test_a_failed_company_can_be_refreshed_immediately(bench: Bench) -> None:
    bench.script(search=NOT_FOUND)
    answer = bench.enriched()
    for _ in range(2):
        again = bench.refresh(answer.request_id)
        assert again.asked == "ENQUEUED"
        bench.work(again.job_id)
        bench.pass_time(seconds=1)
    assert bench.enrichment().status == "FAILED"


def test_a_manual_refresh_attaches_to_an_open_job(bench: Bench) -> None:
    answer = bench.enriched()
    first = bench.refresh(answer.request_id)
    again = bench.refresh(answer.request_id)
    assert (again.asked, again.job_id) == ("ATTACHED", first.job_id)
    assert bench.attached_requests(first.job_id) == [answer.request_id]


def test_the_request_of_another_tenant_cannot_be_refreshed(bench: Bench) -> None:
    answer = bench.enriched(tenant="t1")
    with pytest.raises(NotFoundError):
        bench.refresh(answer.request_id, "t2")
    assert bench.enrichment().last_manual_at is None
    assert bench.enrichment().due_at - bench.clock.now() >= timedelta(days=27)
