"""The enrichment sweep: lost workers are replaced, old companies become stale, due ones are refreshed."""

from datetime import timedelta

import pytest
from sqlalchemy import select, update

from automation_pipeline.enrichment.models import LOST_LEASES, claim_key
from automation_pipeline.enrichment.sources import set_rest
from automation_pipeline.enrichment.tables import CompanyRow, EnrichmentRow, SourceStatusRow
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import DOWN, INPI, NOT_FOUND, SEARCH, SIREN
from automation_pipeline_tests.fiches.queries.mirror import statements

# The refresh of the first is due after 27 days, that of the second after 33.
EARLY, LATE = "100000000", "100000999"


def many(bench: Bench, number: int) -> list[str]:
    """Enrich companies that all become due after thirty days."""
    sirens = [f"2{index:08}" for index in range(number)]
    for siren in sirens:
        bench.enriched(siren)
    bench.set(EnrichmentRow, due_at=bench.clock.now() + timedelta(days=30))
    return sirens


def test_a_snapshot_becomes_stale_at_exactly_thirty_days(bench: Bench) -> None:
    answer = bench.enriched(LATE)
    bench.pass_time(days=29, hours=23)
    assert bench.sweep().stale == 0
    bench.pass_time(hours=1)
    assert bench.sweep().stale == 1
    assert (
        bench.enrichment(LATE).status
        == bench.request_row(answer.request_id).enrichment_status
        == "STALE"
    )
    assert bench.company(LATE) is not None
    assert bench.sweep().stale == 0


def test_companies_enriched_in_one_night_are_refreshed_over_several(bench: Bench) -> None:
    for siren in (EARLY, LATE):
        bench.enriched(siren)
    bench.pass_time(days=29, hours=23)
    assert (bench.sweep().stale, bench.enrichment(EARLY).status) == (0, "SUCCESS")
    bench.pass_time(hours=1)
    assert bench.sweep().refreshed == 1
    assert bench.moves(EARLY)[-1] == ("SUCCESS", "STALE")
    assert [job.company_siren for job in bench.jobs()[2:]] == [EARLY]
    assert {row.enrichment_status for row in bench.requests() if row.company_siren == EARLY} == {
        "STALE"
    }
    bench.work(bench.jobs()[-1].id)
    bench.pass_time(days=2, hours=23)
    assert (bench.sweep().refreshed, bench.enrichment(LATE).status) == (0, "STALE")
    bench.pass_time(hours=1)
    assert bench.sweep().refreshed == 1


def test_a_refresh_without_a_request_is_published_once(bench: Bench) -> None:
    bench.enriched()
    bench.pass_time(days=33)
    report = bench.sweep()
    [_, job] = bench.jobs()
    assert str(report) == "1 grew stale; 1 are refreshed; 0 workers were asked for again."
    assert (job.trigger, job.requested_by_tenant) == ("STALE_SWEEP", "main")
    assert job.priority < bench.jobs()[0].priority
    bench.work(job.id)
    events = bench.events("Completed")[-1]
    assert (events.tenant_id, events.payload["job_id"], events.payload["enrichment_status"]) == (
        "main",
        str(job.id),
        "SUCCESS",
    )
    assert bench.requests()[0].enrichment_status == "SUCCESS"
    assert bench.sweep().refreshed == 0


def test_the_sweep_starts_with_the_longest_overdue_companies(bench: Bench) -> None:
    sirens = many(bench, 3)
    bench.pass_time(days=31)
    with bench.database.transaction() as session:
        for index, siren in enumerate(reversed(sirens)):
            due = bench.clock.now() - timedelta(days=1, seconds=-index)
            session.execute(
                update(EnrichmentRow).where(EnrichmentRow.siren == siren).values(due_at=due)
            )
    assert bench.sweep(limit=2).refreshed == 2
    assert [job.company_siren for job in bench.jobs()[3:]] == [sirens[2], sirens[1]]


def test_the_sweep_skips_a_company_with_an_open_job(bench: Bench) -> None:
    bench.enriched()
    bench.pass_time(days=33)
    bench.request()
    report = bench.sweep()
    assert (report.refreshed, report.stale) == (0, 0)
    assert len(bench.jobs()) == 2


@pytest.mark.parametrize(
    ("calls_a_day", "used", "refreshed"),
    [(10, 0, 3), (10, 6, 2), (10, 8, 0), (10, 20, 0), (2, 0, 1)],
)
def test_the_sweep_reserves_a_fifth_of_the_daily_quota_for_requests(
    bench: Bench, calls_a_day: int, used: int, refreshed: int
) -> None:
    many(bench, 3)
    now = bench.pass_time(days=30)
    bench.set(SourceStatusRow, quota_on=now.date(), quota_used=used)
    bench.a_day = {INPI: calls_a_day}
    assert bench.sweep().refreshed == refreshed


def test_planned_refreshes_count_towards_the_daily_quota(bench: Bench) -> None:
    many(bench, 3)
    bench.pass_time(days=30)
    bench.a_day = {INPI: 3}
    assert [bench.sweep().refreshed for _ in range(3)] == [2, 0, 0]


def test_nothing_is_refreshed_while_the_required_source_rests(bench: Bench) -> None:
    many(bench, 1)
    now = bench.pass_time(days=30)
    with bench.database.transaction() as session:
        set_rest(session, SEARCH, timedelta(minutes=1), "It is busy.", now)
    report = bench.sweep()
    assert (report.stale, report.refreshed) == (1, 0)
    bench.pass_time(minutes=1)
    assert bench.sweep().refreshed == 1


