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
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.processes import sweep
from automation_pipeline_tests.enrichment.scripted import SIREN
from automation_pipeline_tests.processes import CREW, at_once

SIRENS = [f"2{number:08}" for number in range(6)]


def test_concurrent_sweeps_refresh_each_company_once(bench: Bench, database_url: str) -> None:
    for siren in SIRENS:
        bench.enriched(siren)
    now = bench.pass_time(days=40)
    bench.set(EnrichmentRow, due_at=now)
    at_once(sweep, *[(database_url, now.isoformat())] * CREW)
    sweep(database_url, now.isoformat())
    assert sorted(job.company_siren for job in bench.jobs()[len(SIRENS) :]) == SIRENS
    assert len(bench.run_requests()) == 2 * len(SIRENS)
    assert {bench.enrichment(siren).status for siren in SIRENS} == {"STALE"}
    assert {tuple(bench.moves(siren)[2:]) for siren in SIRENS} == {(("SUCCESS", "STALE"),)}


def test_each_part_of_a_sweep_respects_its_limit(bench: Bench) -> None:
    for siren in SIRENS[:3]:
        bench.enriched(siren)
    now = bench.pass_time(days=40)
    with bench.database.transaction() as session:
        assert [mark_stale(session, now, bench.options.freshness, 2) for _ in range(3)] == [2, 1, 0]
        assert [refresh_due(session, now, 2) for _ in range(3)] == [2, 1, 0]
        assert count_open_jobs(session) == 3
    bench.take_requests()
    now = bench.pass_time(minutes=5)
    with bench.database.transaction() as session:
        assert [len(request_lost_jobs(session, now, 120.0, 2)) for _ in range(3)] == [2, 1, 0]


def test_a_sweep_uses_its_own_correlation_id_and_keeps_those_of_other_jobs(bench: Bench) -> None:
    bench.enriched(SIRENS[0])
    bench.pass_time(days=40)
    bench.request(SIREN, tenant="t1")
    bench.take_requests()
    bench.pass_time(minutes=5)
    with correlated("of-the-tick"):
        bench.sweep()
    tags = [
        (row.tags["enrichment/siren"], row.tags[CORRELATION_TAG])
        for row in bench.rows_of(RunRequestRow)
    ]
    assert tags[2:] == [(SIREN, "of-t1"), (SIRENS[0], "of-the-tick")]
    job = bench.jobs()[-1]
    bench.work(job.id)
    assert job.correlation_id == bench.events("Started")[-1].correlation_id == "of-the-tick"


def test_a_job_is_open_until_it_is_finished(bench: Bench) -> None:
    answer = bench.request(SIREN)
    with bench.database.reading() as session:
        assert count_open_jobs(session) == 1
    bench.work(answer.job_id)
    with bench.database.reading() as session:
        assert count_open_jobs(session) == 0
