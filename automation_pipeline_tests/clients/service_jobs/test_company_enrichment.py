"""COMPANY_ENRICHMENT jobs: request an enrichment for the organisation and follow it."""

from typing import Any

import pytest
from sqlalchemy import event

from automation_pipeline.clients.service_jobs import CompanyEnrichmentJob
from automation_pipeline.core.errors import InvalidInputError, PermanentError
from automation_pipeline.org_jobs.models.job_types import checked_payload, job_type
from automation_pipeline.org_jobs.ports import RemoteRunner
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.service_jobs.job_contexts import (
    Killed,
    job_context,
    killed_after,
)
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness
from automation_pipeline_tests.enrichment.scripted import NOT_FOUND, SEARCH, SIREN
from automation_pipeline_tests.fakes.clock import FakeClock

TYPE = "COMPANY_ENRICHMENT"


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> EnrichmentHarness:
    return EnrichmentHarness(database, clock)


@pytest.fixture
def runner(harness: EnrichmentHarness) -> RemoteRunner:
    return CompanyEnrichmentJob(harness.database, harness.clock, lambda: harness.registries)


def end_of(runner: RemoteRunner, following: Any) -> Any:
    return runner.find_ended({5: following}).get(5)


def test_starting_the_job_requests_an_enrichment_and_follows_it(
    harness: EnrichmentHarness, runner: RemoteRunner
) -> None:
    following = runner.start(job_context(TYPE, company=SIREN))
    (row,) = harness.requests()
    assert (row.tenant_id, row.company_siren, row.created_by) == ("acme", SIREN, "org-job:7")
    assert end_of(runner, following) is None
    harness.work(harness.jobs()[0].id)
    end = end_of(runner, following)
    assert (end.status, end.result) == (
        "success", {"companyRequestId": str(row.id), "siren": SIREN, "status": "SUCCESS"},
    )  # fmt: skip


def test_a_fresh_record_is_reused_without_a_new_enrichment(
    harness: EnrichmentHarness, runner: RemoteRunner
) -> None:
    runner.start(job_context(TYPE, company=SIREN))
    harness.work(harness.jobs()[0].id)
    again = runner.start(job_context(TYPE, org_id="globex", company=SIREN))
    assert (end_of(runner, again).status, len(harness.jobs())) == ("success", 1)


def test_an_unknown_company_fails_the_job(harness: EnrichmentHarness, runner: RemoteRunner) -> None:
    harness.script(search=NOT_FOUND)
    following = runner.start(job_context(TYPE, company=f"{SIREN}00646"))
    harness.work(harness.jobs()[0].id)
    end = end_of(runner, following)
    assert (end.status, "API_RECHERCHE_ENTREPRISES:200:NOT_FOUND" in end.error) == ("failed", True)


def test_cancelling_the_job_leaves_the_shared_enrichment_running(
    harness: EnrichmentHarness, runner: RemoteRunner
) -> None:
    following = runner.start(job_context(TYPE, company=SIREN))
    assert runner.cancel(following, "user:1", "Enough")
    assert harness.jobs()[0].state == "PENDING"


def test_a_killed_worker_leaves_no_requests_or_jobs(
    harness: EnrichmentHarness, runner: RemoteRunner
) -> None:
    with pytest.raises(Killed):
        killed_after(lambda: runner.start(job_context(TYPE, company=SIREN)), harness.database)
    assert (harness.requests(), harness.jobs()) == ([], [])


def test_an_unconfigured_register_is_reported(database: Database, clock: FakeClock) -> None:
    harness = EnrichmentHarness(database, clock, without=frozenset({SEARCH}))
    runner = CompanyEnrichmentJob(database, clock, lambda: harness.registries)
    with pytest.raises(PermanentError, match="RECHERCHE_ENTREPRISES_BASE_URL"):
        runner.start(job_context(TYPE, company=SIREN))


@every_case(
    "payload",
    [{}, {"company": "12"}, {"company": 1}, {"company": SIREN, "force": "yes"}, {"siren": SIREN}],
)
def test_a_payload_without_a_valid_company_is_refused_before_it_is_stored(
    payload: dict[str, Any],
) -> None:
    with pytest.raises(InvalidInputError):
        checked_payload(job_type(TYPE), payload)


def test_polling_many_enrichments_takes_as_many_queries_as_polling_one(
    harness: EnrichmentHarness, runner: RemoteRunner
) -> None:
    followed = {
        number: runner.start(job_context(TYPE, org_id=f"org-{number}", company=SIREN))
        for number in range(6)
    }
    seen: list[str] = []
    event.listen(
        harness.database.engine, "before_cursor_execute", lambda *given: seen.append(given[2])
    )
    runner.find_ended({0: followed[0]})
    few = len(seen)
    runner.find_ended(followed)
    assert len(seen) == 2 * few
