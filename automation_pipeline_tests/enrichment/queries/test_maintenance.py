"""Queries of the enrichment sweep."""

from automation_pipeline.core.logs import CORRELATION_TAG, correlated
from automation_pipeline.enrichment.sweep import (
    count_open_jobs,
    mark_stale,
    refresh_due,
    request_lost_jobs,
)
from automation_pipeline.enrichment.tables import EnrichmentRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness
from automation_pipeline_tests.enrichment.processes import sweep
from automation_pipeline_tests.enrichment.scripted import SIREN
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes

SIRENS = [f"2{number:08}" for number in range(6)]


def test_concurrent_sweeps_refresh_each_company_once(
    harness: EnrichmentHarness, database_url: str
) -> None:
    for siren in SIRENS:
        harness.enriched(siren)
    now = harness.advance(days=40)
    harness.set(EnrichmentRow, due_at=now)
    run_in_processes(sweep, *[(database_url, now.isoformat())] * PROCESS_COUNT)
    sweep(database_url, now.isoformat())
    assert sorted(job.company_siren for job in harness.jobs()[len(SIRENS) :]) == SIRENS
    assert len(harness.run_requests()) == 2 * len(SIRENS)
    assert {harness.enrichment(siren).status for siren in SIRENS} == {"STALE"}
    assert {tuple(harness.moves(siren)[2:]) for siren in SIRENS} == {(("SUCCESS", "STALE"),)}


def test_each_part_of_a_sweep_respects_its_limit(harness: EnrichmentHarness) -> None:
    for siren in SIRENS[:3]:
        harness.enriched(siren)
    now = harness.advance(days=40)
    with harness.database.transaction() as session:
        assert [mark_stale(session, now, harness.options.freshness, 2) for _ in range(3)] == [
            2,
            1,
            0,
        ]
        assert [refresh_due(session, now, 2) for _ in range(3)] == [2, 1, 0]
        assert count_open_jobs(session) == 3
    harness.take_requests()
    now = harness.advance(minutes=5)
    with harness.database.transaction() as session:
        assert [len(request_lost_jobs(session, now, 120.0, 2)) for _ in range(3)] == [2, 1, 0]


def test_a_sweep_uses_its_own_correlation_id_and_keeps_those_of_other_jobs(
    harness: EnrichmentHarness,
) -> None:
    harness.enriched(SIRENS[0])
    harness.advance(days=40)
    harness.request(SIREN, tenant="t1")
    harness.take_requests()
    harness.advance(minutes=5)
    with correlated("of-the-tick"):
        harness.sweep()
    tags = [
        (row.tags["enrichment/siren"], row.tags[CORRELATION_TAG])
        for row in harness.rows_of(RunRequestRow)
    ]
    assert tags[2:] == [(SIREN, "of-t1"), (SIRENS[0], "of-the-tick")]
    job = harness.jobs()[-1]
    harness.work(job.id)
    assert job.correlation_id == harness.events("Started")[-1].correlation_id == "of-the-tick"


def test_a_job_is_open_until_it_is_finished(harness: EnrichmentHarness) -> None:
    answer = harness.request(SIREN)
    with harness.database.reading() as session:
        assert count_open_jobs(session) == 1
    harness.work(answer.job_id)
    with harness.database.reading() as session:
        assert count_open_jobs(session) == 0
