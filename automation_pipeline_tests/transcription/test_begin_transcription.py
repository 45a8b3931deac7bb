"""Begin a transcription run: fetch the fiche, plan its calls in order, join an active run, and
complete runs without work."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.models import (
    PlannedRecording,
    TranscriptionPlan,
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionStatus,
)
from automation_pipeline.transcription.queries.runs import add_tasks, last_runs_of, start_runs
from automation_pipeline.transcription.runs import open_run, sweep_transcriptions
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.transcription.harness import TranscriptionHarness, call


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> TranscriptionHarness:
    return TranscriptionHarness(database, clock)


def test_the_plan_has_every_recording_that_lacks_a_transcript(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("b"), call("a"))
    run = harness.begin("7", "r1", TranscriptionPriority.HIGH)
    assert (run.status, run.total, run.target_total, run.processed) == (
        "running",
        2,
        2,
        0,
    )
    with harness.database.reading() as session:
        tasks = session.scalars(
            select(TranscriptionTaskRow).order_by(TranscriptionTaskRow.recording_index)
        ).all()
    assert [(task.call_id, task.state, task.urgency) for task in tasks] == [
        ("a", "waiting", 0),
        ("b", "waiting", 0),
    ]
    check, started = harness.events()
    assert check == {
        "name": "transcription.status_check", "fiche_id": "7", "total_recordings": 2, "already_transcribed": 0,
        "needs_transcription": 2, "is_complete": False, "status": "checked", "run_id": "r1",
    }  # fmt: skip
    assert (started["name"], started["priority"], started["run_id"]) == (
        "transcription.started",
        "high",
        "r1",
    )


def test_a_second_request_joins_the_active_run(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    assert harness.begin("7", "r2").run_id == "r1"
    assert harness.begin("7", "r1").run_id == "r1"
    assert harness.crm.requests == ["7"]
    assert harness.names().count("transcription.started") == 1


def test_the_database_allows_one_live_run_per_fiche_and_one_live_task_per_recording(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    other = TranscriptionRunRequest("r2", "7", TranscriptionPriority.NORMAL)
    plan = TranscriptionPlan(1, (PlannedRecording(1, "a", "https://records.example.test/a"),))
    now = harness.clock.now()
    with harness.database.transaction() as session:
        assert start_runs(session, [(other, plan)], now) == set()
    own = replace(other, run_id="r1")
    with pytest.raises(IntegrityError), harness.database.transaction() as session:
        add_tasks(
            session, [(own, replace(plan, targets=(replace(plan.targets[0], call_id="b"),)))], now
        )


def test_details_are_fetched_again_for_each_new_run(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.work(harness.begin("7").run_id)
    harness.sell("7", call("a"), call("b"))
    harness.clock.advance_one_second()
    run = harness.begin("7")
    assert (run.total, run.already_transcribed, run.target_total) == (2, 1, 1)


def test_a_fiche_without_work_is_completed_with_an_event(harness: TranscriptionHarness) -> None:
    harness.sell("7")
    run = harness.begin("7", "r1")
    assert (run.total, run.target_total) == (0, 0)
    assert harness.summary("r1").status is TranscriptionStatus.COMPLETED
    assert harness.names() == [
        "transcription.status_check",
        "transcription.started",
        "transcription.completed",
        "fiche/transcribed",
    ]


def test_an_already_complete_fiche_has_a_completed_event(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.work(harness.begin("7", "r1").run_id)
    harness.clock.advance_one_second()
    harness.begin("7", "r2")
    last = harness.events("transcription.completed")[-1]
    assert (last["run_id"], last["transcribed"], last["failed"]) == ("r2", 1, 0)


def test_a_blank_url_fails_only_its_recording(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a", url=""), call("b"))
    run = harness.begin("7", "r1")
    assert (run.processed, run.failed, run.status) == (1, 1, "running")
    [failed] = harness.events("transcription.recording_failed")
    assert (failed["call_id"], failed["error"]) == ("a", "No recording URL available")
    harness.work("r1")
    assert harness.summary("r1").status is TranscriptionStatus.COMPLETED
    assert harness.transcribed() == {"b"}


def test_a_fiche_with_only_blank_urls_completes_immediately(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a", url=" "))
    harness.begin("7", "r1")
    run = harness.summary("r1")
    assert (run.status, run.failed, run.transcribed) == (
        TranscriptionStatus.COMPLETED,
        1,
        0,
    )


def test_a_missing_fiche_ends_its_run_and_does_not_block_the_next_one(
    harness: TranscriptionHarness,
) -> None:
    run = harness.begin("404", "r1")
    assert run.status is TranscriptionStatus.FAILED
    failed, transcribed = harness.events()
    assert (failed["name"], failed["error"]) == ("transcription.failed", "Fiche not found (404)")
    assert failed["partial_results"] == {"total": 0, "transcribed": 0, "failed": 0}
    assert transcribed["name"] == "fiche/transcribed"
    harness.sell("404", call("a"))
    harness.clock.advance_one_second()
    assert harness.begin("404", "r2").status is TranscriptionStatus.RUNNING


@pytest.mark.parametrize("error", [TransientError("later"), PermanentError("never")])
def test_a_crm_error_fails_the_run_with_its_message_and_is_raised_again(
    error: Exception, harness: TranscriptionHarness
) -> None:
    harness.crm.fail_always("7", error)  # type: ignore[arg-type]
    with pytest.raises(type(error), match=str(error)):
        harness.begin("7", "r1")
    assert (harness.summary("r1").status, harness.summary("r1").error) == (
        TranscriptionStatus.FAILED,
        str(error),
    )
    assert harness.names() == ["transcription.failed", "fiche/transcribed"]


def test_an_unplanned_run_of_a_dead_worker_is_planned_by_the_next_request_or_swept(
    harness: TranscriptionHarness,
) -> None:
    for run_id, fiche_id in (("r1", "7"), ("r2", "8")):
        harness.sell(fiche_id, call(f"of-{fiche_id}"))
        with harness.database.transaction() as session:
            open_run(
                TranscriptionRunRequest(run_id, fiche_id, TranscriptionPriority.NORMAL), session
            )
    assert harness.begin("7", "r3").run_id == "r1"
    harness.work("r1")
    assert harness.summary("r1").status is TranscriptionStatus.COMPLETED
    assert sweep_transcriptions(0, database=harness.database) == ["r2"]
    assert (harness.summary("r2").status, harness.names()[-2]) == (
        TranscriptionStatus.FAILED,
        "transcription.failed",
    )


def test_the_last_run_of_a_fiche_was_live_at_that_time_or_later(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.work(harness.begin("7", "r1").run_id)
    with harness.database.reading() as session:
        ended = session.get_one(TranscriptionRunRow, "r1").finished_at
        assert ended is not None
        assert [run.run_id for run in last_runs_of(session, ["7"], ended).values()] == ["r1"]
        assert last_runs_of(session, ["7"], ended + timedelta(milliseconds=1)) == {}
