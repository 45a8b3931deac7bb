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
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.transcription.bench import Bench, call


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


def transcribed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: AutomationError
) -> Sequence[TranscriptionSummary]:
    """Transcribe two fiches; the start of the second raises the error."""

    async def begin(request: TranscriptionRunRequest, **rest: object) -> TranscriptionSummary:
        if request.fiche_id == "2":
            raise error
        return await begin_transcription(request, **rest)  # type: ignore[arg-type]  handed on

    monkeypatch.setattr(subject, "begin_transcription", begin)
    for fiche_id in ("1", "2"):
        bench.sell(fiche_id, call(f"{fiche_id}a"))
    requests = [
        TranscriptionRunRequest(f"r{fiche_id}", fiche_id, TranscriptionPriority.NORMAL)
        for fiche_id in ("1", "2")
    ]
    provider = SpeechProvider(bench.speech, bench.limiter, bench.options)
    return asyncio.run(
        subject.transcribe_fiches(
            requests,
            database=bench.database,
            source=lambda: bench.crm,
            provider=lambda: provider,
            clock=bench.clock,
            owner="me",
        )
    )


def test_transcription_of_other_fiches_continues_after_a_crm_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    [status] = transcribed(bench, monkeypatch, TransientError("The CRM does not answer."))
    assert (status.run_id, status.status) == ("r1", "completed")


def test_an_infrastructure_error_is_raised(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InfrastructureError):
        transcribed(bench, monkeypatch, InfrastructureError("The database does not answer."))
