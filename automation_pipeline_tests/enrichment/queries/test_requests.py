"""Queries about requests, the enrichment of a SIREN, and stored company data."""

from datetime import timedelta

import pytest
from sqlalchemy import event

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.enrichment.models import EnrichmentStatus
from automation_pipeline.enrichment.queries.jobs import get_job
from automation_pipeline.enrichment.queries.requests import (
    coverage_of,
    find_companies,
    get_request,
    known_request,
    list_requests,
    locked_enrichment,
    move_enrichment,
    request_of,
    request_statuses,
)
from automation_pipeline.enrichment.requests import is_answered, repeated_answer
from automation_pipeline.enrichment.rules.evaluation import CompanyCoverage
from automation_pipeline.enrichment.tables import EnrichmentRow, FieldSourceRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.defs.enrichment.register_services import set_up_enrichment
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness, requester
from automation_pipeline_tests.enrichment.scripted import (
    DOWN,
    INPI,
    NOT_FOUND,
    RCS,
    SEARCH,
    SIREN,
    source_record,
)
from automation_pipeline_tests.fiches.queries.mirror import statements


def test_the_enrichment_row_of_a_siren_is_created_once(harness: EnrichmentHarness) -> None:
    before = harness.clock.now()
    for _ in range(2):
        with harness.database.transaction() as session:
            row = locked_enrichment(session, SIREN, harness.advance(seconds=1))
    assert (row.status, row.created_at) == ("PENDING", before.replace(second=1))


def test_an_illegal_transition_changes_nothing(harness: EnrichmentHarness) -> None:
    harness.request()
    with harness.database.transaction() as session:
        row = locked_enrichment(session, SIREN, harness.clock.now())
        with pytest.raises(IllegalMoveError):
            move_enrichment(session, row, EnrichmentStatus.SUCCESS, "user:1", harness.clock.now())
    assert (harness.enrichment().status, harness.moves()) == ("PENDING", [])


def test_a_request_is_visible_only_to_its_tenant(harness: EnrichmentHarness) -> None:
    answer = harness.request(tenant="t1", key="k1")
    with harness.database.reading() as session:
        assert request_of(session, answer.request_id, "t1").company_siren == SIREN
        with pytest.raises(NotFoundError):
            request_of(session, answer.request_id, "t2")


@pytest.mark.parametrize(
    ("tenant", "key", "found"), [("t1", "k1", True), ("t2", "k1", False), ("t1", None, False)]
)
def test_a_request_is_found_by_tenant_and_idempotency_key(
    harness: EnrichmentHarness, tenant: str, key: str | None, found: bool
) -> None:
    harness.request(tenant="t1", key="k1")
    harness.request(tenant="t1")
    with harness.database.reading() as session:
        assert (known_request(session, requester(tenant, key)) is not None) is found


MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("columns", "age", "answered"),
    [
        ({"status": "SUCCESS"}, 29 * DAY, True),
        ({"status": "PARTIAL"}, 29 * DAY, True),
        ({"status": "FAILED", "enrichment_error": "X:-:TIMEOUT"}, 29 * DAY, True),
        ({"status": "STALE"}, 29 * DAY, False),
        ({"status": "SUCCESS"}, 30 * DAY, False),
        ({"status": "FAILED", "enrichment_error": "X:-:TIMEOUT"}, 30 * DAY, False),
    ],
)
def test_only_a_fresh_snapshot_answers_a_request(
    harness: EnrichmentHarness, columns: dict[str, str], age: timedelta, answered: bool
) -> None:
    harness.enriched()
    harness.set(EnrichmentRow, **columns)
    harness.clock.advance(age)
    with harness.database.transaction() as session:
        row = locked_enrichment(session, SIREN, harness.clock.now())
        assert is_answered(session, row, harness.options, harness.clock.now()) is answered


@pytest.mark.parametrize(("age", "answered"), [(14 * MINUTE, True), (15 * MINUTE, False)])
def test_a_failure_without_a_snapshot_answers_requests_for_fifteen_minutes(
    harness: EnrichmentHarness, age: timedelta, answered: bool
) -> None:
    harness.script(search=NOT_FOUND)
    harness.enriched()
    harness.clock.advance(age)
    with harness.database.transaction() as session:
        row = locked_enrichment(session, SIREN, harness.clock.now())
        assert is_answered(session, row, harness.options, harness.clock.now()) is answered


def test_a_company_without_a_snapshot_is_not_answered(harness: EnrichmentHarness) -> None:
    with harness.database.transaction() as session:
        row = locked_enrichment(session, SIREN, harness.clock.now())
        assert not is_answered(session, row, harness.options, harness.clock.now())


def test_a_repeated_request_returns_the_current_status(harness: EnrichmentHarness) -> None:
    answer = harness.request()
    answers = []
    for done in (False, True):
        if done:
            harness.work(answer.job_id)
        with harness.database.reading() as session:
            answers.append(repeated_answer(session, harness.request_row(answer.request_id)))
    assert [(one.outcome, one.status, one.job_id) for one in answers] == [
        ("ATTACHED", "PENDING", answer.job_id), ("CACHE_HIT", "SUCCESS", None),
    ]  # fmt: skip


