"""Requests for companies: create, open and refresh them."""

import logging
from datetime import timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.enrichment.models import IdentifierError
from automation_pipeline.enrichment.tables import AttachmentRow
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness, values_of
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


def test_a_request_for_a_new_company_creates_a_job_and_requests_a_worker(
    harness: EnrichmentHarness,
) -> None:
    answer = harness.request()
    job, row = harness.job(answer.job_id), harness.request_row(answer.request_id)
    assert (answer.outcome, answer.status) == ("ENQUEUED", "PENDING")
    assert (job.state, job.trigger, job.attempt, job.company_siren) == (
        "PENDING",
        "REQUEST_CREATED",
        0,
        SIREN,
    )
    assert harness.run_requests() == [(f"{SIREN}:REQUEST_CREATED:2026-05-04", {"job_id": job.id})]
    now = harness.clock.now()
    assert values_of(job) == {
        "key": f"{SIREN}:REQUEST_CREATED:2026-05-04",
        "request_key": f"{SIREN}:REQUEST_CREATED:2026-05-04",
        "company_siren": SIREN,
        "company_siret": None,
        "trigger": "REQUEST_CREATED",
        "state": "PENDING",
        "status": None,
        "attempt": 0,
        "priority": 5,
        "requested_by_tenant": "main",
        "correlation_id": "of-main",
        "lock_token": 0,
        "lock_owner": None,
        "heartbeat_at": None,
        "not_before": None,
        "put_offs": 0,
        "requests": 1,
        "requested_at": now,
        "started_at": None,
        "finished_at": None,
        "sources_success_count": 0,
        "required_failed_count": 0,
        "optional_failed_count": 0,
        "core_identity_present": None,
        "enrichment_error": None,
        "changes": None,
        "created_at": now,
    }
    [attachment] = harness.rows_of(AttachmentRow)
    assert values_of(attachment) == {
        "job_id": job.id,
        "request_id": answer.request_id,
        "tenant_id": "main",
        "correlation_id": "of-main",
        "attached_at": now,
    }
    assert values_of(row) == {
        "tenant_id": "main",
        "idempotency_key": None,
        "siren": SIREN,
        "siret": None,
        "siren_raw": SIREN,
        "siret_raw": None,
        "company_siren": SIREN,
        "warnings": None,
        "enrichment_status": "PENDING",
        "enrichment_last_run_at": None,
        "enrichment_error": None,
        "correlation_id": "of-main",
        "created_by": "user:1",
        "created_at": now,
        "updated_at": now,
    }
    assert values_of(harness.enrichment()) == {
        "siren": SIREN,
        "status": "PENDING",
        "running_job_id": None,
        "enrichment_error": None,
        "last_run_at": None,
        "due_at": None,
        "retries": 0,
        "last_manual_at": None,
        "created_at": now,
        "updated_at": now,
    }
    [event] = harness.events()
    assert (event.payload["request_id"], event.payload["trigger"]) == (
        str(answer.request_id),
        "REQUEST_CREATED",
    )


def test_a_siret_is_enough(harness: EnrichmentHarness) -> None:
    answer = harness.request(None, siret="552 032 534 00646")
    assert answer.siren == SIREN
    row = harness.request_row(answer.request_id)
    assert (row.siret, row.siren_raw, row.siret_raw) == (SIRET, None, "552 032 534 00646")
    assert harness.job(answer.job_id).company_siret == SIRET
    harness.work(answer.job_id)
    assert harness.sources[SEARCH].calls == [(SIREN, SIRET)]


def test_an_invalid_identifier_stores_nothing(harness: EnrichmentHarness) -> None:
    with pytest.raises(IdentifierError):
        harness.request("12345")
    assert (harness.requests(), harness.events(), harness.jobs()) == ([], [], [])


def test_a_wrong_check_digit_is_stored_as_a_warning(harness: EnrichmentHarness) -> None:
    answer = harness.request("123456789")
    assert len(answer.warnings) == 1
    assert harness.open(answer.request_id).request.warnings == answer.warnings