@pytest.mark.parametrize(
    ("search", "rcs", "status"), [(NOT_FOUND, (), "FAILED"), ((), DOWN, "PARTIAL")]
)
def test_incomplete_enrichments_are_refreshed_when_due(
    bench: Bench, search: object, rcs: object, status: str
) -> None:
    bench.script(search=search, rcs=rcs)
    bench.enriched()
    due = bench.enrichment().due_at
    assert due is not None
    bench.clock.pass_time(due - bench.clock.now() - timedelta(seconds=1))
    assert bench.sweep().refreshed == 0
    bench.pass_time(seconds=1)
    assert bench.sweep().refreshed == 1
    bench.work(bench.jobs()[-1].id)
    assert (status, "RUNNING") in bench.moves()


def test_a_worker_is_requested_again_for_a_job_that_was_not_started(bench: Bench) -> None:
    answer = bench.request()
    bench.take_requests()
    bench.pass_time(seconds=299)
    assert bench.sweep().asked_again == 0
    bench.pass_time(seconds=1)
    assert bench.sweep().asked_again == 1
    assert bench.run_requests()[-1][0] == f"{bench.job(answer.job_id).key}-retry-1"


def test_no_worker_is_requested_again_while_a_request_is_waiting(bench: Bench) -> None:
    bench.request()
    bench.pass_time(hours=5)
    assert bench.sweep().asked_again == 0
    bench.take_requests()
    assert [bench.sweep().asked_again for _ in range(2)] == [1, 0]
    bench.pass_time(hours=5)
    assert bench.sweep().asked_again == 0


def test_a_lost_worker_is_replaced_once(bench: Bench) -> None:
    answer = bench.request()
    bench.take_requests()
    bench.work_and_die(answer.job_id)
    bench.pass_time(seconds=119)
    assert bench.sweep().asked_again == 0
    bench.pass_time(seconds=1)
    assert bench.sweep().asked_again == 1
    bench.take_requests()
    assert bench.sweep().asked_again == 0
    assert bench.holder() is None
    bench.pass_time(seconds=120)
    assert bench.sweep().asked_again == 1


def test_a_sweep_takes_a_constant_number_of_queries(bench: Bench) -> None:
    lost = bench.request(SIREN)
    bench.take_requests()
    bench.work_and_die(lost.job_id)
    many(bench, 1)
    bench.pass_time(days=30)
    with statements(bench.database) as small:
        assert (bench.sweep().refreshed, bench.sweep().stale) == (1, 0)
    rows = bench.rows(select(CompanyRow))
    with bench.database.transaction() as session:
        for index in range(20):
            siren = f"3{index:08}"
            kept = {column: getattr(rows[0], column) for column in ("legal_name", "updated_at")}
            session.add(CompanyRow(siren=siren, is_masked=False, **kept))
            times = {
                "due_at": kept["updated_at"],
                "created_at": kept["updated_at"],
                "updated_at": kept["updated_at"],
            }
            session.add(EnrichmentRow(siren=siren, status="SUCCESS", **times))
    with statements(bench.database) as large:
        assert (bench.sweep().refreshed, bench.sweep().stale) == (20, 0)
    assert len(queries(large)) <= len(queries(small))


def queries(sent: list[str]) -> list[str]:
    """Without inserts, which take one statement per row on SQLite."""
    return [one for one in sent if one.startswith(("SELECT", "UPDATE"))]


def job_blocked_by_dead_worker(bench: Bench) -> int | None:
    """A job whose worker finds the lease of an earlier worker that died before its release."""
    bench.enriched()
    bench.pass_time(days=31)
    lock = bench.claims.take(claim_key(SIREN), "dead", bench.options.lock_seconds)
    assert lock is not None
    answer = bench.request()
    bench.take_requests()
    bench.pass_time(seconds=5)
    assert bench.work(answer.job_id).state == "PENDING"
    return answer.job_id


def test_a_worker_blocked_by_the_lease_of_a_dead_one_is_replaced_after_its_expiry(
    bench: Bench,
) -> None:
    job_id = job_blocked_by_dead_worker(bench)
    bench.pass_time(seconds=119)
    assert bench.sweep().asked_again == 0
    bench.pass_time(seconds=1)
    assert bench.sweep().asked_again == 1
    assert bench.holder() is None
    bench.take_requests()
    assert bench.work(job_id).status == "SUCCESS"


def test_a_replacement_worker_has_the_usual_time_to_start(bench: Bench) -> None:
    job_blocked_by_dead_worker(bench)
    bench.pass_time(seconds=120)
    assert bench.sweep().asked_again == 1
    bench.take_requests()
    bench.pass_time(seconds=299)
    assert bench.sweep().asked_again == 0
    bench.pass_time(seconds=1)
    assert bench.sweep().asked_again == 1


def test_only_a_started_worker_counts_as_a_lost_lease(bench: Bench) -> None:
    job_blocked_by_dead_worker(bench)
    bench.pass_time(seconds=300)
    assert bench.sweep().asked_again == 1
    assert LOST_LEASES not in {name for name, _ in bench.meter.drain()}
    bench.take_requests()
    bench.work_and_die(bench.jobs()[-1].id)
    bench.pass_time(seconds=300)
    assert bench.sweep().asked_again == 1
    counted = {name: amount for (name, _), amount in bench.meter.drain().items()}
    assert counted.get(LOST_LEASES) == 1
