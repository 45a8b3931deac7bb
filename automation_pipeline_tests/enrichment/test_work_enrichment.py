"""Work on a job, from its claim to its end. The first tests are the test vectors of the contract, in order."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.core.logs import configure_logs, correlated, correlation_id
from automation_pipeline.enrichment import models
from automation_pipeline.enrichment.models import FIELDS, EnrichmentAnswer, SourceError
from automation_pipeline.enrichment.queries.requests import warnings_of
from automation_pipeline.enrichment.sources import set_rest
from automation_pipeline.enrichment.tables import CompanyDocumentRow, FieldSourceRow, RetrievalRow
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness, values_of
from automation_pipeline_tests.enrichment.scripted import (
    BUSY,
    DOWN,
    INPI,
    NOT_FOUND,
    RCS,
    SEARCH,
    SECRET,
    SILENT,
    SIREN,
    UNKNOWN,
    source_error,
    source_record,
)

COUNTS = ("sources_success_count", "sources_failed_count", "required_sources_failed_count",
          "optional_sources_failed_count")  # fmt: skip


CONTRACT_FIELDS = {
    "timestamp", "level", "correlation_id", "tenant_id", "request_id", "job_id", "company_siren", "source_api",
    "event_type", "http_status", "error_code", "error_message", "duration_ms",
}  # fmt: skip


def counts(harness: EnrichmentHarness) -> tuple[object, ...]:
    return tuple(harness.events("Completed")[-1].payload[name] for name in COUNTS)


def test_a_company_known_to_all_three_sources_is_a_success(harness: EnrichmentHarness) -> None:
    answer = harness.request()
    job = harness.work(answer.job_id)
    company, row = harness.company(), harness.enrichment()
    assert (job.state, job.status, job.attempt) == ("DONE", "SUCCESS", 1)
    assert company is not None
    assert (company.legal_name, company.legal_form, company.rcs_city) == ("DANONE", "5510", "PARIS")
    now = harness.clock.now()
    assert (company.is_masked, company.updated_at) == (False, now)
    assert (row.status, row.enrichment_error, row.running_job_id) == ("SUCCESS", None, None)
    assert (row.last_run_at, row.retries, row.last_manual_at, row.updated_at) == (now, 0, None, now)
    stored_job = values_of(harness.job(answer.job_id), without=("id", "due_at"))
    assert stored_job | {"lock_token": 1, "lock_owner": "worker-1"} == stored_job
    assert (job.started_at, job.heartbeat_at, job.finished_at, job.not_before) == (
        now,
        now,
        now,
        None,
    )
    assert job.changes == {
        name: {"before": None, "after": getattr(company, name)}
        for name in FIELDS
        if getattr(company, name) is not None
    }
    # PostgreSQL inserts the rows of one statement in the order of their keys.
    assert {
        row.field: values_of(row, without=("id", "value_hash"))
        for row in harness.rows_of(FieldSourceRow)
    } == {
        name: {
            "company_siren": SIREN,
            "field": name,
            "source_api": source,
            "fetched_at": now,
            "locked_by_user": None,
        }
        for name, source in (
            ("siret", SEARCH),
            ("legal_name", SEARCH),
            ("legal_form", INPI),
            ("city", SEARCH),
            ("country_code", INPI),
            ("naf_code", SEARCH),
            ("rcs_city", RCS),
            ("registry_name", RCS),
        )
    }
    assert {
        row.doc_type: values_of(row, without=("id", "checksum", "payload_json"))
        for row in harness.rows_of(CompanyDocumentRow)
    } == {
        kind: {"company_siren": SIREN, "doc_type": kind, "source_api": source, "retrieved_at": now}
        for kind, source in (
            ("ENTERPRISE_SEARCH", SEARCH),
            ("RNE_FORMALITY", INPI),
            ("RCS_EXTRACT", RCS),
        )
    }
    assert {row.source_api: values_of(row) for row in harness.rows_of(RetrievalRow)} == {
        source: {
            "company_siren": SIREN,
            "source_api": source,
            "last_retrieved_at": now,
            "last_status": "SUCCESS",
            "last_http_status": 200,
            "last_error": None,
        }
        for source in (SEARCH, INPI, RCS)
    }
    assert harness.moves() == [("PENDING", "RUNNING"), ("RUNNING", "SUCCESS")]
    assert harness.event_names() == [
        "Requested",
        "Started",
        "SourceFetched",
        "SourceFetched",
        "SourceFetched",
        "Completed",
    ]
    assert [event.payload["source_api"] for event in harness.events("SourceFetched")] == [
        SEARCH,
        INPI,
        RCS,
    ]
    assert counts(harness) == (3, 0, 0, 0)
    request = harness.request_row(answer.request_id)
    assert (
        request.enrichment_status,
        request.enrichment_last_run_at,
        request.enrichment_error,
    ) == (
        "SUCCESS",
        now,
        None,
    )
    assert harness.claim_owner() is None


def test_an_optional_source_rate_limited_three_times_gives_partial(
    harness: EnrichmentHarness, waits: list[float]
) -> None:
    harness.script(rcs=BUSY)
    harness.enriched()
    row = harness.enrichment()
    assert (row.status, row.enrichment_error) == ("PARTIAL", "API_ENTREPRISE_RCS:429:RATE_LIMIT")
    assert counts(harness) == (2, 1, 0, 1)
    assert harness.calls()[RCS] == 3
    assert waits == [2.0, 2.0]
    assert row.due_at == harness.clock.now() + timedelta(hours=6)


def test_not_found_in_the_required_source_ends_the_job(harness: EnrichmentHarness) -> None:
    harness.script(search=NOT_FOUND)
    harness.enriched()
    row = harness.enrichment()
    assert (row.status, row.enrichment_error) == (
        "FAILED",
        "API_RECHERCHE_ENTREPRISES:200:NOT_FOUND",
    )
    assert counts(harness) == (0, 1, 1, 0)
    assert harness.calls() == {SEARCH: 1, INPI: 0, RCS: 0}
    assert harness.company() is None
    assert harness.events("Completed")[0].payload["core_identity_present"] is False


def test_a_timeout_of_the_required_source_keeps_the_old_snapshot(
    harness: EnrichmentHarness,
) -> None:
    harness.enriched()
    before = harness.company()
    harness.advance(days=31)
    harness.script(search=SILENT, inpi=source_record(INPI, legal_name="ANOTHER", city="LYON"))
    harness.enriched()
    after, row = harness.company(), harness.enrichment()
    assert harness.calls()[SEARCH] == 1 + 3
    assert (row.status, row.enrichment_error) == ("FAILED", "API_RECHERCHE_ENTREPRISES:-:TIMEOUT")
    assert before is not None
    assert after is not None
    assert (after.legal_name, after.city, after.updated_at) == (
        "DANONE",
        "PARIS",
        before.updated_at,
    )
    assert harness.moves()[-2:] == [("STALE", "RUNNING"), ("RUNNING", "FAILED")]


def test_two_tenants_requesting_the_same_company_share_a_job(harness: EnrichmentHarness) -> None:
    one, other = harness.request(tenant="t1"), harness.request(tenant="t2")
    assert (one.outcome, other.outcome, one.job_id) == ("ENQUEUED", "ATTACHED", other.job_id)
    harness.work(one.job_id)
    [started], completed = harness.events("Started"), harness.events("Completed")
    assert (started.tenant_id, started.correlation_id) == ("t1", "of-t1")
    assert {event.tenant_id for event in harness.events("SourceFetched")} == {"t1"}
    assert [(each.tenant_id, each.correlation_id) for each in completed] == [
        ("t1", "of-t1"),
        ("t2", "of-t2"),
    ]
    assert {row.enrichment_status for row in harness.requests()} == {"SUCCESS"}


def test_a_request_during_a_running_job_attaches_to_it(harness: EnrichmentHarness) -> None:
    answer = harness.request(tenant="t1")
    harness.script(inpi=[lambda: harness.request(tenant="t2")])
    harness.work(answer.job_id)
    assert len(harness.attached_requests(answer.job_id)) == len(harness.events("Completed")) == 2
    assert {row.enrichment_status for row in harness.requests()} == {"SUCCESS"}


def test_a_killed_worker_is_replaced_after_its_lease_expires(harness: EnrichmentHarness) -> None:
    answer = harness.request()
    harness.take_requests()
    harness.script(inpi=[lambda: harness.advance(seconds=60)])
    harness.work_and_die(answer.job_id, RCS)
    harness.advance(seconds=59)
    assert harness.sweep().replaced_workers == 0
    assert harness.work(answer.job_id).attempt == 1
    harness.advance(seconds=1)
    assert harness.sweep().replaced_workers == 1
    assert harness.run_requests()[-1] == (
        f"{SIREN}:REQUEST_CREATED:2026-05-04-retry-1",
        {"job_id": answer.job_id},
    )
    job = harness.work(answer.job_id)
    assert (job.attempt, job.status) == (2, "SUCCESS")
    assert harness.calls() == {SEARCH: 1, INPI: 1, RCS: 2}
    assert [event.payload["attempt"] for event in harness.events("Started")] == [1, 2]
    assert len(harness.events("SourceFetched")) == 3
    assert len(harness.events("Completed")) == 1


def test_a_source_without_the_company_is_not_called_again_by_the_next_worker(
    harness: EnrichmentHarness,
) -> None:
    answer = harness.request()
    harness.script(search=NOT_FOUND)
    harness.work_and_die(answer.job_id, None)
    harness.advance(seconds=120)
    assert harness.work(answer.job_id).status == "FAILED"
    assert harness.calls() == {SEARCH: 1, INPI: 0, RCS: 0}


def test_a_job_that_loses_three_workers_fails(harness: EnrichmentHarness) -> None:
    harness.enriched()
    harness.advance(days=30)
    answer = harness.request()
    for _ in range(3):
        harness.work_and_die(answer.job_id)
        harness.advance(seconds=120)
    job, row = harness.work(answer.job_id), harness.enrichment()
    assert (job.state, job.status, row.enrichment_error) == ("DONE", "FAILED", "-:-:INTERNAL_ERROR")
    assert [event.payload["attempt"] for event in harness.events("Started")] == [1, 1, 2, 3]
    assert row.due_at == harness.clock.now() + timedelta(hours=6)
    assert harness.company() is not None
    assert harness.request_row(answer.request_id).enrichment_error == "-:-:INTERNAL_ERROR"


def test_a_second_worker_leaves_the_job_to_the_first(harness: EnrichmentHarness) -> None:
    answer, second_claim = harness.request(), []
    harness.script(
        inpi=[
            lambda: second_claim.append(
                harness.claims.take(f"company_enrichment:{SIREN}", "second", 1.0)
            )
        ]
    )
    harness.work(answer.job_id)
    assert second_claim == [None]
    assert harness.work(answer.job_id).attempt == 1
    assert len(harness.events("Started")) == 1


def test_sources_that_are_not_configured_are_not_counted(harness: EnrichmentHarness) -> None:
    harness.without = frozenset({INPI, RCS})
    harness.enriched()
    assert harness.enrichment().status == "SUCCESS"
    assert counts(harness) == (1, 0, 0, 0)
    assert len(harness.events("SourceFetched")) == 1


def test_a_job_fails_without_the_required_source(harness: EnrichmentHarness) -> None:
    harness.without = frozenset({SEARCH})
    harness.enriched()
    assert harness.enrichment().enrichment_error == "API_RECHERCHE_ENTREPRISES:-:SOURCE_UNAVAILABLE"


@pytest.mark.parametrize(("is_masked", "code"), [(False, "NOT_FOUND"), (True, "FORBIDDEN")])
def test_the_error_of_a_company_without_a_name_has_the_reason(
    harness: EnrichmentHarness, is_masked: bool, code: str
) -> None:
    harness.script(
        search=source_record(SEARCH, legal_name=None, is_masked=is_masked),
        inpi=UNKNOWN,
        rcs=UNKNOWN,
    )
    harness.enriched()
    first = (harness.enrichment().enrichment_error or "").split("|")[0]
    assert first == f"API_RECHERCHE_ENTREPRISES:200:{code}"


def test_an_empty_value_keeps_the_stored_value_and_its_source(harness: EnrichmentHarness) -> None:
    harness.enriched()
    harness.advance(days=30)
    harness.script(search=source_record(SEARCH, naf_code=None, legal_name="DANONE SA"), inpi=DOWN)
    harness.enriched()
    company = harness.company()
    assert company is not None
    assert (company.legal_name, company.naf_code, company.legal_form) == (
        "DANONE SA",
        "70.10Z",
        "5510",
    )
    rows = harness.rows(select(FieldSourceRow).order_by(FieldSourceRow.id))
    ages = {row.field: harness.clock.now() - row.fetched_at for row in rows}
    assert ages["naf_code"] >= timedelta(days=30)
    assert ages["legal_name"] == timedelta(0)
    assert harness.jobs()[-1].changes == {"legal_name": {"before": "DANONE", "after": "DANONE SA"}}


def test_a_field_locked_by_a_user_is_not_overwritten(harness: EnrichmentHarness) -> None:
    harness.enriched()
    harness.set(FieldSourceRow, locked_by_user="user:7")
    harness.advance(days=30)
    harness.script(search=source_record(SEARCH, legal_name="ANOTHER"))
    harness.enriched()
    company = harness.company()
    assert company is not None
    assert company.legal_name == "DANONE"
    fetched = {row.fetched_at for row in harness.rows(select(FieldSourceRow))}
    assert fetched == {harness.clock.now() - timedelta(days=30)}


def test_each_version_of_a_document_is_stored_once(harness: EnrichmentHarness) -> None:
    harness.enriched()
    harness.advance(days=30)
    harness.script(inpi=source_record(INPI, legal_form="5599"), rcs=DOWN)
    harness.enriched()
    stored = [
        row.source_api
        for row in harness.rows(select(CompanyDocumentRow).order_by(CompanyDocumentRow.id))
    ]
    assert sorted(stored) == sorted([SEARCH, INPI, RCS, INPI])
    retrievals = {row.source_api: row for row in harness.rows(select(RetrievalRow))}
    last = retrievals[RCS]
    assert (last.last_status, last.last_http_status, last.last_error) == (
        "FAILED",
        503,
        "UPSTREAM_5XX",
    )


@pytest.mark.parametrize("optional", [UNKNOWN, source_error("AUTH_ERROR", 401)])
def test_a_permanent_partial_failure_is_retried_only_when_stale(
    harness: EnrichmentHarness, optional: object
) -> None:
    harness.script(inpi=optional)
    harness.enriched()
    row = harness.enrichment()
    assert row.status == "PARTIAL"
    assert row.due_at is not None
    assert row.due_at - harness.clock.now() >= timedelta(days=27)
    assert row.retries == 0


def test_a_temporary_failure_is_retried_after_6_24_and_72_hours_then_when_stale(
    harness: EnrichmentHarness,
) -> None:
    harness.script(rcs=DOWN)
    harness.enriched()
    waited: list[float] = []
    for _ in range(3):
        due = harness.enrichment().due_at
        assert due is not None
        waited.append((due - harness.clock.now()) / timedelta(hours=1))
        harness.clock.advance(due - harness.clock.now())
        assert harness.sweep().refreshed == 1
        harness.work(harness.jobs()[-1].id)
    row = harness.enrichment()
    assert waited == [6, 24, 72]
    assert row.due_at is not None
    assert row.due_at - harness.clock.now() >= timedelta(days=27)
    assert {move for move in harness.moves() if "PENDING" not in move} == {
        ("RUNNING", "PARTIAL"),
        ("PARTIAL", "RUNNING"),
    }


def test_every_log_line_has_the_thirteen_fields_and_no_source_data(
    harness: EnrichmentHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("info", "json", of="package")
    harness.script(rcs=DOWN)
    harness.enriched(tenant="t1")
    written = capsys.readouterr().err
    lines = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
    assert [
        line["event_type"].removeprefix("CompanyEnrichment") for line in lines
    ] == harness.event_names()
    assert all(line.keys() >= CONTRACT_FIELDS for line in lines)
    assert all(
        line[name]
        for line in lines
        for name in ("timestamp", "level", "correlation_id", "company_siren")
    )
    assert {line["tenant_id"] for line in lines} == {"t1"}
    assert (lines[4]["error_code"], lines[4]["http_status"]) == ("UPSTREAM_5XX", 503)
    assert SECRET not in written
    assert SECRET not in str([event.payload for event in harness.events()])


def test_log_lines_events_and_calls_carry_the_correlation_id_of_the_requester(
    harness: EnrichmentHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str | None] = []
    harness.script(*[(lambda: calls.append(correlation_id()),)] * 3)
    answer = harness.request(tenant="t1")
    configure_logs("info", "json", of="package")
    with correlated("of-the-run"):
        harness.work(answer.job_id)
    lines = [
        json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")
    ]
    assert [line["correlation_id"] for line in lines] == ["of-t1"] * 5
    assert {event.correlation_id for event in harness.events()} == {"of-t1"}
    assert calls == ["of-t1"] * 3


def test_jobs_and_calls_are_counted_in_the_metrics(harness: EnrichmentHarness) -> None:
    harness.script(rcs=UNKNOWN)
    harness.enriched()
    counted = {(name, labels): amount for (name, labels), amount in harness.meter.drain().items()}
    assert counted[models.ENDED_JOBS, 'status="PARTIAL"'] == 1
    assert (
        counted[models.CALLS, 'error_code="NOT_FOUND",source="API_ENTREPRISE_RCS",status="FAILED"']
        == 1
    )
    assert sum(amount for (name, _), amount in counted.items() if name == models.CALLS) == 3


def work_until_done(harness: EnrichmentHarness, job_ids: list[int]) -> list[timedelta]:
    """Run the workers that Dagster would start: one per job, and one per request of the sweep. Return how long
    the jobs waited for their source, one entry per wait."""
    harness.take_requests()
    waits: list[timedelta] = []
    for job_id in job_ids:
        harness.work(job_id)
    while pending := [job for job in harness.jobs() if job.state != "DONE"]:
        not_before = max(job.not_before for job in pending)
        assert not_before is not None
        assert harness.sweep().replaced_workers == 0
        waits.append(not_before - harness.clock.now())
        harness.clock.advance(not_before - harness.clock.now())
        while harness.sweep().replaced_workers:
            requested = [config["job_id"] for _, config in harness.run_requests(waiting=True)]
            harness.take_requests()
            for job_id in requested:
                harness.work(int(str(job_id)))
    return waits


@pytest.mark.parametrize(
    ("count", "retry_after", "waited"), [(60, None, []), (100, 30.0, [60.0]), (60, 600.0, [600.0])]
)
def test_a_rate_limit_of_the_required_register_fails_no_company(
    harness: EnrichmentHarness,
    waits: list[float],
    count: int,
    retry_after: float | None,
    waited: list[float],
) -> None:
    sirens = [f"{100_000_000 + number:09d}" for number in range(count)]
    jobs = [harness.request(siren=siren).job_id for siren in sirens]
    harness.sources[SEARCH].script = [source_record(SEARCH)] * 39 + [
        source_error("RATE_LIMIT", 429, after=retry_after)
    ]
    assert work_until_done(harness, [job for job in jobs if job]) == [
        timedelta(seconds=wait) for wait in waited
    ]
    assert {row.status for row in harness.enrichments()} == {"SUCCESS"}
    assert len(harness.enrichments()) == count
    assert {job.attempt for job in harness.jobs()} == {1}
    assert len(harness.events("SourceFetched")) == 3 * count
    assert len(harness.events("Started")) == len(harness.events("Completed")) == count


@pytest.mark.parametrize("first", [BUSY, DOWN], ids=["429", "503"])
def test_a_rest_that_begins_between_two_calls_postpones_the_job(
    harness: EnrichmentHarness, waits: list[float], first: SourceError
) -> None:
    """The third 429 of another company makes the required register rest before this job retries
    its call."""
    answer = harness.request()

    def another_company_is_rate_limited() -> None:
        with harness.database.transaction() as session:
            set_rest(
                session,
                SEARCH,
                timedelta(seconds=60),
                "It was called too often.",
                harness.clock.now(),
            )

    harness.sources[SEARCH].script = [another_company_is_rate_limited, first]
    job = harness.work(answer.job_id)
    assert (job.state, harness.enrichment().status, harness.calls()[SEARCH]) == (
        "PENDING",
        "PENDING",
        1,
    )
    work_until_done(harness, [answer.job_id])
    assert (harness.enrichment().status, harness.calls()[SEARCH]) == ("SUCCESS", 2)


def test_a_company_fails_after_ten_postponements_by_the_required_register(
    harness: EnrichmentHarness,
) -> None:
    answer = harness.request()
    harness.script(search=source_error("RATE_LIMIT", 429))
    assert len(work_until_done(harness, [answer.job_id])) == 10
    row = harness.enrichment()
    assert (row.status, row.enrichment_error) == (
        "FAILED",
        "API_RECHERCHE_ENTREPRISES:429:RATE_LIMIT",
    )


def test_a_stale_company_stays_stale_while_its_job_is_postponed(harness: EnrichmentHarness) -> None:
    harness.enriched()
    harness.advance(days=31)
    harness.script(search=source_error("RATE_LIMIT", 429, after=30.0))
    answer = harness.request()
    job = harness.work(answer.job_id)
    assert (job.state, job.status, harness.enrichment().status) == ("PENDING", None, "STALE")
    assert job.not_before == harness.clock.now() + timedelta(seconds=60)
    row, last = harness.enrichment(), harness.transitions()[-1]
    assert (job.attempt, row.running_job_id, harness.requests()[-1].enrichment_status) == (
        0,
        None,
        "STALE",
    )
    assert (last.from_state, last.to_state, last.actor, last.reason) == (
        "RUNNING",
        "STALE",
        "worker",
        "API_RECHERCHE_ENTREPRISES asks to wait until 10:01 UTC. The source answered RATE_LIMIT.",
    )
    assert harness.work(answer.job_id).state == "PENDING"
    assert harness.calls()[SEARCH] == 2


def test_an_unknown_establishment_is_a_warning_and_the_company_is_enriched(
    harness: EnrichmentHarness,
) -> None:
    invented = f"{SIREN}99999"
    answer = harness.request(siret=invented)
    harness.sources[SEARCH].script = [UNKNOWN, source_record(SEARCH)]
    harness.work(answer.job_id)
    row = harness.request_row(answer.request_id)
    assert row.enrichment_status == "SUCCESS"
    assert (
        f"The register does not know the establishment {invented}."
        in (row.warnings or {})["warnings"]
    )
    assert [siret for _, siret in harness.sources[SEARCH].calls] == [invented, None]


def closed(siret: str) -> str:
    return f"The establishment {siret} is closed since 2020-01-01."


def test_the_establishments_of_all_attached_requests_are_looked_up(
    harness: EnrichmentHarness,
) -> None:
    own, other, late, unavailable = (f"{SIREN}0000{digit}" for digit in range(4))
    plain, first = harness.request(), harness.request(siret=own)
    answers = {own: first, other: harness.request(siret=other, tenant="t2")}

    def request_more() -> None:
        answers[late] = harness.request(siret=late)
        answers[unavailable] = harness.request(siret=unavailable)

    harness.script(inpi=[request_more])
    usual, down = source_record(SEARCH), [DOWN] * 3
    with_warnings = [replace(usual, warnings=(closed(siret),)) for siret in (own, other)]
    harness.sources[SEARCH].script = [usual, *with_warnings, UNKNOWN, usual, *down]
    harness.work(plain.job_id)
    assert {one.job_id for one in answers.values()} == {plain.job_id}
    assert warnings(harness, plain) == []
    expected = [
        closed(own),
        closed(other),
        f"The register does not know the establishment {late}.",
    ]
    assert [
        [text for text in warnings(harness, one) if "check digit" not in text]
        for one in answers.values()
    ] == [
        *([one] for one in expected),
        [f"The establishment {unavailable} could not be looked up: request it again later."],
    ]
    assert len(harness.events("SourceFetched")) == 3
    assert len(harness.events("Completed")) == 5


def test_an_establishment_not_yet_looked_up_is_not_a_cache_hit(harness: EnrichmentHarness) -> None:
    harness.enriched()
    siret = f"{SIREN}00001"
    answer = harness.request(siret=siret)
    assert answer.outcome == "ENQUEUED"
    harness.sources[SEARCH].script = [replace(source_record(SEARCH), warnings=(closed(siret),))]
    harness.work(answer.job_id)
    assert harness.moves()[-3:] == [
        ("SUCCESS", "STALE"),
        ("STALE", "RUNNING"),
        ("RUNNING", "SUCCESS"),
    ]
    again = harness.request(siret=siret, tenant="t2")
    assert (again.outcome, closed(siret) in again.warnings) == ("CACHE_HIT", True)
    assert warnings(harness, again) == warnings(harness, answer)
    assert (harness.request().outcome, harness.request(siret=f"{SIREN}00002").outcome) == (
        "CACHE_HIT",
        "ENQUEUED",
    )


def test_a_failed_establishment_lookup_is_not_repeated_immediately(
    harness: EnrichmentHarness,
) -> None:
    harness.enriched()
    siret = f"{SIREN}00001"
    harness.script(search=SILENT)
    harness.work(harness.request(siret=siret).job_id)
    again = harness.request(siret=siret)
    assert (again.outcome, again.status) == ("CACHE_HIT", "FAILED")
    assert (
        f"The establishment {siret} could not be looked up: request it again later."
        in again.warnings
    )


def warnings(harness: EnrichmentHarness, answer: EnrichmentAnswer) -> list[str]:
    return list(warnings_of(harness.request_row(answer.request_id)))


def test_a_second_job_on_the_same_day_has_its_own_key(harness: EnrichmentHarness) -> None:
    keys = []
    for _ in range(2):
        answer = harness.request(force=True)
        harness.work(answer.job_id)
        keys.append(harness.jobs()[-1].key)
        harness.advance(minutes=20)
    assert keys == [f"{SIREN}:REQUEST_CREATED:2026-05-04", f"{SIREN}:REQUEST_CREATED:2026-05-04:2"]
