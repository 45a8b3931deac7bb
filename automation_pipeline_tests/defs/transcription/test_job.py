"""The job `transcribe_fiche`: its result, and the run, event and log line of each request."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import select

from automation_pipeline import bootstrap
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.housekeeping import run_failures
from automation_pipeline.defs.transcription import transcribe_fiche
from automation_pipeline.orchestration import ops as failures
from automation_pipeline.orchestration.job_registry import LAUNCH_TAG, REQUEST_TAG
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.orchestration.watchdog import MOST_LAUNCHES_OF_A_JOB
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.storage.run_requests import filed_requests
from automation_pipeline.transcription.models import SpeechProvider, TranscriptionPriority
from automation_pipeline.transcription.requests import (
    RequestedTranscription,
    request_outcomes,
    request_transcriptions,
)
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.transcription.harness import TranscriptionHarness, call

CRM_DOWN = TransientError("The CRM does not answer (status 503).")
REFUSED = PermanentError("The CRM refuses the token (status 403).")


@pytest.fixture
def harness(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> TranscriptionHarness:
    """The job uses the services of the bench. Without an API key, `Services.speech` raises."""
    harness = TranscriptionHarness(database, clock)
    monkeypatch.setattr(failures, "STEP_RETRY_SECONDS", 0)
    services = bootstrap.Services(Settings(elevenlabs_api_key=None), clock)
    services.database, services.crm = database, harness.crm  # type: ignore[assignment]
    services.speech = SpeechProvider(harness.speech, harness.limiter, harness.options)
    monkeypatch.setattr(bootstrap, "services", lambda: services)
    return harness


def requested(harness: TranscriptionHarness, fiche_id: str) -> RequestedTranscription:
    harness.clock.advance_one_second()
    [requested_run] = request_transcriptions(
        [fiche_id],
        priority=TranscriptionPriority.NORMAL,
        batch=False,
        database=harness.database,
        clock=harness.clock,
    )
    return requested_run


def execute(
    requested_run: RequestedTranscription, instance: dg.DagsterInstance | None = None
) -> dg.ExecuteInProcessResult:
    config = {"fiche_id": requested_run.fiche_id, "run_id": requested_run.run_id}
    return transcribe_fiche.execute_in_process(
        run_config={"ops": {"transcribe": {"config": config}}},
        resources={"services": ServicesResource()},
        tags={REQUEST_TAG: str(requested_run.key)},
        raise_on_error=False,
        instance=instance,
    )


FICHES = iter(range(7000, 8000))


def one_fails(harness: TranscriptionHarness, fiche_id: str) -> None:
    harness.sell(fiche_id, call(f"{fiche_id}a"), call(f"{fiche_id}b"))
    harness.speech.fail_always(
        call(f"{fiche_id}b").url, PermanentError("Audio download failed status=404")
    )


def no_key(harness: TranscriptionHarness, fiche_id: str) -> None:
    harness.sell(fiche_id, call(f"{fiche_id}a"))
    del bootstrap.services().speech


def nothing_to_do_without_a_key(harness: TranscriptionHarness, fiche_id: str) -> None:
    harness.sell(fiche_id)
    del bootstrap.services().speech


def no_crm(harness: TranscriptionHarness, fiche_id: str) -> None:
    del bootstrap.services().crm


def unknown(harness: TranscriptionHarness, fiche_id: str) -> None:
    """The CRM does not know a fiche that was not added."""


Case = tuple[str, Callable[[TranscriptionHarness, str], None], bool, str, str | None]
# Name; set-up; whether the job succeeds; status of the run; reason in the run, event and log line.
CASES: tuple[Case, ...] = (
    (
        "all recordings are transcribed",
        lambda harness, fiche: harness.sell(fiche, call(f"{fiche}a")),
        True,
        "completed",
        None,
    ),
    ("nothing to do", lambda harness, fiche: harness.sell(fiche), True, "completed", None),
    ("nothing to do, no key", nothing_to_do_without_a_key, True, "completed", None),
    (
        "one recording has no audio",
        lambda harness, fiche: harness.sell(fiche, call(fiche, url="")),
        True,
        "completed",
        None,
    ),
    ("one recording fails", one_fails, False, "completed", None),
    (
        "CRM down",
        lambda harness, fiche: harness.crm.fail_always(fiche, CRM_DOWN),
        False,
        "failed",
        str(CRM_DOWN),
    ),
    (
        "CRM refuses",
        lambda harness, fiche: harness.crm.fail_always(fiche, REFUSED),
        False,
        "failed",
        str(REFUSED),
    ),
    ("unknown fiche", unknown, False, "failed", "Fiche not found (404)"),
    (
        "key missing",
        no_key,
        False,
        "failed",
        "ElevenLabs API key not configured (set ELEVENLABS_API_KEY)",
    ),
    ("no CRM URL", no_crm, False, "failed", "FICHE_API_BASE_URL is not set"),
)


def test_the_job_fails_only_for_unfinished_work_and_records_a_reason(
    harness: TranscriptionHarness,
) -> None:
    wrong = []
    speech, crm = bootstrap.services().speech, bootstrap.services().crm
    for name, arrange, green, status, reason in CASES:
        bootstrap.services().speech, bootstrap.services().crm = speech, crm
        fiche_id = str(next(FICHES))
        arrange(harness, fiche_id)
        requested_run = requested(harness, fiche_id)
        result = execute(requested_run)
        stored = _stored_results(harness, requested_run)
        right = (
            result.success is green
            and stored["status"] == status
            and (
                reason is None
                or (reason in stored["error"] and stored["events"] == 1 and stored["logged"])
            )
        )
        if not right:
            wrong.append((name, result.success, stored))
    assert wrong == []


def _stored_results(
    harness: TranscriptionHarness, requested_run: RequestedTranscription
) -> dict[str, Any]:
    run = harness.summary(str(requested_run.run_id))
    with harness.database.reading() as session:
        lines = session.scalars(
            select(WorkflowLogRow).where(WorkflowLogRow.trace_id == requested_run.run_id)
        ).all()
        [request] = filed_requests(session, [str(requested_run.key)])
    return {
        "status": run.status.value,
        "error": run.error or "",
        "events": sum(
            event["run_id"] == requested_run.run_id
            for event in harness.events("transcription.failed")
        ),
        "logged": any(run.error and run.error in line.message for line in lines),
        "request": (request.state, request.reason),
    }


def test_a_crm_that_recovers_between_retries_leaves_no_failure(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.crm.fail_once("7", CRM_DOWN, CRM_DOWN)
    requested_run = requested(harness, "7")
    assert execute(requested_run).success
    assert "transcription.failed" not in harness.names()
    assert harness.summary(str(requested_run.run_id)).transcribed == 1


def test_a_request_that_could_not_start_is_refused_with_the_reason(
    harness: TranscriptionHarness,
) -> None:
    harness.crm.fail_always("7", CRM_DOWN)
    requested_run = requested(harness, "7")
    execute(requested_run)
    assert _stored_results(harness, requested_run)["request"] == ("refused", str(CRM_DOWN))


def test_a_run_that_dagster_could_not_start_is_recorded_by_the_sensor(
    harness: TranscriptionHarness,
) -> None:
    """The process of the run died before its first step."""
    requested_run = requested(harness, "7")
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(
            transcribe_fiche,
            run_config={
                "ops": {
                    "transcribe": {
                        "config": {
                            "fiche_id": "7",
                            "priority": "normal",
                            "run_id": requested_run.run_id,
                        }
                    }
                }
            },
            tags={REQUEST_TAG: str(requested_run.key), LAUNCH_TAG: str(MOST_LAUNCHES_OF_A_JOB)},
        )
        event = instance.report_run_failed(run, "The worker of the run ended.")
        with dg.build_run_status_sensor_context(
            "run_failures",
            event,
            instance,
            instance.get_run_by_id(run.run_id),  # type: ignore[arg-type]
            resources={"services": ServicesResource()},
        ) as context:
            run_failures(context.for_run_failure())
    stored = _stored_results(harness, requested_run)
    assert (stored["status"], stored["events"]) == ("failed", 1)
    assert "The worker of the run ended" in stored["error"]


def test_the_outcome_of_a_run_with_a_failed_recording_has_its_counts(
    harness: TranscriptionHarness,
) -> None:
    one_fails(harness, "7")
    requested_run = requested(harness, "7")
    since = harness.clock.now()
    assert not execute(requested_run).success
    with harness.database.reading() as session:
        found = request_outcomes(session, [requested_run], since)["7"]
    assert not isinstance(found, str)
    assert (found.processed, found.failed) == (2, 1)
