"""Queries about jobs: adding, starting, updating and finishing them."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError

from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.logs import CORRELATION_TAG, correlated
from automation_pipeline.enrichment.models import (
    CompanyFields,
    EnrichmentTrigger,
    Identifiers,
    SourceApi,
    SourceError,
    SourceOutcome,
    SourceRecord,
)
from automation_pipeline.enrichment.queries.jobs import (
    LostJobError,
    StartedJob,
    add_jobs,
    attach,
    fields_from,
    finish_job,
    known_of,
    outcomes_of,
    record_heartbeat,
    request_workers,
    save_outcome,
    siren_of,
    start_job,
    was_opened_today,
)
from automation_pipeline.enrichment.queries.requests import open_job
from automation_pipeline.enrichment.tables import (
    CompanyDocumentRow,
    EnrichmentJobRow,
    FieldSourceRow,
    RetrievalRow,
)
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness, requester
from automation_pipeline_tests.enrichment.scripted import (
    DOWN,
    INPI,
    RCS,
    SEARCH,
    SILENT,
    SIREN,
    UNKNOWN,
    source_record,
)


def test_the_database_rejects_a_second_open_job_for_a_company(harness: EnrichmentHarness) -> None:
    harness.request()
    with pytest.raises(IntegrityError), harness.database.transaction() as session:
        add_jobs(
            session,
            [Identifiers(SIREN)],
            EnrichmentTrigger.STALE_SWEEP,
            requester(),
            harness.clock.now(),
        )
    assert len(harness.jobs()) == 1


def test_a_job_is_open_until_it_is_finished(harness: EnrichmentHarness) -> None:
    answer = harness.request()
    with harness.database.reading() as session:
        assert open_job(session, SIREN).id == answer.job_id
    harness.work(answer.job_id)
    with harness.database.reading() as session:
        assert open_job(session, SIREN) is None


KEY = f"{SIREN}:REQUEST_CREATED:2026-05-04"


def test_every_worker_request_has_its_own_key(harness: EnrichmentHarness) -> None:
    answer = harness.request()
    for _ in range(2):
        with harness.database.transaction() as session:
            request_workers(
                session, [session.get_one(EnrichmentJobRow, answer.job_id)], harness.clock.now()
            )
    [row, *_] = harness.rows_of(RunRequestRow)
    assert [key for key, _ in harness.run_requests()] == [KEY, f"{KEY}-retry-1", f"{KEY}-retry-2"]
    assert (row.job, row.tags["enrichment/siren"], row.tags["enrichment/trigger"]) == (
        "company_enrichment", SIREN, "REQUEST_CREATED",
    )  # fmt: skip
    assert row.tags["enrichment/job_id"] == str(answer.job_id)


def test_worker_requests_carry_the_correlation_id_of_the_first_requester(
    harness: EnrichmentHarness,
) -> None:
    with correlated("of-the-run"):
        answer = harness.request(tenant="t1")
        with harness.database.transaction() as session:
            request_workers(
                session, [session.get_one(EnrichmentJobRow, answer.job_id)], harness.clock.now()
            )
    assert [row.tags[CORRELATION_TAG] for row in harness.rows_of(RunRequestRow)] == [
        "of-t1",
        "of-t1",
    ]


def test_a_request_is_attached_to_a_job_only_once(harness: EnrichmentHarness) -> None:
    answer = harness.request()
    with harness.database.transaction() as session:
        job, request = open_job(session, SIREN), harness.request_row(answer.request_id)
        attach(session, job, request, "of-main", harness.clock.now())
    assert harness.attached_requests(answer.job_id) == [answer.request_id]


ANSWERED = SourceOutcome(
    source=SEARCH, duration_ms=5, record=source_record(SEARCH, creation_date=date(1955, 1, 1))
)


def started(harness: EnrichmentHarness, job_id: int, token: int) -> StartedJob | None:
    with harness.database.transaction() as session:
        return start_job(
            session,
            job_id,
            Claim("company_enrichment:1", f"worker-{token}", token),
            3,
            harness.clock.now(),
        )


def started_by_two(harness: EnrichmentHarness) -> tuple[StartedJob, StartedJob]:
    answer = harness.request()
    first, second = started(harness, answer.job_id, 5), started(harness, answer.job_id, 6)
    assert first is not None
    assert second is not None
    return first, second


@pytest.mark.parametrize("token", [4, 5])
def test_a_job_is_started_only_with_a_higher_token(harness: EnrichmentHarness, token: int) -> None:
    answer = harness.request()
    assert started(harness, answer.job_id, 5) is not None
    assert started(harness, answer.job_id, token) is None
    assert (harness.job(answer.job_id).attempt, len(harness.events("Started"))) == (1, 1)


def test_a_finished_job_is_not_started_again(harness: EnrichmentHarness) -> None:
    answer = harness.enriched()
    assert started(harness, answer.job_id, 10**12) is None
    assert harness.enrichment().status == "SUCCESS"


def test_a_worker_with_an_outdated_token_writes_nothing(harness: EnrichmentHarness) -> None:
    late, current = started_by_two(harness)
    now, before = harness.advance(seconds=30), harness.events()
    for write in (
        lambda session: save_outcome(session, late, ANSWERED, now),
        lambda session: finish_job(session, late, harness.options, now),
    ):
        with pytest.raises(LostJobError), harness.database.transaction() as session:
            write(session)
    with harness.database.transaction() as session:
        record_heartbeat(session, late, now)
    job = harness.job(current.facts.job_id)
    assert (job.state, job.lock_token, job.heartbeat_at == now) == ("RUNNING", 6, False)
    assert (harness.source_rows(job.id), harness.company(), harness.events()) == ({}, None, before)
    with harness.database.transaction() as session:
        save_outcome(session, current, ANSWERED, now)
        record_heartbeat(session, current, now)
    assert list(harness.source_rows(job.id)) == [SEARCH]
    assert harness.job(job.id).heartbeat_at == now


def test_a_finished_job_cannot_be_finished_again(harness: EnrichmentHarness) -> None:
    _, current = started_by_two(harness)
    with harness.database.transaction() as session:
        save_outcome(session, current, ANSWERED, harness.clock.now())
        finish_job(session, current, harness.options, harness.clock.now())
    with pytest.raises(LostJobError), harness.database.transaction() as session:
        finish_job(session, current, harness.options, harness.clock.now())
    assert len(harness.events("Completed")) == 1


def test_outcomes_are_read_in_call_order(harness: EnrichmentHarness) -> None:
    _, current = started_by_two(harness)
    failed = SourceOutcome(source=RCS, duration_ms=7, attempts=3, error=DOWN)
    with harness.database.transaction() as session:
        for outcome in (failed, ANSWERED):
            save_outcome(session, current, outcome, harness.clock.now())
    with harness.database.reading() as session:
        known = outcomes_of(session, current.facts.job_id)
    assert list(known) == [SEARCH, RCS]
    record, error = known[SEARCH].record, known[RCS].error
    assert record is not None
    assert ANSWERED.record is not None
    assert (record.fields, record.document) == (ANSWERED.record.fields, ANSWERED.record.document)
    assert error is not None
    assert (error.error_code, error.http_status, error.retryable, known[RCS].attempts) == (
        "UPSTREAM_5XX",
        503,
        True,
        3,
    )


def test_a_restarted_job_knows_the_sources_already_called(harness: EnrichmentHarness) -> None:
    answer = harness.request()
    harness.work_and_die(answer.job_id, RCS)
    again = started(harness, answer.job_id, 10**12)
    assert again is not None
    assert again.called == {SEARCH, INPI}
    assert again.facts.attempt == 2


def test_an_unknown_job_id_raises_not_found(harness: EnrichmentHarness) -> None:
    with pytest.raises(NotFoundError, match="job 99"), harness.database.reading() as session:
        siren_of(session, 99)


@given(
    st.builds(CompanyFields, legal_name=st.none() | st.text(), creation_date=st.none() | st.dates())
)
def test_stored_company_fields_are_read_back_unchanged(fields: CompanyFields) -> None:
    stored = {name: value for name, value in vars(fields).items() if value is not None}
    if fields.creation_date is not None:
        stored["creation_date"] = fields.creation_date.isoformat()
    assert fields_from(stored) == fields


def test_a_source_document_is_stored_unchanged(harness: EnrichmentHarness) -> None:
    _, current = started_by_two(harness)
    document = {"liste": [{"é": "œuvre"}, None, 1.5], "vide": {}}
    record = SourceRecord(siren="1", fields=CompanyFields(), document=document, is_masked=True)
    with harness.database.transaction() as session:
        save_outcome(
            session,
            current,
            SourceOutcome(source=INPI, duration_ms=1, record=record),
            harness.clock.now(),
        )
    row = harness.source_rows(current.facts.job_id)[SourceApi.INPI]
    assert (row.document, row.said, row.is_masked) == (document, {}, True)


def test_a_rolled_back_finish_leaves_no_visible_changes(harness: EnrichmentHarness) -> None:
    answer = harness.request()
    harness.work_and_die(answer.job_id, None)
    assert (
        harness.company(),
        harness.events("Completed"),
        harness.rows_of(CompanyDocumentRow),
    ) == (
        None,
        [],
        [],
    )
    assert harness.request_row(answer.request_id).enrichment_status == "RUNNING"
    assert harness.job(answer.job_id).finished_at is None


def test_the_snapshot_names_the_source_of_each_field(harness: EnrichmentHarness) -> None:
    with harness.database.reading() as session:
        assert known_of(session, SIREN) == (None, frozenset())
    harness.enriched()
    harness.set(FieldSourceRow, locked_by_user="user:7")
    with harness.database.reading() as session:
        snapshot, locked = known_of(session, SIREN)
    assert snapshot is not None
    assert snapshot.values.legal_name == "DANONE"
    assert {snapshot.sources[field] for field in ("legal_name", "legal_form", "rcs_city")} == {
        SEARCH,
        INPI,
        RCS,
    }
    assert locked == set(snapshot.sources)


def test_a_company_with_masked_data_is_marked(harness: EnrichmentHarness) -> None:
    harness.script(search=source_record(SEARCH, brand_name=None, is_masked=True))
    harness.enriched()
    company = harness.company()
    assert company is not None
    assert company.is_masked


def test_the_source_counts_are_stored_with_the_job(harness: EnrichmentHarness) -> None:
    harness.script(search=SILENT)
    answer = harness.enriched()
    job = harness.job(answer.job_id)
    assert (job.sources_success_count, job.required_failed_count, job.optional_failed_count) == (
        2,
        1,
        0,
    )
    assert (job.core_identity_present, job.enrichment_error) == (
        False,
        "API_RECHERCHE_ENTREPRISES:-:TIMEOUT",
    )
    assert job.finished_at == harness.enrichment().last_run_at == harness.clock.now()


def test_a_request_with_a_future_timestamp_is_also_completed(harness: EnrichmentHarness) -> None:
    answer = harness.request()
    harness.set_request(answer.request_id, created_at=harness.clock.now().replace(minute=5))
    harness.work(answer.job_id)
    assert harness.request_row(answer.request_id).enrichment_status == "SUCCESS"


@pytest.mark.parametrize(
    ("inpi", "form", "source"), [(DOWN, "5510", INPI), (UNKNOWN, "5599", SEARCH)]
)
def test_a_failing_source_with_priority_keeps_its_value_and_time(
    harness: EnrichmentHarness, inpi: SourceError, form: str, source: SourceApi
) -> None:
    harness.enriched()
    first_run_at = harness.clock.now()
    harness.advance(days=30)
    harness.script(search=source_record(SEARCH, legal_form="5599"), inpi=inpi)
    harness.enriched()
    company = harness.company()
    assert company is not None
    assert company.legal_form == form
    [row] = [one for one in harness.rows_of(FieldSourceRow) if one.field == "legal_form"]
    assert (row.source_api, row.fetched_at == first_run_at) == (source, source == INPI)
    assert (harness.jobs()[-1].changes is None) is (source == INPI)


def test_the_outcomes_of_an_abandoned_job_are_counted_and_stored(
    harness: EnrichmentHarness,
) -> None:
    harness.script(inpi=DOWN)
    answer = harness.request()
    for _ in range(3):
        harness.work_and_die(answer.job_id, RCS)
        harness.advance(seconds=120)
    harness.work(answer.job_id)
    job = harness.job(answer.job_id)
    assert (job.status, job.sources_success_count, job.required_failed_count, job.optional_failed_count) == (
        "FAILED", 1, 0, 1,
    )  # fmt: skip
    assert (job.core_identity_present, job.enrichment_error) == (
        False,
        "INPI_RNE:503:UPSTREAM_5XX|-:-:INTERNAL_ERROR",
    )
    assert [row.source_api for row in harness.rows_of(CompanyDocumentRow)] == [SEARCH]
    last_calls = {
        row.source_api: (row.last_status, row.last_error) for row in harness.rows_of(RetrievalRow)
    }
    assert last_calls == {SEARCH: ("SUCCESS", None), INPI: ("FAILED", "UPSTREAM_5XX")}
    assert harness.company() is None


@pytest.mark.parametrize(
    ("trigger", "at", "expected"),
    [
        ("REQUEST_OPENED", datetime(2026, 5, 4, 0, 0, tzinfo=UTC), True),
        ("REQUEST_OPENED", datetime(2026, 5, 3, 23, 59, tzinfo=UTC), False),
        ("MANUAL_REFRESH", datetime(2026, 5, 4, 9, 0, tzinfo=UTC), False),
    ],
)
def test_only_jobs_opened_since_midnight_count_as_opened_today(
    harness: EnrichmentHarness, trigger: str, at: datetime, expected: bool
) -> None:
    harness.request()
    harness.set(EnrichmentJobRow, trigger=trigger, created_at=at)
    with harness.database.reading() as session:
        assert was_opened_today(session, SIREN, harness.clock.now()) is expected
        assert not was_opened_today(session, "732829320", harness.clock.now())
