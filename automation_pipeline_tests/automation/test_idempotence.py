"""Tests of repeating a run from any point: no provider call is repeated, and the result is the
same."""

from collections import Counter

import pytest
from sqlalchemy import update

from automation_pipeline.audits.models.chat import Question
from automation_pipeline.automation.models.runs import Run
from automation_pipeline.automation.queries.ledger import untranscribed
from automation_pipeline.automation.schedules import update_schedule
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import database_now
from automation_pipeline.transcription.tables import TranscriptionTaskRow
from automation_pipeline_tests.automation.bench import Bench
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.harness import transcript_of
from automation_pipeline_tests.waiting import wait_until_async

FICHES = ("1", "2", "gone")
STEPS = 2


@pytest.fixture
def bench(database: Database, clock: FakeClock) -> Bench:
    made = Bench(database, clock)
    made.add_to_crm("1", "2", calls=2)
    made.automatic(STEPS)
    return made


def check(bench: Bench, run: Run) -> None:
    """Check that each provider call happened once and that the run completed."""
    assert Counter(bench.crm.requests) == dict.fromkeys(FICHES, 1)
    assert Counter(bench.speech.calls) == {
        bench.url(fiche, n): 1 for fiche in ("1", "2") for n in (1, 2)
    }
    assert (bench.model.calls, bench.audits()) == (2 * STEPS, 2)
    assert bench.statuses(run) == ["successful", "successful", "ignored"]
    assert (run.status, run.transcriptions_run, run.audits_run) == ("completed", 2, 2)


@pytest.mark.parametrize("done", range(5))
def test_a_new_attempt_after_any_stage_repeats_no_completed_calls(done: int, bench: Bench) -> None:
    run_attempt = bench.open(bench.schedule(*FICHES).id)
    for stage in bench.stages[:done]:
        stage(run_attempt)
    check(bench, bench.run_stages(bench.take_over(run_attempt)))


def test_stages_repeated_by_another_attempt_have_no_further_effect(bench: Bench) -> None:
    run_attempt = bench.open(bench.schedule(*FICHES).id)
    for number, stage in enumerate(bench.stages, start=2):
        stage(run_attempt)
        run_attempt = bench.take_over(run_attempt, f"dagster-{number}")
        stage(run_attempt)
    run = bench.finalise(run_attempt)
    check(bench, run)
    assert bench.finalise(run_attempt) == run
    for result in ("automation.run.selection", "automation.run.completed", "automation/completed"):
        assert len(bench.events(result)) == 1


def test_repeating_a_finished_run_does_nothing(bench: Bench) -> None:
    run = bench.run(*FICHES)
    ended = bench.open(run.schedule_id, "dagster-2", run_id=run.id, is_next=True)
    assert list(bench.select(ended)) == []
    assert bench.settle(ended) == []
    assert bench.finalise(ended) == run
    check(bench, run)


def expire_claims(bench: Bench) -> None:
    with bench.database.transaction() as session:
        session.execute(update(TranscriptionTaskRow).values(leased_until=database_now(-1)))


@pytest.mark.parametrize("nth", range(1, 5))
def test_a_crash_during_transcription_keeps_existing_transcripts(nth: int, bench: Bench) -> None:
    calls = 0

    async def crash_at_nth_call(_url: str) -> None:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise ZeroDivisionError

    bench.speech = FakeSpeechToText(
        otherwise=transcript_of, at_once=1, during_call=crash_at_nth_call
    )
    run_attempt = bench.prepare_work(*FICHES)
    with pytest.raises(ZeroDivisionError):
        bench.run_work(run_attempt)
    expire_claims(bench)
    before = len(bench.speech.calls)
    run = bench.run_stages(bench.take_over(run_attempt))
    assert run.status == "completed"
    assert len(bench.speech.calls) - before <= 4 - (nth - 1)
    assert max(Counter(bench.speech.calls).values()) <= 2
    assert Counter(bench.crm.requests) == dict.fromkeys(FICHES, 1)


def is_everything_transcribed(bench: Bench) -> bool:
    with bench.database.reading() as session:
        return not any(untranscribed(session, ["1", "2"]).values())


@pytest.mark.parametrize("nth", range(1, 2 * STEPS + 1))
def test_a_crash_during_auditing_keeps_finished_audits(nth: int, bench: Bench) -> None:
    async def crash_at_nth_call(_prompt: Question) -> None:
        is_the_nth = bench.model.calls == nth
        await wait_until_async(
            lambda: is_everything_transcribed(bench)
        )  # otherwise the crash would also interrupt the call for the other fiche
        if is_the_nth:
            raise ZeroDivisionError

    bench.model = FakeLanguageModel(during_call=crash_at_nth_call)
    bench.set_options(steps_at_once=1)
    run_attempt = bench.prepare_work(*FICHES)
    with pytest.raises(ZeroDivisionError):
        bench.run_work(run_attempt)
    run = bench.run_stages(bench.take_over(run_attempt))
    assert (run.status, bench.audits()) == ("completed", 2)
    assert set(Counter(bench.speech.calls).values()) == {1}
    interrupted = bench.work.audits_at_once
    assert bench.model.calls <= 2 * STEPS + interrupted


def test_editing_a_schedule_does_not_affect_runs_after_selection(bench: Bench) -> None:
    bench.add_to_crm("1")
    run_attempt = bench.prepare_work("1")
    schedule_id = bench.read(run_attempt).schedule_id
    patch = {
        "runAudits": False,
        "ficheSelection": {"mode": "manual", "ficheIds": ["2"], "useRlm": True},
    }
    update_schedule(schedule_id, patch, database=bench.database, clock=bench.clock)
    assert bench.plan(run_attempt).schedule.run_audits
    assert not bench.plan(run_attempt).selection.use_rlm
    bench.run_work(run_attempt)
    assert bench.finalise(run_attempt).audits_run == 1
