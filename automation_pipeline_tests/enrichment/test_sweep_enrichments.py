"""The enrichment sweep: it replaces lost workers, marks old companies as stale, and refreshes due ones."""

from datetime import timedelta

import pytest
from sqlalchemy import select, update

from automation_pipeline.enrichment.models import LOST_LEASES, claim_key
from automation_pipeline.enrichment.sources import set_rest
from automation_pipeline.enrichment.tables import CompanyRow, EnrichmentRow, SourceStatusRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness
from automation_pipeline_tests.enrichment.scripted import DOWN, INPI, NOT_FOUND, SEARCH, SIREN
from automation_pipeline_tests.fiches.queries.mirror import statements

# The sweep refreshes EARLY after 30 days and LATE after 33.
EARLY, LATE = "100000000", "100000999"


def enrich_many(harness: EnrichmentHarness, number: int) -> list[str]:
    """Enrich companies that are all due after thirty days."""
    sirens = [f"2{index:08}" for index in range(number)]
    for siren in sirens:
        harness.enriched(siren)
    harness.set(EnrichmentRow, due_at=harness.clock.now() + timedelta(days=30))
    return sirens


def test_a_snapshot_becomes_stale_at_exactly_thirty_days(harness: EnrichmentHarness) -> None:
    answer = harness.enriched(LATE)
    harness.advance(days=29, hours=23)
    assert harness.sweep().stale == 0
    harness.advance(hours=1)
    assert harness.sweep().stale == 1
    assert (
        harness.enrichment(LATE).status
        == harness.request_row(answer.request_id).enrichment_status
        == "STALE"
    )
    assert harness.company(LATE) is not None
    assert harness.sweep().stale == 0


def test_companies_enriched_in_one_night_are_refreshed_over_several(
    harness: EnrichmentHarness,
) -> None:
    for siren in (EARLY, LATE):
        harness.enriched(siren)
    harness.advance(days=29, hours=23)
    assert (harness.sweep().stale, harness.enrichment(EARLY).status) == (0, "SUCCESS")
    harness.advance(hours=1)
    assert harness.sweep().refreshed == 1
    last = harness.transitions(EARLY)[-1]
    assert (last.from_state, last.to_state, last.actor, last.reason, last.at) == (
        "SUCCESS",
        "STALE",
        "sweep",
        "The data has expired.",
        harness.clock.now(),
    )
    assert [job.company_siren for job in harness.jobs()[2:]] == [EARLY]
    assert {row.enrichment_status for row in harness.requests() if row.company_siren == EARLY} == {
        "STALE"
    }
    harness.work(harness.jobs()[-1].id)
    harness.advance(days=2, hours=23)
    assert (harness.sweep().refreshed, harness.enrichment(LATE).status) == (0, "STALE")
    harness.advance(hours=1)
    assert harness.sweep().refreshed == 1


def test_a_fresh_company_is_refreshed_when_it_is_due(harness: EnrichmentHarness) -> None:
    answer = harness.enriched()
    now = harness.advance(days=1)
    harness.set(EnrichmentRow, due_at=now)
    assert (harness.sweep().stale, len(harness.jobs())) == (0, 2)
    last, row = harness.transitions()[-1], harness.request_row(answer.request_id)
    assert (last.from_state, last.to_state, last.reason) == (
        "SUCCESS",
        "STALE",
        "The refresh is due.",
    )
    assert (row.enrichment_status, row.updated_at) == ("STALE", now)


def test_a_refresh_without_a_request_is_published_once(harness: EnrichmentHarness) -> None:
    harness.enriched()
    harness.advance(days=33)
    report = harness.sweep()
    [_, job] = harness.jobs()
    assert str(report) == (
        "1 companies became stale; 1 refreshes and 0 replacement workers were requested."
    )
    assert (job.trigger, job.requested_by_tenant, job.priority) == ("STALE_SWEEP", "main", 1)
    assert (job.company_siret, len(job.correlation_id)) == (None, 32)
    [run_request] = [row for row in harness.rows_of(RunRequestRow) if row.request_key == job.key]
    assert run_request.tags["dagster/priority"] == "1"
    harness.work(job.id)
    events = harness.events("Completed")[-1]
    assert (events.tenant_id, events.payload["job_id"], events.payload["enrichment_status"]) == (
        "main",
        str(job.id),
        "SUCCESS",
    )
    assert harness.requests()[0].enrichment_status == "SUCCESS"
    assert harness.sweep().refreshed == 0


