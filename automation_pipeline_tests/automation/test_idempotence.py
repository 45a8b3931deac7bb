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
from automation_pipeline_tests.automation.harness import AutomationHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.harness import transcript_of
from automation_pipeline_tests.waiting import wait_until_async

FICHES = ("1", "2", "gone")
STEPS = 2


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AutomationHarness:
    created = AutomationHarness(database, clock)
    created.add_to_crm("1", "2", calls=2)
    created.automatic(STEPS)
    return created


def check(harness: AutomationHarness, run: Run) -> None:
    """Check that each provider call happened once and that the run completed."""
    assert Counter(harness.crm.requests) == dict.fromkeys(FICHES, 1)
    assert Counter(harness.speech.calls) == {
        harness.url(fiche, n): 1 for fiche in ("1", "2") for n in (1, 2)
    }
    assert (harness.model.calls, harness.audits()) == (2 * STEPS, 2)
    assert harness.statuses(run) == ["successful", "successful", "ignored"]
    assert (run.status, run.transcriptions_run, run.audits_run) == ("completed", 2, 2)


@pytest.mark.parametrize("done", range(5))
def test_a_new_attempt_after_any_stage_repeats_no_completed_calls(
    done: int, harness: AutomationHarness
) -> None:
    run_attempt = harness.open(harness.schedule(*FICHES).id)
    for step in harness.steps[:done]:
        step(run_attempt)
    check(harness, harness.run_steps(harness.take_over(run_attempt)))


def test_stages_repeated_by_another_attempt_have_no_further_effect(
    harness: AutomationHarness,
) -> None:
    run_attempt = harness.open(harness.schedule(*FICHES).id)
    for number, step in enumerate(harness.steps, start=2):
        step(run_attempt)
        run_attempt = harness.take_over(run_attempt, f"dagster-{number}")
        step(run_attempt)
    run = harness.finalise(run_attempt)
    check(harness, run)
    assert harness.finalise(run_attempt) == run
    for result in ("automation.run.selection", "automation.run.completed", "automation/completed"):
        assert len(harness.events(result)) == 1


def test_repeating_a_finished_run_does_nothing(harness: AutomationHarness) -> None:
    run = harness.run(*FICHES)
    ended = harness.open(run.schedule_id, "dagster-2", run_id=run.id, is_next=True)
    assert list(harness.select(ended)) == []
    assert harness.settle(ended) == []
    assert harness.finalise(ended) == run
    check(harness, run)


def expire_claims(harness: AutomationHarness) -> None:
    with harness.database.transaction() as session:
        session.execute(update(TranscriptionTaskRow).values(leased_until=database_now(-1)))


@pytest.mark.parametrize("nth", range(1, 5))
def test_a_crash_during_transcription_keeps_existing_transcripts(
    nth: int, harness: AutomationHarness
) -> None:
    calls = 0

    async def crash_at_nth_call(_url: str) -> None:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise ZeroDivisionError

    harness.speech = FakeSpeechToText(
        otherwise=transcript_of, at_once=1, during_call=crash_at_nth_call
    )
    run_attempt = harness.prepare_work(*FICHES)
    with pytest.raises(ZeroDivisionError):
        harness.run_work(run_attempt)
    expire_claims(harness)
    before = len(harness.speech.calls)
    run = harness.run_steps(harness.take_over(run_attempt))
    assert run.status == "completed"
    assert len(harness.speech.calls) - before <= 4 - (nth - 1)
    assert max(Counter(harness.speech.calls).values()) <= 2
    assert Counter(harness.crm.requests) == dict.fromkeys(FICHES, 1)


def is_everything_transcribed(harness: AutomationHarness) -> bool:
    with harness.database.reading() as session:
        return not any(untranscribed(session, ["1", "2"]).values())


@pytest.mark.parametrize("nth", range(1, 2 * STEPS + 1))
def test_a_crash_during_auditing_keeps_finished_audits(
    nth: int, harness: AutomationHarness
) -> None:
    async def crash_at_nth_call(_prompt: Question) -> None:
        is_the_nth = harness.model.calls == nth
        # Otherwise the crash would also interrupt the call for the other fiche.
        await wait_until_async(lambda: is_everything_transcribed(harness))
        if is_the_nth:
            raise ZeroDivisionError

    harness.model = FakeLanguageModel(during_call=crash_at_nth_call)
    harness.set_options(steps_at_once=1)
    run_attempt = harness.prepare_work(*FICHES)
    with pytest.raises(ZeroDivisionError):
        harness.run_work(run_attempt)
    run = harness.run_steps(harness.take_over(run_attempt))
    assert (run.status, harness.audits()) == ("completed", 2)
    assert set(Counter(harness.speech.calls).values()) == {1}
    interrupted = harness.work.audits_at_once
    assert harness.model.calls <= 2 * STEPS + interrupted


def test_a_run_before_its_selection_follows_the_current_schedule(
    harness: AutomationHarness,
) -> None:
    run_attempt = harness.open(harness.schedule("1", maxRetries=2, retryFailed=True).id)
    assert (harness.plan(run_attempt).retries, len(harness.plan(run_attempt).configs)) == (2, 1)
    patch = {"retryFailed": False, "runAudits": False}
    schedule_id = harness.read(run_attempt).schedule_id
    update_schedule(schedule_id, patch, database=harness.database, clock=harness.clock)
    assert (harness.plan(run_attempt).retries, harness.plan(run_attempt).configs) == (0, ())


def test_editing_a_schedule_does_not_affect_runs_after_selection(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("1")
    run_attempt = harness.prepare_work("1")
    schedule_id = harness.read(run_attempt).schedule_id
    patch = {
        "runAudits": False,
        "ficheSelection": {"mode": "manual", "ficheIds": ["2"], "useRlm": True},
    }
    update_schedule(schedule_id, patch, database=harness.database, clock=harness.clock)
    assert harness.plan(run_attempt).schedule.run_audits
    assert not harness.plan(run_attempt).selection.use_rlm
    harness.run_work(run_attempt)
    assert harness.finalise(run_attempt).audits_run == 1
