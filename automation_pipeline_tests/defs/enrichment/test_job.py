"""The job `company_enrichment`: requested, finished, failed, postponed and invalid enrichments."""

import pytest
from sqlalchemy import select

from automation_pipeline.defs.enrichment import company_enrichment
from automation_pipeline.enrichment.models import NOT_CONFIGURED
from automation_pipeline.enrichment.tables import EnrichmentJobRow, EnrichmentRow
from automation_pipeline.orchestration.job_registry import run_request
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow, offer_waiting
from automation_pipeline_tests.defs.enrichment.register_services import (
    execute,
    metadata_of,
    refusal,
    set_up_enrichment,
)
from automation_pipeline_tests.fakes.registries import RATE_LIMIT, SIREN


def status(database: Database, siren: str = SIREN) -> str | None:
    with database.reading() as session:
        return session.scalar(select(EnrichmentRow.status).where(EnrichmentRow.siren == siren))


def test_a_requested_enrichment_is_launched_and_succeeds(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = set_up_enrichment(database, monkeypatch)
    answer = setup.request()
    with database.transaction() as session:
        [run_request_row] = offer_waiting(session, limit=9)
    request = run_request(run_request_row)
    assert (request.job_name, request.tags["enrichment/siren"]) == ("company_enrichment", SIREN)
    [config] = [given["config"] for given in dict(request.run_config or {})["ops"].values()]
    page = metadata_of(execute(company_enrichment, dict(request.tags or {}), **config))
    assert (page["company"], page["job"], page["status"]) == (SIREN, str(answer.job_id), "SUCCESS")
    assert "| API_RECHERCHE_ENTREPRISES | SUCCESS | 200 |" in str(page["sources"])
    assert status(database) == "SUCCESS"
    with database.reading() as session:
        assert session.scalars(select(RunRequestRow.state)).all() == ["taken"]


def test_a_finished_enrichment_job_is_not_worked_on_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = set_up_enrichment(database, monkeypatch)
    answer = setup.request()
    for _ in range(2):
        assert metadata_of(execute(company_enrichment, job_id=answer.job_id))["attempt"] == 1
    assert len(setup.search.calls) == 1


def test_a_failed_enrichment_fails_the_step(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = set_up_enrichment(database, monkeypatch).request("732829320")
    reason = "The enrichment of 732829320 failed: API_RECHERCHE_ENTREPRISES:404:NOT_FOUND."
    assert refusal(execute(company_enrichment, job_id=answer.job_id)) == reason


def test_a_postponed_enrichment_succeeds_and_shows_the_next_attempt(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = set_up_enrichment(database, monkeypatch)
    setup.search.refuse_everything(RATE_LIMIT)
    page = metadata_of(execute(company_enrichment, siren=SIREN))
    assert (page["state"], status(database)) == ("PENDING", "PENDING")
    assert "not_before" in page


def test_an_enrichment_can_be_launched_from_the_launchpad(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = set_up_enrichment(database, monkeypatch)
    assert metadata_of(execute(company_enrichment, siren=SIREN))["status"] == "SUCCESS"
    assert metadata_of(execute(company_enrichment, siren=SIREN)) == {}
    assert len(setup.search.calls) == 1
    assert metadata_of(execute(company_enrichment, siren=SIREN, force=True))["status"] == "SUCCESS"
    with database.reading() as session:
        assert session.scalars(select(RunRequestRow.state)).all() == ["taken", "taken"]
        assert len(session.scalars(select(EnrichmentJobRow.id)).all()) == 2


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "Give either job_id, for an existing job, or siren"),
        ({"job_id": 1, "siren": SIREN}, "Give either job_id, for an existing job, or siren"),
        ({"job_id": 1, "force": True}, "force needs siren"),
        ({"job_id": 99}, "Enrichment job 99 not found"),
        ({"siren": "12"}, "must be nine digits"),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_an_invalid_enrichment_config_is_rejected(
    database: Database, monkeypatch: pytest.MonkeyPatch, config: dict[str, object], sentence: str
) -> None:
    set_up_enrichment(database, monkeypatch)
    assert sentence in refusal(execute(company_enrichment, **config))


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_without_the_required_register_no_job_is_started(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = set_up_enrichment(database, monkeypatch, configured=False).request()
    assert refusal(execute(company_enrichment, job_id=answer.job_id)) == NOT_CONFIGURED
    assert status(database) == "PENDING"