def test_the_sweep_starts_with_the_longest_overdue_companies(harness: EnrichmentHarness) -> None:
    sirens = enrich_many(harness, 3)
    harness.advance(days=31)
    with harness.database.transaction() as session:
        for index, siren in enumerate(reversed(sirens)):
            due = harness.clock.now() - timedelta(days=1, seconds=-index)
            session.execute(
                update(EnrichmentRow).where(EnrichmentRow.siren == siren).values(due_at=due)
            )
    assert harness.sweep(limit=2).refreshed == 2
    assert [job.company_siren for job in harness.jobs()[3:]] == [sirens[2], sirens[1]]


def test_the_sweep_skips_a_company_with_an_open_job(harness: EnrichmentHarness) -> None:
    harness.enriched()
    harness.advance(days=33)
    harness.request()
    report = harness.sweep()
    assert (report.refreshed, report.stale) == (0, 0)
    assert len(harness.jobs()) == 2


@pytest.mark.parametrize(
    ("calls_a_day", "used", "refreshed"),
    [(10, 0, 3), (10, 6, 2), (10, 8, 0), (10, 20, 0), (2, 0, 1)],
)
def test_the_sweep_reserves_a_fifth_of_the_daily_quota_for_requests(
    harness: EnrichmentHarness, calls_a_day: int, used: int, refreshed: int
) -> None:
    enrich_many(harness, 3)
    now = harness.advance(days=30)
    harness.set(SourceStatusRow, quota_on=now.date(), quota_used=used)
    harness.calls_a_day = {INPI: calls_a_day}
    assert harness.sweep().refreshed == refreshed


def test_planned_refreshes_count_towards_the_daily_quota(harness: EnrichmentHarness) -> None:
    enrich_many(harness, 3)
    harness.advance(days=30)
    harness.calls_a_day = {INPI: 3}
    assert [harness.sweep().refreshed for _ in range(3)] == [2, 0, 0]


def test_nothing_is_refreshed_while_the_required_source_rests(harness: EnrichmentHarness) -> None:
    enrich_many(harness, 1)
    now = harness.advance(days=30)
    with harness.database.transaction() as session:
        set_rest(session, SEARCH, timedelta(minutes=1), "It is busy.", now)
    report = harness.sweep()
    assert (report.stale, report.refreshed) == (1, 0)
    harness.advance(minutes=1)
    assert harness.sweep().refreshed == 1


@pytest.mark.parametrize(
    ("search", "rcs", "status"), [(NOT_FOUND, (), "FAILED"), ((), DOWN, "PARTIAL")]
)
def test_incomplete_enrichments_are_refreshed_when_due(
    harness: EnrichmentHarness, search: object, rcs: object, status: str
) -> None:
    harness.script(search=search, rcs=rcs)
    harness.enriched()
    due = harness.enrichment().due_at
    assert due is not None
    harness.clock.advance(due - harness.clock.now() - timedelta(seconds=1))
    assert harness.sweep().refreshed == 0
    harness.advance(seconds=1)
    assert harness.sweep().refreshed == 1
    harness.work(harness.jobs()[-1].id)
    assert (status, "RUNNING") in harness.moves()


def test_a_worker_is_requested_again_for_a_job_that_was_not_started(
    harness: EnrichmentHarness,
) -> None:
    answer = harness.request()
    harness.take_requests()
    harness.advance(seconds=299)
    assert harness.sweep().replaced_workers == 0
    harness.advance(seconds=1)
    assert harness.sweep().replaced_workers == 1
    assert harness.run_requests()[-1][0] == f"{harness.job(answer.job_id).key}-retry-1"


def test_no_worker_is_requested_again_while_a_request_is_waiting(
    harness: EnrichmentHarness,
) -> None:
    harness.request()
    harness.advance(hours=5)
    assert harness.sweep().replaced_workers == 0
    harness.take_requests()
    assert [harness.sweep().replaced_workers for _ in range(2)] == [1, 0]
    harness.advance(hours=5)
    assert harness.sweep().replaced_workers == 0


