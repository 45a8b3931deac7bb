"""Steps on Celery workers with PostgreSQL and Redis. One worker is killed during a run."""

from collections.abc import Iterator

import pytest

from automation_pipeline.simulator import Kind, World
from automation_pipeline_tests.e2e.celery_workers import use_celery, worker
from automation_pipeline_tests.e2e.conftest import FIRST_DAY, NewSystem
from automation_pipeline_tests.e2e.system import TIMEOUT_SECONDS, kill_tree
from automation_pipeline_tests.postgres import new_database
from automation_pipeline_tests.simulator_control import running_simulator
from automation_pipeline_tests.waiting import wait_until

IDS = [
    fiche.id for fiche in World(7, 120, vary=False).day(FIRST_DAY) if fiche.kind is Kind.ORDINARY
][:60]
FETCHED = "SELECT fiche_id FROM automation_run_fiche_results WHERE stage = 'fetched' OR status <> 'pending'"


@pytest.fixture
def dagster_url(postgres_server: str) -> Iterator[str]:
    with new_database(postgres_server) as url:
        yield url


@pytest.mark.timeout(900)
def test_after_the_loss_of_a_worker_the_other_one_finishes_the_run(
    new_system: NewSystem, dagster_url: str, redis_url: str
) -> None:
    with running_simulator("--exact", "--fiches-per-day", "120", "--latency", "0.6") as url:
        system = new_system(
            kind="postgres", at=url, FICHE_FETCH_CONCURRENCY="3", AUTOMATION_LOST_AFTER_SECONDS="30"
        )
        use_celery(system, dagster_url, redis_url)
        one, two = (
            worker(system, "one", "--concurrency", "1"),
            worker(system, "two", "--concurrency", "1"),
        )
        with one as first, two as second, system.daemon():
            run_id = system.run_now(system.create_schedule(IDS))
            wait_until(lambda: len(system.sql(FETCHED)) >= 10, 2 * TIMEOUT_SECONDS, every=0.1)
            [step, *_] = system.wait_for(
                "SELECT worker FROM step_beats WHERE step_key LIKE 'fetch_batch%' ORDER BY beat_at DESC"
            )
            pid = int(step["worker"].rpartition(":")[2])
            of_first = {process.pid for process in first.children(recursive=True)}
            kill_tree(first.pid if pid in of_first else second.pid)
            fetched = {row["fiche_id"] for row in system.sql(FETCHED)}
            calls = system.calls("crm.details")
            run = system.wait_for_end(run_id)
        assert run["status"] == "completed"
        assert run["selectedFiches"] == run["successfulFiches"] == len(IDS)
        assert run["attempt"] > 1
        now = system.calls("crm.details")
        assert {fiche_id for fiche_id in fetched if now[fiche_id] != calls[fiche_id]} == set()
