"""Finding 2.2, `skipIfTranscribed: false`: a run transcribes every recording of its fiches once,
transcribed or not."""

import pytest

from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.bench import Bench
from automation_pipeline_tests.conftest import StandingClock


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


def made_at(bench: Bench) -> list[object]:
    with bench.database.reading() as session:
        return [
            row.transcribed_at
            for row in session.query(CallRecordingRow).order_by(CallRecordingRow.id)
        ]


def test_each_run_transcribes_again_once_and_a_repeated_attempt_does_not(bench: Bench) -> None:
    bench.offer("1", calls=2)
    again = bench.schedule("1", runAudits=False, skipIfTranscribed=False)
    assert bench.carry_out(again.id, "first").status == "completed"
    before = made_at(bench)
    assert [bench.speech.times(bench.url("1", call)) for call in (1, 2)] == [1, 1]

    ticket = bench.open(again.id, "dagster-1")
    for stage in bench.stages:
        stage(ticket)
    assert [bench.speech.times(bench.url("1", call)) for call in (1, 2)] == [2, 2]
    _work_again(bench, bench.take_over(ticket))
    assert [bench.speech.times(bench.url("1", call)) for call in (1, 2)] == [2, 2]
    assert set(made_at(bench)).isdisjoint(before), "a new transcript replaces the old one"

    skipping = bench.schedule("1", runAudits=False)
    bench.carry_out(skipping.id, "third")
    assert [bench.speech.times(bench.url("1", call)) for call in (1, 2)] == [2, 2]


def _work_again(bench: Bench, ticket: RunAttempt) -> None:
    """The step is lost after it transcribed and before it recorded: its fiche is pending again."""
    with bench.database.transaction() as session:
        for row in bench.rows(ticket):
            stored = session.merge(row)
            stored.status, stored.stage, stored.transcribed = "pending", "fetched", False
    bench.carry_out_work(ticket)
    assert bench.statuses(ticket) == ["successful"]


def test_an_old_transcript_does_not_hide_that_transcribing_again_failed(bench: Bench) -> None:
    bench.offer("1")
    again = bench.schedule("1", runAudits=False, skipIfTranscribed=False)
    bench.carry_out(again.id, "first")
    bench.speech.fail_always(bench.url("1"), PermanentError("No speech in this audio"))
    run = bench.carry_out(again.id, "second")
    assert (run.status, bench.outcomes(run)["1"].reason) == ("failed", "transcription_incomplete")