def test_a_job_shows_the_result_of_each_call(harness: EnrichmentHarness) -> None:
    harness.script(rcs=DOWN)
    answer = harness.enriched()
    with harness.database.reading() as session:
        job = get_job(session, answer.job_id)
    calls = [
        (one.source_api, one.status, one.http_status, one.error_code, one.attempts)
        for one in job.sources
    ]
    assert calls == [
        (SEARCH, "SUCCESS", 200, None, 1), (INPI, "SUCCESS", 200, None, 1), (RCS, "FAILED", 503, "UPSTREAM_5XX", 3),
    ]  # fmt: skip
    assert as_document(job)["id"] == str(answer.job_id)


def test_an_unknown_job_id_raises_not_found(harness: EnrichmentHarness) -> None:
    with pytest.raises(NotFoundError, match="job 99"), harness.database.reading() as session:
        get_job(session, 99)


def test_an_unknown_company_is_not_in_the_result(harness: EnrichmentHarness) -> None:
    with harness.database.reading() as session:
        assert find_companies(session, [SIREN]) == {}


def test_a_field_set_by_a_user_names_the_user_as_its_source(harness: EnrichmentHarness) -> None:
    harness.enriched()
    harness.set(FieldSourceRow, source_api=None, locked_by_user="7")
    with harness.database.reading() as session:
        company = find_companies(session, [SIREN])[SIREN]
    assert company.field_sources["legal_name"] == "user:7"


def test_requests_are_paged_newest_first(harness: EnrichmentHarness) -> None:
    ids = [harness.request(siren, "t1").request_id for siren in (SIREN, "732829320", SIREN)]
    harness.request(SIREN, "t2")
    with harness.database.reading() as session:
        pages = [list_requests(session, "t1", limit=2, offset=offset) for offset in (0, 2)]
        of_one_siren = list_requests(session, "t1", siren=SIREN, limit=10)
    assert [[one.id for one in page] for page in pages] == [[ids[2], ids[1]], [ids[0]]]
    assert [one.id for one in of_one_siren] == [ids[2], ids[0]]


def test_showing_a_request_takes_a_constant_number_of_statements(
    harness: EnrichmentHarness,
) -> None:
    first = harness.request().request_id

    def statement_count() -> int:
        with statements(harness.database) as sent, harness.database.reading() as session:
            get_request(session, first, "main")
        return len(sent)

    before = statement_count()
    harness.work(harness.jobs()[0].id)
    assert statement_count() <= before + 1  # one for the field sources


SIRENS = ("552032534", "732829320", "356000000", "552032534")


def test_the_statuses_of_requests_take_a_constant_number_of_queries(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = set_up_enrichment(database, monkeypatch)
    request_ids = [setup.request(siren).request_id for siren in SIRENS]
    statements: list[str] = []
    event.listen(
        database.engine, "before_cursor_execute", lambda *expected: statements.append(expected[2])
    )
    counts = []
    for ids in (request_ids[:1], request_ids):
        statements.clear()
        with database.reading() as session:
            expected = request_statuses(session, ids)
        counts.append(sum("SELECT" in one for one in statements))
    assert [one.request.id for one in expected] == request_ids
    assert [
        (one.request.company_siren, one.enrichment_running, one.company) for one in expected
    ] == [(siren, True, None) for siren in SIRENS]
    assert counts[0] == counts[1]
    assert [one.job_id for one in expected] == [1, 2, 3, 1]


def test_the_coverage_counts_companies_by_status_and_age(harness: EnrichmentHarness) -> None:
    sirens = ("100000001", "100000002", "100000003", "100000004")
    for siren, masked in zip(sirens, (True, True, False, False), strict=True):
        harness.script(search=source_record(SEARCH, is_masked=masked))
        harness.enriched(siren)
        harness.advance(days=1)
    harness.script(search=NOT_FOUND)
    harness.enriched("100000005")
    with harness.database.transaction() as session:
        session.get_one(EnrichmentRow, "100000001").status = "STALE"
        now = harness.clock.now()
        coverage = coverage_of(session, now, timedelta(days=2))
        late = coverage_of(session, now + timedelta(hours=1), timedelta(days=2))
    statuses = dict.fromkeys(EnrichmentStatus, 0)
    assert coverage == CompanyCoverage(
        statuses=statuses | {"STALE": 1, "SUCCESS": 3, "FAILED": 1},
        ages={"up to a day": 0, "up to a week": 4, "up to 30 days": 0, "older": 0},
        masked=2,
        unexplained=0,
        overdue=1,
    )
    assert (late.overdue, coverage.enriched, coverage.companies, coverage.failed) == (2, 5, 4, 1)


def test_unknown_requests_are_omitted(database: Database) -> None:
    with database.reading() as session:
        assert list(request_statuses(session, [99])) == list(request_statuses(session, [])) == []
