"""Transcribe many fiches: an error of one does not affect the others, unless the infrastructure fails."""

import asyncio
from collections.abc import Sequence

import pytest

from automation_pipeline.core.errors import AutomationError, InfrastructureError, TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription import runs as subject
from automation_pipeline.transcription.models import (
    SpeechProvider,
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionSummary,
)
from automation_pipeline.transcription.runs import begin_transcription
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.transcription.harness import TranscriptionHarness, call


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> TranscriptionHarness:
    return TranscriptionHarness(database, clock)


def transcribed(
    harness: TranscriptionHarness, monkeypatch: pytest.MonkeyPatch, error: AutomationError
) -> Sequence[TranscriptionSummary]:
    """Transcribe two fiches; the start of the second raises the error."""

    async def begin(request: TranscriptionRunRequest, **rest: object) -> TranscriptionSummary:
        if request.fiche_id == "2":
            raise error
        return await begin_transcription(request, **rest)  # type: ignore[arg-type]  handed on

    monkeypatch.setattr(subject, "begin_transcription", begin)
    for fiche_id in ("1", "2"):
        harness.sell(fiche_id, call(f"{fiche_id}a"))
    requests = [
        TranscriptionRunRequest(f"r{fiche_id}", fiche_id, TranscriptionPriority.NORMAL)
        for fiche_id in ("1", "2")
    ]
    provider = SpeechProvider(harness.speech, harness.limiter, harness.options)
    return asyncio.run(
        subject.transcribe_fiches(
            requests,
            database=harness.database,
            source=lambda: harness.crm,
            provider=lambda: provider,
            clock=harness.clock,
            owner="me",
        )
    )


def test_transcription_of_other_fiches_continues_after_a_crm_error(
    harness: TranscriptionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run] = transcribed(harness, monkeypatch, TransientError("The CRM does not answer."))
    assert (run.run_id, run.status) == ("r1", "completed")


def test_an_infrastructure_error_is_raised(
    harness: TranscriptionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InfrastructureError):
        transcribed(harness, monkeypatch, InfrastructureError("The database does not answer."))


def test_details_that_are_fresh_enough_are_not_fetched_again(harness: TranscriptionHarness) -> None:
    for fiche_id in ("1", "2"):
        harness.sell(fiche_id, call(f"{fiche_id}a"))
        harness.work(harness.begin(fiche_id).run_id)
    harness.crm.requests.clear()
    since = harness.clock.now()
    requests = [
        TranscriptionRunRequest(
            f"r{fiche_id}", fiche_id, TranscriptionPriority.NORMAL, fresh_since=since
        )
        for fiche_id in ("1", "2")
    ]
    provider = SpeechProvider(harness.speech, harness.limiter, harness.options)
    for _ in range(2):  # a repeated request joins its own run
        runs = asyncio.run(
            subject.transcribe_fiches(
                requests,
                database=harness.database,
                source=lambda: harness.crm,
                provider=lambda: provider,
                clock=harness.clock,
                owner="me",
            )
        )
        assert {run.run_id: run.status for run in runs} == {"r1": "completed", "r2": "completed"}
    assert harness.crm.requests == []
