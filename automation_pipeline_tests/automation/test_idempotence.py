"""A run repeated from any point: what is finished is asked of no provider again, and the end is the
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
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.bench import transcript_of
from automation_pipeline_tests.waiting import come_true

FICHES = ("1", "2", "gone")
STEPS = 2


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    made = Bench(database, clock)
    made.offer("1", "2", calls=2)
    made.automatic(STEPS)
    return made


def check(bench: Bench, run: Run) -> None:
    """One question for each thing that there was to know, and a run that ended well."""
    assert Counter(bench.crm.asked) == dict.fromkeys(FICHES, 1)
    assert Counter(bench.speech.called) == {
        bench.url(fiche, n): 1 for fiche in ("1", "2") for n in (1, 2)
    }
    assert (bench.model.calls, bench.audits()) == (2 * STEPS, 2)
    assert bench.statuses(run) == ["successful", "successful", "ignored"]
    assert (run.status, run.transcriptions_run, run.audits_run) == ("completed", 2, 2)


@pytest.mark.parametrize("done", range(5))
def test_a_new_attempt_after_any_stage_repeats_no_completed_calls(done: int, bench: Bench) -> None:
    ticket = bench.open(bench.schedule(*FICHES).id)
    for stage in bench.stages[:done]:
        stage(ticket)
    check(bench, bench.go_through(bench.take_over(ticket)))


def test_stages_repeated_by_another_attempt_have_no_further_effect(bench: Bench) -> None:
    ticket = bench.open(bench.schedule(*FICHES).id)
    for number, stage in enumerate(bench.stages, start=2):
        stage(ticket)
        ticket = bench.take_over(ticket, f"dagster-{number}")
        stage(ticket)
    run = bench.finalise(ticket)
    check(bench, run)
    assert bench.finalise(ticket) == run
    for result in ("automation.run.selection", "automation.run.completed", "automation/completed"):
        assert len(bench.events(result)) == 1


def test_repeating_a_finished_run_does_nothing(bench: Bench) -> None:
    run = bench.run(*FICHES)
    ended = bench.open(run.schedule_id, "dagster-2", run_id=run.id, is_next=True)
    assert list(bench.select(ended)) == []
    assert bench.settle(ended) == []
    assert bench.finalise(ended) == run
    check(bench, run)


def let_claims_run_out(bench: Bench) -> None:
    with bench.database.transaction() as session:
        session.execute(update(TranscriptionTaskRow).values(leased_until=database_now(-1)))


@pytest.mark.parametrize("nth", range(1, 5))
def test_a_crash_during_transcription_keeps_existing_transcripts(nth: int, bench: Bench) -> None:
    calls = 0

    async def dies_at_the_nth(_url: str) -> None:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise ZeroDivisionError

    bench.speech = FakeSpeechToText(otherwise=transcript_of, at_once=1, during_call=dies_at_the_nth)
    ticket = bench.until_work(*FICHES)
    with pytest.raises(ZeroDivisionError):
        bench.carry_out_work(ticket)
    let_claims_run_out(bench)
    before = len(bench.speech.called)
    run = bench.go_through(bench.take_over(ticket))
    assert run.status == "completed"
    assert len(bench.speech.called) - before <= 4 - (nth - 1)
    assert max(Counter(bench.speech.called).values()) <= 2
    assert Counter(bench.crm.asked) == dict.fromkeys(FICHES, 1)


def all_is_transcribed(bench: Bench) -> bool:
    with bench.database.reading() as session:
        return not any(untranscribed(session, ["1", "2"]).values())


@pytest.mark.parametrize("nth", range(1, 2 * STEPS + 1))
def test_a_crash_during_auditing_keeps_finished_audits(nth: int, bench: Bench) -> None:
    async def dies_at_the_nth(_question: Question) -> None:
        is_the_nth = bench.model.calls == nth
        await come_true(
            lambda: all_is_transcribed(bench)
        )  # or the crash would cut off the other fiche's call too
        if is_the_nth:
            raise ZeroDivisionError

    bench.model = FakeLanguageModel(during_call=dies_at_the_nth)
    bench.set_options(steps_at_once=1)
    ticket = bench.until_work(*FICHES)
    with pytest.raises(ZeroDivisionError):
        bench.carry_out_work(ticket)
    run = bench.go_through(bench.take_over(ticket))
    assert (run.status, bench.audits()) == ("completed", 2)
    assert set(Counter(bench.speech.called).values()) == {1}
    interrupted = bench.work.audits_at_once
    assert bench.model.calls <= 2 * STEPS + interrupted


def test_editing_a_schedule_does_not_affect_runs_after_selection(bench: Bench) -> None:
    bench.offer("1")
    ticket = bench.until_work("1")
    schedule_id = bench.read(ticket).schedule_id
    patch = {
        "runAudits": False,
        "ficheSelection": {"mode": "manual", "ficheIds": ["2"], "useRlm": True},
    }
    update_schedule(schedule_id, patch, database=bench.database, clock=bench.clock)
    assert bench.plan(ticket).schedule.run_audits
    assert not bench.plan(ticket).selection.use_rlm
    bench.carry_out_work(ticket)
    assert bench.finalise(ticket).audits_run == 1
