"""The asset of a day's audits: missing audits are run, and results are reported in the metadata."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest

from automation_pipeline.audits.configs import import_config
from automation_pipeline.audits.days import AUDIT_CHECKS
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.audits import audit_outcomes, audit_outcomes_checks
from automation_pipeline.defs.fiches import fiche_details, sales_list
from automation_pipeline.defs.transcription import transcripts
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline_tests.audits.configurations import document
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.simulator_control import add_faults

DAY = "2026-02-03"


@pytest.fixture
def services(database_url: str, simulator_url: str) -> Iterator[Services]:
    settings = Settings(
        database_url=database_url,
        fiche_api_base_url=simulator_url,
        fiche_api_auth_token="sim-token",
        elevenlabs_base_url=simulator_url,
        elevenlabs_api_key="sim-speech-key",
        transcription_audio_allowed_origins=(simulator_url,),
        transcription_elevenlabs_rate_limit_per_minute=60_000,
        llm_base_url=f"{simulator_url}/v1",
        llm_api_key="sim-llm-key",
        llm_rate_limit_per_minute=60_000,
        llm_backoff_base_seconds=0,
    )
    built = Services(settings, FakeClock(datetime(2026, 2, 4, 3, 0, tzinfo=UTC)))
    yield built
    built.database.dispose()


def materialize(
    services: Services, selection: dg.AssetSelection | None = None
) -> dg.ExecuteInProcessResult:
    class FixedServices(ServicesResource):
        def get(self) -> Services:
            return services

    return dg.materialize(
        [sales_list, fiche_details, transcripts, audit_outcomes, audit_outcomes_checks],  # type: ignore[list-item]  checks are taken too
        partition_key=DAY,
        selection=selection,
        resources={"services": FixedServices()},
        instance=dg.DagsterInstance.ephemeral(),
        raise_on_error=False,
    )


def configure(services: Services) -> None:
    given = document("Automatic", 2, runAutomatically=True)
    import_config(given, database=services.database, clock=services.clock)


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    [event] = result.asset_materializations_for_node("audit_outcomes")
    return {name: value.value for name, value in event.metadata.items()}


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {check.check_name: check.passed for check in result.get_asset_check_evaluations()}


def test_a_days_calls_are_audited_and_reported_in_the_metadata(services: Services) -> None:
    configure(services)
    result = materialize(services)
    assert result.success
    day = metadata_of(result)
    assert isinstance(day["audited"], int)
    assert 0 < day["audited"] == day["wanted"] == day["fiches"]
    assert (day["configurations"], day["steps"], day["failed"]) == (1, 2 * day["audited"], 0)
    assert 0 <= float(str(day["mean_score"])) <= 100
    assert "| niveau | audits |" in str(day["by_niveau"])
    assert set(verdicts(result)) == set(AUDIT_CHECKS)
    assert verdicts(result)["every_fiche_audited"]
    again = metadata_of(materialize(services, dg.AssetSelection.assets(audit_outcomes)))
    assert again == day


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_refused_api_key_fails_audits_and_checks_with_the_cause(
    services: Services, simulator_url: str
) -> None:
    configure(services)
    add_faults(simulator_url, {"route": "llm.complete", "status": 401})
    result = materialize(services)
    assert result.success
    assert metadata_of(result)["audited"] == 0
    assert "0 of 2 steps judged" in str(metadata_of(result)["failures"])
    assert verdicts(result) == {
        "every_fiche_audited": False,
        "steps_judged": False,
        "evidence_holds": True,
    }


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_day_without_an_automatic_configuration_notes_what_is_missing(
    services: Services,
) -> None:
    sales_and_audits = dg.AssetSelection.assets(sales_list, audit_outcomes)
    result = materialize(services, sales_and_audits)
    assert "automation audit-configs import" in str(metadata_of(result)["note"])
    [check] = [
        one
        for one in result.get_asset_check_evaluations()
        if one.check_name == "every_fiche_audited"
    ]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.description == metadata_of(result)["note"]


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_audit_checks_of_a_day_that_was_never_fetched_fail(services: Services) -> None:
    configure(services)
    result = materialize(services, dg.AssetSelection.assets(audit_outcomes))
    checks = result.get_asset_check_evaluations()
    assert {check.check_name for check in checks} == set(AUDIT_CHECKS)
    assert {(check.passed, check.severity) for check in checks} == {
        (False, dg.AssetCheckSeverity.ERROR)
    }
    assert {check.description for check in checks} == {"The day was never fetched."}
