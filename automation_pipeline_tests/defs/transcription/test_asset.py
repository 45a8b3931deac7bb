"""The asset of a day's transcripts: missing ones are made, failures reported, coverage checked."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.fiches import fiche_details, sales_list
from automation_pipeline.defs.transcription import transcripts, transcripts_checks
from automation_pipeline.orchestration.ops import ServicesResource
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
        [sales_list, fiche_details, transcripts, transcripts_checks],  # type: ignore[list-item]  checks are taken too
        partition_key=DAY,
        selection=selection,
        resources={"services": FixedServices()},
        instance=dg.DagsterInstance.ephemeral(),
        raise_on_error=False,
    )


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    [event] = result.asset_materializations_for_node("transcripts")
    return {name: value.value for name, value in event.metadata.items()}


def test_a_days_recordings_with_audio_are_transcribed(services: Services) -> None:
    result = materialize(services)
    assert result.success
    day = metadata_of(result)
    assert isinstance(day["recordings"], int)
    assert isinstance(day["transcribed"], int)
    assert 0 < day["transcribed"] <= day["recordings"]
    assert 10 < float(str(day["minutes_of_audio"])) < 1000
    [check] = result.get_asset_check_evaluations()
    assert check.passed == (day["transcribed"] / day["recordings"] >= 0.95)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_failures_are_counted_by_cause(services: Services, simulator_url: str) -> None:
    add_faults(simulator_url, {"route": "speech.transcribe", "status": 400, "first": 2})
    day = metadata_of(materialize(services))
    assert "ElevenLabs speech-to-text failed status=400" in str(day["failures"])
    assert "| 2 |" in str(day["failures"])


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_transcript_check_of_a_day_that_was_never_fetched_fails(
    services: Services,
) -> None:
    result = materialize(services, dg.AssetSelection.assets(transcripts))
    [check] = result.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert check.description == "The day was never fetched."