@pytest.mark.parametrize(("age", "calls"), [(MONTH - timedelta(seconds=1), 1), (MONTH, 2)])
def test_a_snapshot_younger_than_thirty_days_is_a_cache_hit(
    harness: EnrichmentHarness, age: timedelta, calls: int
) -> None:
    harness.enriched()
    harness.clock.advance(age)
    answer = harness.enriched(tenant="t2")
    assert answer.outcome == ("CACHE_HIT" if calls == 1 else "ENQUEUED")
    assert answer.status == ("SUCCESS" if calls == 1 else "STALE")
    assert harness.calls()[SEARCH] == calls
    assert len(harness.events("Requested")) == 2
    assert len(harness.events("Started")) == len(harness.events("Completed")) == calls


def test_earlier_requests_become_stale_with_their_company(harness: EnrichmentHarness) -> None:
    first = harness.enriched()
    harness.advance(days=30)
    harness.request(tenant="t2")
    assert values_of(harness.transitions()[-1]) == {
        "machine": "enrichment",
        "entity_id": SIREN,
        "from_state": "SUCCESS",
        "to_state": "STALE",
        "actor": "user:1",
        "reason": "The data has expired.",
        "at": harness.clock.now(),
    }
    assert {(row.enrichment_status, row.updated_at) for row in harness.requests()} == {
        ("STALE", harness.clock.now())
    }
    assert harness.open(first.request_id).company is not None


def test_a_partial_company_is_a_cache_hit(harness: EnrichmentHarness) -> None:
    harness.script(rcs=DOWN)
    harness.enriched()
    answer = harness.request(tenant="t2")
    assert (answer.outcome, answer.status, answer.job_id) == ("CACHE_HIT", "PARTIAL", None)
    row = harness.request_row(answer.request_id)
    assert (row.enrichment_error, row.enrichment_last_run_at) == (
        "API_ENTREPRISE_RCS:503:UPSTREAM_5XX", harness.enrichment().last_run_at,
    )  # fmt: skip


def test_a_company_that_was_not_found_is_fetched_again_after_fifteen_minutes(
    harness: EnrichmentHarness,
) -> None:
    harness.script(search=NOT_FOUND)
    harness.enriched()
    harness.advance(minutes=14)
    assert harness.request().outcome == "CACHE_HIT"
    harness.advance(minutes=1)
    assert harness.request().outcome == "ENQUEUED"


def test_a_fresh_snapshot_is_a_cache_hit_after_a_failed_refresh(harness: EnrichmentHarness) -> None:
    answer = harness.enriched()
    harness.advance(days=5)
    harness.script(search=SILENT)
    harness.work(harness.refresh(answer.request_id).job_id)
    harness.advance(days=1)
    again = harness.request()
    assert (again.outcome, again.status) == ("CACHE_HIT", "FAILED")


def test_a_company_that_failed_is_not_marked_stale_before_its_refresh(
    harness: EnrichmentHarness,
) -> None:
    answer = harness.enriched()
    harness.script(search=SILENT)
    harness.work(harness.refresh(answer.request_id).job_id)
    harness.advance(days=31)
    again = harness.request()
    assert (again.outcome, again.status) == ("ENQUEUED", "FAILED")
    assert harness.moves()[-1] == ("RUNNING", "FAILED")


def test_force_refreshes_a_fresh_company(harness: EnrichmentHarness) -> None:
    harness.enriched()
    answer = harness.request(force=True)
    assert (answer.outcome, answer.status) == ("ENQUEUED", "STALE")
    assert harness.work(answer.job_id).status == "SUCCESS"
    assert harness.moves()[2:] == [
        ("SUCCESS", "STALE"),
        ("STALE", "RUNNING"),
        ("RUNNING", "SUCCESS"),
    ]
    assert [(row.actor, row.reason) for row in harness.transitions()[2:]] == [
        ("user:1", "MANUAL"),
        ("worker", None),
        ("worker", None),
    ]