def test_a_lost_worker_is_replaced_once(harness: EnrichmentHarness) -> None:
    answer = harness.request()
    harness.take_requests()
    harness.work_and_die(answer.job_id)
    harness.advance(seconds=119)
    assert harness.sweep().replaced_workers == 0
    harness.advance(seconds=1)
    assert harness.sweep().replaced_workers == 1
    harness.take_requests()
    assert harness.sweep().replaced_workers == 0
    assert harness.claim_owner() is None
    harness.advance(seconds=120)
    assert harness.sweep().replaced_workers == 1


def test_a_sweep_takes_a_constant_number_of_queries(harness: EnrichmentHarness) -> None:
    lost = harness.request(SIREN)
    harness.take_requests()
    harness.work_and_die(lost.job_id)
    enrich_many(harness, 1)
    harness.advance(days=30)
    with statements(harness.database) as small:
        assert (harness.sweep().refreshed, harness.sweep().stale) == (1, 0)
    rows = harness.rows(select(CompanyRow))
    with harness.database.transaction() as session:
        for index in range(20):
            siren = f"3{index:08}"
            copied = {column: getattr(rows[0], column) for column in ("legal_name", "updated_at")}
            session.add(CompanyRow(siren=siren, is_masked=False, **copied))
            times = {
                "due_at": copied["updated_at"],
                "created_at": copied["updated_at"],
                "updated_at": copied["updated_at"],
            }
            session.add(EnrichmentRow(siren=siren, status="SUCCESS", retries=0, **times))
    with statements(harness.database) as large:
        assert (harness.sweep().refreshed, harness.sweep().stale) == (20, 0)
    assert len(queries(large)) <= len(queries(small))


def queries(sent: list[str]) -> list[str]:
    """Without inserts, which take one statement per row on SQLite."""
    return [one for one in sent if one.startswith(("SELECT", "UPDATE"))]


def job_blocked_by_dead_worker(harness: EnrichmentHarness) -> int | None:
    """A job whose worker finds the lease of an earlier worker that died before its release."""
    harness.enriched()
    harness.advance(days=31)
    lock = harness.claims.take(claim_key(SIREN), "dead", harness.options.lock_seconds)
    assert lock is not None
    answer = harness.request()
    harness.take_requests()
    harness.advance(seconds=5)
    assert harness.work(answer.job_id).state == "PENDING"
    return answer.job_id


def test_a_worker_blocked_by_the_lease_of_a_dead_one_is_replaced_after_its_expiry(
    harness: EnrichmentHarness,
) -> None:
    job_id = job_blocked_by_dead_worker(harness)
    harness.advance(seconds=119)
    assert harness.sweep().replaced_workers == 0
    harness.advance(seconds=1)
    assert harness.sweep().replaced_workers == 1
    assert harness.claim_owner() is None
    harness.take_requests()
    assert harness.work(job_id).status == "SUCCESS"


def test_a_replacement_worker_has_the_usual_time_to_start(harness: EnrichmentHarness) -> None:
    job_blocked_by_dead_worker(harness)
    harness.advance(seconds=120)
    assert harness.sweep().replaced_workers == 1
    harness.take_requests()
    harness.advance(seconds=299)
    assert harness.sweep().replaced_workers == 0
    harness.advance(seconds=1)
    assert harness.sweep().replaced_workers == 1


def test_only_a_started_worker_counts_as_a_lost_lease(harness: EnrichmentHarness) -> None:
    job_blocked_by_dead_worker(harness)
    harness.advance(seconds=300)
    assert harness.sweep().replaced_workers == 1
    assert LOST_LEASES not in {name for name, _ in harness.meter.drain()}
    harness.take_requests()
    harness.work_and_die(harness.jobs()[-1].id)
    harness.advance(seconds=300)
    assert harness.sweep().replaced_workers == 1
    counted = {name: amount for (name, _), amount in harness.meter.drain().items()}
    assert counted.get(LOST_LEASES) == 1
