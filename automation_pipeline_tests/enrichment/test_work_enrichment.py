"""A job from its lease to its end: the test vectors of the contract, in its order."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.core.logs import configure_logs, correlated, correlation_id
from automation_pipeline.enrichment import models as measures
from automation_pipeline.enrichment.models import EnrichmentAnswer, SourceError
from automation_pipeline.enrichment.queries.requests import warnings_of
from automation_pipeline.enrichment.sources import set_rest
from automation_pipeline.enrichment.tables import CompanyDocumentRow, FieldSourceRow, RetrievalRow
from automation_pipeline_tests.enrichment.bench import Bench
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


THIRTEEN = {
    "timestamp", "level", "correlation_id", "tenant_id", "request_id", "job_id", "company_siren", "source_api",
    "event_type", "http_status", "error_code", "error_message", "duration_ms",
}  # fmt: skip


def counts(bench: Bench) -> tuple[object, ...]:
    return tuple(bench.events("Completed")[-1].payload[name] for name in COUNTS)


def test_a_company_known_to_all_three_sources_is_a_success(bench: Bench) -> None:
    answer = bench.request()
    job = bench.work(answer.job_id)
    company, row = bench.company(), bench.enrichment()
    assert (job.state, job.status, job.attempt) == ("DONE", "SUCCESS", 1)
    assert company is not None
    assert (company.legal_name, company.legal_form, company.rcs_city) == ("DANONE", "5510", "PARIS")
    assert company.updated_at == bench.clock.now()
    assert (row.status, row.enrichment_error, row.running_job_id) == ("SUCCESS", None, None)
    assert bench.moves() == [("PENDING", "RUNNING"), ("RUNNING", "SUCCESS")]
    assert bench.event_names() == [
        "Requested",
        "Started",
        "SourceFetched",
        "SourceFetched",
        "SourceFetched",
        "Completed",
    ]
    assert [event.payload["source_api"] for event in bench.events("SourceFetched")] == [
        SEARCH,
        INPI,
        RCS,
    ]
    assert counts(bench) == (3, 0, 0, 0)
    assert bench.request_row(answer.request_id).enrichment_status == "SUCCESS"
    assert bench.holder() is None


def test_an_optional_source_rate_limited_three_times_gives_partial(
    bench: Bench, waits: list[float]
) -> None:
    bench.script(rcs=BUSY)
    bench.enriched()
    row = bench.enrichment()
    assert (row.status, row.enrichment_error) == ("PARTIAL", "API_ENTREPRISE_RCS:429:RATE_LIMIT")
    assert counts(bench) == (2, 1, 0, 1)
    assert bench.calls()[RCS] == 3
    assert waits == [2.0, 2.0]
    assert row.due_at == bench.clock.now() + timedelta(hours=6)


def test_not_found_in_the_required_source_ends_the_job(bench: Bench) -> None:
    bench.script(search=NOT_FOUND)
    bench.enriched()
    row = bench.enrichment()
    assert (row.status, row.enrichment_error) == (
        "FAILED",
        "API_RECHERCHE_ENTREPRISES:200:NOT_FOUND",
    )
    assert counts(bench) == (0, 1, 1, 0)
    assert bench.calls() == {SEARCH: 1, INPI: 0, RCS: 0}
    assert bench.company() is None
    assert bench.events("Completed")[0].payload["core_identity_present"] is False


def test_a_timeout_of_the_required_source_keeps_the_old_snapshot(bench: Bench) -> None:
    bench.enriched()
    before = bench.company()
    bench.pass_time(days=31)
    bench.script(search=SILENT, inpi=source_record(INPI, legal_name="ANOTHER", city="LYON"))
    bench.enriched()
    after, row = bench.company(), bench.enrichment()
    assert bench.calls()[SEARCH] == 1 + 3
    assert (row.status, row.enrichment_error) == ("FAILED", "API_RECHERCHE_ENTREPRISES:-:TIMEOUT")
    assert before is not None
    assert after is not None
    assert (after.legal_name, after.city, after.updated_at) == (
        "DANONE",
        "PARIS",
        before.updated_at,
    )
    assert bench.moves()[-2:] == [("STALE", "RUNNING"), ("RUNNING", "FAILED")]


def test_two_tenants_requesting_the_same_company_share_a_job(bench: Bench) -> None:
    one, other = bench.request(tenant="t1"), bench.request(tenant="t2")
    assert (one.asked, other.asked, one.job_id) == ("ENQUEUED", "ATTACHED", other.job_id)
    bench.work(one.job_id)
    [started], completed = bench.events("Started"), bench.events("Completed")
    assert (started.tenant_id, started.correlation_id) == ("t1", "of-t1")
    assert {event.tenant_id for event in bench.events("SourceFetched")} == {"t1"}
    assert [(each.tenant_id, each.correlation_id) for each in completed] == [
        ("t1", "of-t1"),
        ("t2", "of-t2"),
    ]
    assert {row.enrichment_status for row in bench.requests()} == {"SUCCESS"}


def test_a_request_during_a_running_job_attaches_to_it(bench: Bench) -> None:
    answer = bench.request(tenant="t1")
    bench.script(inpi=[lambda: bench.request(tenant="t2")])
    bench.work(answer.job_id)
    assert len(bench.attached_requests(answer.job_id)) == len(bench.events("Completed")) == 2
    assert {row.enrichment_status for row in bench.requests()} == {"SUCCESS"}


def test_a_killed_worker_is_replaced_after_its_lease_expires(bench: Bench) -> None:
    answer = bench.request()
    bench.take_requests()
    bench.script(inpi=[lambda: bench.pass_time(seconds=60)])
    bench.work_and_die(answer.job_id, RCS)
    bench.pass_time(seconds=59)
    assert bench.sweep().asked_again == 0
    assert bench.work(answer.job_id).attempt == 1
    bench.pass_time(seconds=1)
    assert bench.sweep().asked_again == 1
    assert bench.run_requests()[-1] == (
        f"{SIREN}:REQUEST_CREATED:2026-05-04-retry-1",
        {"job_id": answer.job_id},
    )
    job = bench.work(answer.job_id)
    assert (job.attempt, job.status) == (2, "SUCCESS")
    assert bench.calls() == {SEARCH: 1, INPI: 1, RCS: 2}
    assert [event.payload["attempt"] for event in bench.events("Started")] == [1, 2]
    assert len(bench.events("SourceFetched")) == 3
    assert len(bench.events("Completed")) == 1


def test_a_source_without_the_company_is_not_called_again_by_the_next_worker(bench: Bench) -> None:
    answer = bench.request()
    bench.script(search=NOT_FOUND)
    bench.work_and_die(answer.job_id, None)
    bench.pass_time(seconds=120)
    assert bench.work(answer.job_id).status == "FAILED"
    assert bench.calls() == {SEARCH: 1, INPI: 0, RCS: 0}


def test_a_job_that_loses_three_workers_fails(bench: Bench) -> None:
    bench.enriched()
    bench.pass_time(days=30)
    answer = bench.request()
    for _ in range(3):
        bench.work_and_die(answer.job_id)
        bench.pass_time(seconds=120)
    job, row = bench.work(answer.job_id), bench.enrichment()
    assert (job.state, job.status, row.enrichment_error) == ("DONE", "FAILED", "-:-:INTERNAL_ERROR")
    assert [event.payload["attempt"] for event in bench.events("Started")] == [1, 1, 2, 3]
    assert row.due_at == bench.clock.now() + timedelta(hours=6)
    assert bench.company() is not None
    assert bench.request_row(answer.request_id).enrichment_error == "-:-:INTERNAL_ERROR"


def test_a_second_worker_leaves_the_job_to_the_first(bench: Bench) -> None:
    answer, second_claim = bench.request(), []
    bench.script(
        inpi=[
            lambda: second_claim.append(
                bench.claims.take(f"company_enrichment:{SIREN}", "second", 1.0)
            )
        ]
    )
    bench.work(answer.job_id)
    assert second_claim == [None]
    assert bench.work(answer.job_id).attempt == 1
    assert len(bench.events("Started")) == 1


def test_sources_that_are_not_configured_are_not_counted(bench: Bench) -> None:
    bench.without = frozenset({INPI, RCS})
    bench.enriched()
    assert bench.enrichment().status == "SUCCESS"
    assert counts(bench) == (1, 0, 0, 0)
    assert len(bench.events("SourceFetched")) == 1


def test_a_job_fails_without_the_required_source(bench: Bench) -> None:
    bench.without = frozenset({SEARCH})
    bench.enriched()
    assert bench.enrichment().enrichment_error == "API_RECHERCHE_ENTREPRISES:-:SOURCE_UNAVAILABLE"


@pytest.mark.parametrize(("is_masked", "code"), [(False, "NOT_FOUND"), (True, "FORBIDDEN")])
def test_the_error_of_a_company_without_a_name_has_the_reason(
    bench: Bench, is_masked: bool, code: str
) -> None:
    bench.script(
        search=source_record(SEARCH, legal_name=None, is_masked=is_masked),
        inpi=UNKNOWN,
        rcs=UNKNOWN,
    )
    bench.enriched()
    first = (bench.enrichment().enrichment_error or "").split("|")[0]
    assert first == f"API_RECHERCHE_ENTREPRISES:200:{code}"


def test_an_empty_value_keeps_the_stored_value_and_its_source(bench: Bench) -> None:
    bench.enriched()
    bench.pass_time(days=30)
    bench.script(search=source_record(SEARCH, naf_code=None, legal_name="DANONE SA"), inpi=DOWN)
    bench.enriched()
    company = bench.company()
    assert company is not None
    assert (company.legal_name, company.naf_code, company.legal_form) == (
        "DANONE SA",
        "70.10Z",
        "5510",
    )
    rows = bench.rows(select(FieldSourceRow).order_by(FieldSourceRow.id))
    ages = {row.field: bench.clock.now() - row.fetched_at for row in rows}
    assert ages["naf_code"] >= timedelta(days=30)
    assert ages["legal_name"] == timedelta(0)
    assert bench.jobs()[-1].changes == {"legal_name": {"before": "DANONE", "after": "DANONE SA"}}


def test_a_field_locked_by_a_user_is_not_overwritten(bench: Bench) -> None:
    bench.enriched()
    bench.set(FieldSourceRow, locked_by_user="user:7")
    bench.pass_time(days=30)
    bench.script(search=source_record(SEARCH, legal_name="ANOTHER"))
    bench.enriched()
    company = bench.company()
    assert company is not None
    assert company.legal_name == "DANONE"
    fetched = {row.fetched_at for row in bench.rows(select(FieldSourceRow))}
    assert fetched == {bench.clock.now() - timedelta(days=30)}


def test_each_version_of_a_document_is_stored_once(bench: Bench) -> None:
    bench.enriched()
    bench.pass_time(days=30)
    bench.script(inpi=source_record(INPI, legal_form="5599"), rcs=DOWN)
    bench.enriched()
    kept = [
        row.source_api
        for row in bench.rows(select(CompanyDocumentRow).order_by(CompanyDocumentRow.id))
    ]
    assert sorted(kept) == sorted([SEARCH, INPI, RCS, INPI])
    retrievals = {row.source_api: row for row in bench.rows(select(RetrievalRow))}
    result = retrievals[RCS]
    assert (result.last_status, result.last_http_status, result.last_error) == (
        "FAILED",
        503,
        "UPSTREAM_5XX",
    )


@pytest.mark.parametrize("optional", [UNKNOWN, source_error("AUTH_ERROR", 401)])
def test_a_permanent_partial_failure_is_retried_only_when_stale(
    bench: Bench, optional: object
) -> None:
    bench.script(inpi=optional)
    bench.enriched()
    row = bench.enrichment()
    assert row.status == "PARTIAL"
    assert row.due_at is not None
    assert row.due_at - bench.clock.now() >= timedelta(days=27)
    assert row.retries == 0


def test_a_temporary_failure_is_retried_after_6_24_and_72_hours_then_when_stale(
    bench: Bench,
) -> None:
    bench.script(rcs=DOWN)
    bench.enriched()
    waited: list[float] = []
    for _ in range(3):
        due = bench.enrichment().due_at
        assert due is not None
        waited.append((due - bench.clock.now()) / timedelta(hours=1))
        bench.clock.pass_time(due - bench.clock.now())
        assert bench.sweep().refreshed == 1
        bench.work(bench.jobs()[-1].id)
    row = bench.enrichment()
    assert waited == [6, 24, 72]
    assert row.due_at is not None
    assert row.due_at - bench.clock.now() >= timedelta(days=27)
    assert {move for move in bench.moves() if "PENDING" not in move} == {
        ("RUNNING", "PARTIAL"),
        ("PARTIAL", "RUNNING"),
    }


def test_every_log_line_has_the_thirteen_fields_and_no_source_data(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("info", "json", of="package")
    bench.script(rcs=DOWN)
    bench.enriched(tenant="t1")
    written = capsys.readouterr().err
    lines = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
    assert [
        line["event_type"].removeprefix("CompanyEnrichment") for line in lines
    ] == bench.event_names()
    assert all(line.keys() >= THIRTEEN for line in lines)
    assert all(
        line[name]
        for line in lines
        for name in ("timestamp", "level", "correlation_id", "company_siren")
    )
    assert {line["tenant_id"] for line in lines} == {"t1"}
    assert (lines[4]["error_code"], lines[4]["http_status"]) == ("UPSTREAM_5XX", 503)
    assert SECRET not in written
    assert SECRET not in str([event.payload for event in bench.events()])


def test_log_lines_events_and_calls_carry_the_correlation_id_of_the_requester(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str | None] = []
    bench.script(*[(lambda: calls.append(correlation_id()),)] * 3)
    answer = bench.request(tenant="t1")
    configure_logs("info", "json", of="package")
    with correlated("of-the-run"):
        bench.work(answer.job_id)
    lines = [
        json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")
    ]
    assert [line["correlation_id"] for line in lines] == ["of-t1"] * 5
    assert {event.correlation_id for event in bench.events()} == {"of-t1"}
    assert calls == ["of-t1"] * 3


def test_jobs_and_calls_are_counted_in_the_metrics(bench: Bench) -> None:
    bench.script(rcs=UNKNOWN)
    bench.enriched()
    counted = {(name, labels): amount for (name, labels), amount in bench.meter.drain().items()}
    assert counted[measures.ENDED_JOBS, 'status="PARTIAL"'] == 1
    assert (
        counted[
            measures.CALLS, 'error_code="NOT_FOUND",source="API_ENTREPRISE_RCS",status="FAILED"'
        ]
        == 1
    )
    assert sum(amount for (name, _), amount in counted.items() if name == measures.CALLS) == 3


def work_until_done(bench: Bench, job_ids: list[int]) -> list[timedelta]:
    """Run the workers that Dagster would start: one per job, then one per request of the sweep.
    Returns how long the jobs waited for their source, one entry per wait."""
    bench.take_requests()
    waits: list[timedelta] = []
    for job_id in job_ids:
        bench.work(job_id)
    while pending := [job for job in bench.jobs() if job.state != "DONE"]:
        not_before = max(job.not_before for job in pending)
        assert not_before is not None
        assert bench.sweep().asked_again == 0
        waits.append(not_before - bench.clock.now())
        bench.clock.pass_time(not_before - bench.clock.now())
        while bench.sweep().asked_again:
            requested = [config["job_id"] for _, config in bench.run_requests(waiting=True)]
            bench.take_requests()
            for job_id in requested:
                bench.work(int(str(job_id)))
    return waits


@pytest.mark.parametrize(
    ("count", "retry_after", "waited"), [(60, None, []), (300, 30.0, [60.0]), (60, 600.0, [600.0])]
)
def test_a_rate_limit_of_the_required_register_fails_no_company(
    bench: Bench, waits: list[float], count: int, retry_after: float | None, waited: list[float]
) -> None:
    sirens = [f"{100_000_000 + number:09d}" for number in range(count)]
    jobs = [bench.request(siren=siren).job_id for siren in sirens]
    bench.sources[SEARCH].script = [source_record(SEARCH)] * 39 + [
        source_error("RATE_LIMIT", 429, after=retry_after)
    ]
    assert work_until_done(bench, [job for job in jobs if job]) == [
        timedelta(seconds=wait) for wait in waited
    ]
    assert {row.status for row in bench.enrichments()} == {"SUCCESS"}
    assert len(bench.enrichments()) == count
    assert {job.attempt for job in bench.jobs()} == {1}
    assert len(bench.events("SourceFetched")) == 3 * count
    assert len(bench.events("Started")) == len(bench.events("Completed")) == count


@pytest.mark.parametrize("first", [BUSY, DOWN], ids=["429", "503"])
def test_a_rest_that_begins_between_two_calls_postpones_the_job(
    bench: Bench, waits: list[float], first: SourceError
) -> None:
    """The third 429 of another company makes the required register rest before this job retries
    its call."""
    answer = bench.request()

    def another_company_is_rate_limited() -> None:
        with bench.database.transaction() as session:
            set_rest(
                session, SEARCH, timedelta(seconds=60), "It was asked too often.", bench.clock.now()
            )

    bench.sources[SEARCH].script = [another_company_is_rate_limited, first]
    job = bench.work(answer.job_id)
    assert (job.state, bench.enrichment().status, bench.calls()[SEARCH]) == (
        "PENDING",
        "PENDING",
        1,
    )
    work_until_done(bench, [answer.job_id])
    assert (bench.enrichment().status, bench.calls()[SEARCH]) == ("SUCCESS", 2)


def test_a_company_fails_after_ten_postponements_by_the_required_register(
    bench: Bench,
) -> None:
    answer = bench.request()
    bench.script(search=source_error("RATE_LIMIT", 429))
    assert len(work_until_done(bench, [answer.job_id])) == 10
    row = bench.enrichment()
    assert (row.status, row.enrichment_error) == (
        "FAILED",
        "API_RECHERCHE_ENTREPRISES:429:RATE_LIMIT",
    )


def test_a_stale_company_stays_stale_while_its_job_is_postponed(bench: Bench) -> None:
    bench.enriched()
    bench.pass_time(days=31)
    bench.script(search=source_error("RATE_LIMIT", 429, after=30.0))
    answer = bench.request()
    job = bench.work(answer.job_id)
    assert (job.state, job.status, bench.enrichment().status) == ("PENDING", None, "STALE")
    assert job.not_before == bench.clock.now() + timedelta(seconds=60)
    assert bench.work(answer.job_id).state == "PENDING"
    assert bench.calls()[SEARCH] == 2


def test_an_unknown_establishment_is_a_warning_and_the_company_is_enriched(bench: Bench) -> None:
    invented = f"{SIREN}99999"
    answer = bench.request(siret=invented)
    bench.sources[SEARCH].script = [UNKNOWN, source_record(SEARCH)]
    bench.work(answer.job_id)
    row = bench.request_row(answer.request_id)
    assert row.enrichment_status == "SUCCESS"
    assert (
        f"The register does not know the establishment {invented}."
        in (row.warnings or {})["warnings"]
    )
    assert [siret for _, siret in bench.sources[SEARCH].asked] == [invented, None]


def closed(siret: str) -> str:
    return f"The establishment {siret} is closed since 2020-01-01."


def test_the_establishments_of_all_attached_requests_are_looked_up(bench: Bench) -> None:
    own, other, late, unavailable = (f"{SIREN}0000{digit}" for digit in range(4))
    plain, first = bench.request(), bench.request(siret=own)
    answers = {own: first, other: bench.request(siret=other, tenant="t2")}

    def request_more() -> None:
        answers[late] = bench.request(siret=late)
        answers[unavailable] = bench.request(siret=unavailable)

    bench.script(inpi=[request_more])
    fine, down = source_record(SEARCH), [DOWN] * 3
    results = [replace(fine, warnings=(closed(siret),)) for siret in (own, other)]
    bench.sources[SEARCH].script = [fine, *results, UNKNOWN, fine, *down]
    bench.work(plain.job_id)
    assert {one.job_id for one in answers.values()} == {plain.job_id}
    assert warnings(bench, plain) == []
    result = [closed(own), closed(other), f"The register does not know the establishment {late}."]
    assert [
        [why for why in warnings(bench, one) if "check digit" not in why]
        for one in answers.values()
    ] == [
        *([one] for one in result),
        [f"The establishment {unavailable} could not be looked up: ask for it again later."],
    ]
    assert len(bench.events("SourceFetched")) == 3
    assert len(bench.events("Completed")) == 5


def test_an_establishment_not_yet_looked_up_is_not_a_cache_hit(bench: Bench) -> None:
    bench.enriched()
    siret = f"{SIREN}00001"
    answer = bench.request(siret=siret)
    assert answer.asked == "ENQUEUED"
    bench.sources[SEARCH].script = [replace(source_record(SEARCH), warnings=(closed(siret),))]
    bench.work(answer.job_id)
    assert bench.moves()[-3:] == [
        ("SUCCESS", "STALE"),
        ("STALE", "RUNNING"),
        ("RUNNING", "SUCCESS"),
    ]
    again = bench.request(siret=siret, tenant="t2")
    assert (again.asked, closed(siret) in again.warnings) == ("CACHE_HIT", True)
    assert warnings(bench, again) == warnings(bench, answer)
    assert (bench.request().asked, bench.request(siret=f"{SIREN}00002").asked) == (
        "CACHE_HIT",
        "ENQUEUED",
    )


def test_a_failed_establishment_lookup_is_not_repeated_immediately(
    bench: Bench,
) -> None:
    bench.enriched()
    siret = f"{SIREN}00001"
    bench.script(search=SILENT)
    bench.work(bench.request(siret=siret).job_id)
    again = bench.request(siret=siret)
    assert (again.asked, again.status) == ("CACHE_HIT", "FAILED")
    assert (
        f"The establishment {siret} could not be looked up: ask for it again later."
        in again.warnings
    )


def warnings(bench: Bench, answer: EnrichmentAnswer) -> list[str]:
    return list(warnings_of(bench.request_row(answer.request_id)))


def test_a_second_job_on_the_same_day_has_its_own_key(bench: Bench) -> None:
    keys = []
    for _ in range(2):
        answer = bench.request(force=True)
        bench.work(answer.job_id)
        keys.append(bench.jobs()[-1].key)
        bench.pass_time(minutes=20)
    assert keys == [f"{SIREN}:REQUEST_CREATED:2026-05-04", f"{SIREN}:REQUEST_CREATED:2026-05-04:2"]