def test_a_repeated_idempotency_key_returns_the_same_request(harness: EnrichmentHarness) -> None:
    first, again = harness.request(key="k1"), harness.request(key="k1")
    assert (again.request_id, again.job_id) == (first.request_id, first.job_id)
    assert len(harness.events("Requested")) == len(harness.requests()) == 1
    harness.work(first.job_id)
    done = harness.request(key="k1")
    assert (done.job_id, done.status) == (None, "SUCCESS")


def test_idempotency_keys_are_scoped_to_the_tenant(harness: EnrichmentHarness) -> None:
    assert harness.request(key="k1").request_id != harness.request(tenant="t2", key="k1").request_id


def test_an_idempotency_key_used_for_another_company_is_rejected(
    harness: EnrichmentHarness,
) -> None:
    first = harness.request(key="k1")
    with pytest.raises(ConflictError, match=f"request {first.request_id} was for company {SIREN}"):
        harness.request("732829320", key="k1")
    assert len(harness.requests()) == 1


def test_the_outcome_of_a_request_is_logged(
    harness: EnrichmentHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        harness.request()
        harness.request()
    assert [record.fields["outcome"] for record in caplog.records] == ["ENQUEUED", "ATTACHED"]
    assert [record.fields["request_id"] for record in caplog.records] == ["1", "2"]
    assert {record.fields["job_id"] for record in caplog.records} == {"1"}
    assert {record.fields["event_type"] for record in caplog.records} == {
        "CompanyEnrichmentRequested"
    }


def jobs_from_opening(harness: EnrichmentHarness) -> int:
    """The number of jobs that opening a request has started."""
    triggers = [event.payload["trigger"] for event in harness.events("Requested")]
    return triggers.count("REQUEST_OPENED")


def test_opening_a_fresh_company_starts_no_job(harness: EnrichmentHarness) -> None:
    answer = harness.enriched()
    with statements(harness.database) as sent:
        seen = harness.open(answer.request_id)
    assert seen.company is not None
    assert (seen.company.legal_name, seen.company.vat_number) == ("DANONE", "FR27552032534")
    assert seen.company.field_sources["legal_form"] == INPI
    assert [one.source_api for one in seen.source_retrievals] == [SEARCH, INPI, RCS]
    assert len(seen.documents) == 3
    assert (seen.enrichment_running, seen.job_id) == (False, None)
    assert jobs_from_opening(harness) == 0
    assert not [
        one for one in sent if one.startswith(("INSERT", "UPDATE")) or "payload_json" in one
    ]


def test_opening_a_stale_company_shows_it_and_starts_a_refresh(harness: EnrichmentHarness) -> None:
    answer = harness.enriched()
    harness.advance(days=30)
    seen = harness.open(answer.request_id)
    assert seen.company is not None
    assert (seen.request.enrichment_status, seen.enrichment_running) == ("STALE", True)
    job = harness.work(seen.job_id)
    assert (job.trigger, job.status) == ("REQUEST_OPENED", "SUCCESS")
    assert harness.open(answer.request_id).request.enrichment_status == "SUCCESS"
    assert [event.payload["request_id"] for event in harness.events("Completed")] == [
        str(answer.request_id)
    ] * 2


def test_opening_a_request_refreshes_once_per_day(harness: EnrichmentHarness) -> None:
    harness.script(search=NOT_FOUND)
    answer = harness.enriched()
    harness.advance(hours=1)
    harness.work(harness.open(answer.request_id).job_id)
    harness.advance(hours=1)
    assert harness.open(answer.request_id).enrichment_running is False
    assert jobs_from_opening(harness) == 1
    harness.advance(hours=12)
    assert harness.open(answer.request_id).enrichment_running is True
    assert jobs_from_opening(harness) == 2


def test_opening_a_company_that_has_just_failed_starts_no_job(harness: EnrichmentHarness) -> None:
    harness.script(search=NOT_FOUND)
    answer = harness.enriched()
    assert harness.open(answer.request_id).job_id is None
    assert jobs_from_opening(harness) == 0


@pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
def test_opening_a_company_with_an_open_job_starts_no_other_job(
    harness: EnrichmentHarness, status: str
) -> None:
    answer = harness.request()
    if status == "RUNNING":
        harness.work_and_die(answer.job_id)
    seen = harness.open(answer.request_id)
    assert (seen.request.enrichment_status, seen.job_id) == (status, answer.job_id)
    assert jobs_from_opening(harness) == 0
    assert len(harness.jobs()) == 1


def test_a_request_of_another_tenant_is_not_found(harness: EnrichmentHarness) -> None:
    answer = harness.request(SIREN, "t1")
    for request_id, tenant in ((answer.request_id, "t2"), (99, "t1")):
        with pytest.raises(NotFoundError, match=f"Request {request_id}"):
            harness.open(request_id, tenant)


def test_a_manual_refresh_marks_a_fresh_company_stale_first(harness: EnrichmentHarness) -> None:
    answer = harness.enriched()
    again = harness.refresh(answer.request_id)
    assert (again.outcome, again.status) == ("ENQUEUED", "STALE")
    assert (
        harness.events("Requested")[-1].payload["trigger"]
        == harness.job(again.job_id).trigger
        == "MANUAL_REFRESH"
    )
    harness.work(again.job_id)
    assert harness.moves()[2:] == [
        ("SUCCESS", "STALE"),
        ("STALE", "RUNNING"),
        ("RUNNING", "SUCCESS"),
    ]
    assert len(harness.events("Completed")) == 2


def test_a_manual_refresh_starts_a_partial_company_directly(harness: EnrichmentHarness) -> None:
    harness.script(rcs=DOWN)
    answer = harness.enriched()
    harness.script(rcs=())
    harness.work(harness.refresh(answer.request_id).job_id)
    assert harness.moves()[2] == ("PARTIAL", "RUNNING")


def test_a_manual_refresh_can_be_repeated_after_fifteen_minutes(harness: EnrichmentHarness) -> None:
    answer = harness.enriched()
    harness.work(harness.refresh(answer.request_id).job_id)
    events = len(harness.events())
    harness.advance(minutes=14, seconds=59)
    with pytest.raises(ConflictError, match=r"again from 2026-05-04T10:15:00\S* on"):
        harness.refresh(answer.request_id)
    assert len(harness.events()) == events
    harness.advance(seconds=1)
    assert harness.refresh(answer.request_id).outcome == "ENQUEUED"


def test_the_cooldown_is_per_company_for_all_requesters(harness: EnrichmentHarness) -> None:
    first, other = harness.enriched(tenant="t1"), harness.request(tenant="t2")
    harness.work(harness.refresh(first.request_id, "t1").job_id)
    with pytest.raises(ConflictError):
        harness.refresh(other.request_id, "t2")


def test_a_failed_company_can_be_refreshed_immediately(harness: EnrichmentHarness) -> None:
    harness.script(search=NOT_FOUND)
    answer = harness.enriched()
    for _ in range(2):
        again = harness.refresh(answer.request_id)
        assert again.outcome == "ENQUEUED"
        harness.work(again.job_id)
        harness.advance(seconds=1)
    assert harness.enrichment().status == "FAILED"


def test_a_manual_refresh_attaches_to_an_open_job(harness: EnrichmentHarness) -> None:
    answer = harness.enriched()
    first = harness.refresh(answer.request_id)
    again = harness.refresh(answer.request_id)
    assert (again.outcome, again.job_id) == ("ATTACHED", first.job_id)
    assert harness.attached_requests(first.job_id) == [answer.request_id]


def test_the_request_of_another_tenant_cannot_be_refreshed(harness: EnrichmentHarness) -> None:
    answer = harness.enriched(tenant="t1")
    with pytest.raises(NotFoundError):
        harness.refresh(answer.request_id, "t2")
    assert harness.enrichment().last_manual_at is None
    assert harness.enrichment().due_at - harness.clock.now() >= timedelta(days=27)
