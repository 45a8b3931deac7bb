"""Many fiches at once: what one of them lacks takes nothing from the others, unless it is the ground that lacks."""

import asyncio
from collections.abc import Sequence

import pytest

from automation_pipeline.core.errors import AutomationError, GroundError, TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.domain.run import Priority, Standing
from automation_pipeline.transcription.ports import Provider
from automation_pipeline.transcription.stages import transcribe_fiches as subject
from automation_pipeline.transcription.stages.begin_transcription import Wish, begin_transcription
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.transcription.bench import Bench, call


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


def transcribed(bench: Bench, monkeypatch: pytest.MonkeyPatch, error: AutomationError) -> Sequence[Standing]:
    """Of two fiches, at the beginning of the second of which this goes wrong."""

    async def begin(wish: Wish, **rest: object) -> Standing:
        if wish.fiche_id == "2":
            raise error
        return await begin_transcription(wish, **rest)  # type: ignore[arg-type]  handed on

    monkeypatch.setattr(subject, "begin_transcription", begin)
    for fiche_id in ("1", "2"):
        bench.sell(fiche_id, call(f"{fiche_id}a"))
    wishes = [Wish(f"r{fiche_id}", fiche_id, Priority.NORMAL) for fiche_id in ("1", "2")]
    provider = Provider(bench.speech, bench.limiter, bench.knobs)
    return asyncio.run(
        subject.transcribe_fiches(
            wishes,
            database=bench.database,
            source=lambda: bench.crm,
            provider=lambda: provider,
            clock=bench.clock,
            owner="me",
        )
    )


def test_a_fiche_that_the_crm_fails_on_takes_nothing_from_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    [standing] = transcribed(bench, monkeypatch, TransientError("The CRM does not answer."))
    assert (standing.run_id, standing.status) == ("r1", "completed")


def test_trouble_of_our_own_is_not_passed_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GroundError):
        transcribed(bench, monkeypatch, GroundError("The database does not answer."))
