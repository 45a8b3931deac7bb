"""COMPANY_ENRICHMENT: asked for in the organisation's name, and followed until the registers have
answered."""

from typing import Any

import pytest
from sqlalchemy import event

from automation_pipeline.clients.service_jobs import CompanyEnrichmentJob
from automation_pipeline.core.errors import InvalidInputError, PermanentError
from automation_pipeline.org_jobs.models.job_types import checked_payload, job_type
from automation_pipeline.org_jobs.ports import RemoteRunner
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.clients.service_jobs.asked import Killed, asked, killed_after
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import NOT_FOUND, SEARCH, SIREN
from automation_pipeline_tests.tables import every_case

TYPE = "COMPANY_ENRICHMENT"


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


@pytest.fixture
def runner(bench: Bench) -> RemoteRunner:
    return CompanyEnrichmentJob(bench.database, bench.clock, lambda: bench.registries)


def end_of(runner: RemoteRunner, following: Any) -> Any:
    return runner.look({5: following}).get(5)


def test_a_company_is_asked_for_and_waited_for(bench: Bench, runner: RemoteRunner) -> None:
    following = runner.start(asked(TYPE, company=SIREN))
    (row,) = bench.requests()
    assert (row.tenant_id, row.company_siren, row.created_by) == ("acme", SIREN, "org-job:7")
    assert end_of(runner, following) is None
    bench.work(bench.jobs()[0].id)
    end = end_of(runner, following)
    assert (end.status, end.result) == (
        "success", {"companyRequestId": str(row.id), "siren": SIREN, "status": "SUCCESS"},
    )  # fmt: skip


def test_what_is_known_and_fresh_is_the_answer(bench: Bench, runner: RemoteRunner) -> None:
    runner.start(asked(TYPE, company=SIREN))
    bench.work(bench.jobs()[0].id)
    again = runner.start(asked(TYPE, org_id="globex", company=SIREN))
    assert (end_of(runner, again).status, len(bench.jobs())) == ("success", 1)


def test_an_unknown_company_is_a_failure(bench: Bench, runner: RemoteRunner) -> None:
    bench.script(search=NOT_FOUND)
    following = runner.start(asked(TYPE, company=f"{SIREN}00646"))
    bench.work(bench.jobs()[0].id)
    end = end_of(runner, following)
    assert (end.status, "API_RECHERCHE_ENTREPRISES:200:NOT_FOUND" in end.error) == ("failed", True)


def test_nothing_of_a_job_that_is_cancelled_is_left_to_be_stopped(
    bench: Bench, runner: RemoteRunner
) -> None:
    following = runner.start(asked(TYPE, company=SIREN))
    assert runner.cancel(following, "user:1", "Enough")
    assert bench.jobs()[0].state == "PENDING"


def test_a_worker_that_is_killed_leaves_nothing_behind(bench: Bench, runner: RemoteRunner) -> None:
    with pytest.raises(Killed):
        killed_after(lambda: runner.start(asked(TYPE, company=SIREN)), bench.database)
    assert (bench.requests(), bench.jobs()) == ([], [])


def test_a_missing_register_is_reported(database: Database, clock: StandingClock) -> None:
    bench = Bench(database, clock, without=frozenset({SEARCH}))
    runner = CompanyEnrichmentJob(database, clock, lambda: bench.registries)
    with pytest.raises(PermanentError, match="RECHERCHE_ENTREPRISES_BASE_URL"):
        runner.start(asked(TYPE, company=SIREN))


@every_case(
    "payload",
    [{}, {"company": "12"}, {"company": 1}, {"company": SIREN, "force": "yes"}, {"siren": SIREN}],
)
def test_what_names_no_company_is_refused_when_it_is_stored(payload: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        checked_payload(job_type(TYPE), payload)


def test_as_many_are_looked_at_with_as_many_questions(bench: Bench, runner: RemoteRunner) -> None:
    followed = {
        number: runner.start(asked(TYPE, org_id=f"org-{number}", company=SIREN))
        for number in range(6)
    }
    seen: list[str] = []
    event.listen(
        bench.database.engine, "before_cursor_execute", lambda *given: seen.append(given[2])
    )
    runner.look({0: followed[0]})
    few = len(seen)
    runner.look(followed)
    assert len(seen) == 2 * few
