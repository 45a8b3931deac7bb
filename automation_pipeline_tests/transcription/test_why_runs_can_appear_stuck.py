"""Eleven reasons why a transcription can appear stuck, and what the operator sees in each case."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from automation_pipeline.core.coordination import FailoverRateLimiter, Rate
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.fiches.models.fiches import DetailsFetched
from automation_pipeline.fiches.queries.mirror import save_outcomes
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import mark_taken
from automation_pipeline.storage.statements import database_now
from automation_pipeline.transcription.models import (
    TaskState,
    TranscriptionPriority,
    TranscriptionStatus,
)
from automation_pipeline.transcription.queries.recordings import transcription_status
from automation_pipeline.transcription.queries.runs import claim_next, finish_tasks
from automation_pipeline.transcription.requests import (
    RequestedTranscription,
    request_transcriptions,
)
from automation_pipeline.transcription.runs import sweep_transcriptions
from automation_pipeline.transcription.tables import TranscriptionTaskRow
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import fiche
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.harness import (
    NoLimit,
    TranscriptionHarness,
    call,
    transcript_of,
)


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> TranscriptionHarness:
    return TranscriptionHarness(database, clock)


def status(harness: TranscriptionHarness, fiche_id: str = "7") -> dict[str, Any]:
    with harness.database.reading() as session:
        return dict(transcription_status(session, fiche_id))


def request(harness: TranscriptionHarness, *, batch: bool = False) -> RequestedTranscription:
    [requested] = request_transcriptions(
        ["7"],
        priority=TranscriptionPriority.NORMAL,
        batch=batch,
        database=harness.database,
        clock=harness.clock,
    )
    return requested


def test_1_a_queued_request_returns_the_run_id_to_follow(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    requested = request(harness)
    assert requested.run_id
    harness.begin("7", requested.run_id)
    assert status(harness)["run"]["state"] == "processing"
    assert status(harness)["run"]["id"] == requested.run_id
    harness.work(requested.run_id)
    assert status(harness)["run"]["state"] == "finished"


def test_2_a_redis_outage_does_not_stop_the_run(harness: TranscriptionHarness) -> None:
    class UnavailableLimiter:
        def reserve(
            self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
        ) -> float | None:
            raise TransientError("Redis does not answer: connection refused.")

    fallback = NoLimit()
    harness.limiter = FailoverRateLimiter(UnavailableLimiter(), fallback)  # type: ignore[assignment]
    harness.sell("7", call("a"), call("b"))
    harness.work(harness.begin("7", "r1").run_id)
    assert harness.summary("r1").status is TranscriptionStatus.COMPLETED
    assert harness.names()[-2:] == ["transcription.completed", "fiche/transcribed"]
    assert fallback.reserved == 2


def test_3_without_realtime_the_status_has_all_data_of_the_events(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"), call("b"))
    harness.speech.fail_always(call("b").url, PermanentError("No speech in this audio"))
    harness.work(harness.begin("7", "r1").run_id)
    shown, [completed] = status(harness), harness.events("transcription.completed")
    run, recordings = shown.pop("run"), shown.pop("recordings")
    assert shown == {
        "ficheId": "7",
        "total": completed["total_recordings"],
        "transcribed": completed["transcribed"],
        "pending": 1,
        "percentage": 50,
    }
    recording = {
        "recordingDate": "03/02/2026", "recordingTime": "10:14", "durationSeconds": 742, "hasUrl": True,
    }  # fmt: skip
    a, b = recordings
    assert a.pop("transcribedAt").endswith("Z")
    assert a == {"callId": "a", "hasTranscription": True, "transcriptionId": "tr_a", **recording}
    assert b == {
        "callId": "b", "hasTranscription": False, "transcriptionId": None, "transcribedAt": None, **recording,
    }  # fmt: skip
    assert run.pop("startedAt") <= run["finishedAt"] == run.pop("lastSignOfLifeAt")
    assert run.pop("finishedAt").endswith("Z")
    ended = {"attempts": 1, "token": 1, "secondsLeft": None, "againInSeconds": None}
    assert all(task.pop("owner").startswith("me/") for task in run["tasks"])
    assert run == {
        "id": "r1", "state": "finished with failures", "priority": "normal", "targetTotal": 2, "processed": 2,
        "cached": 0, "failed": completed["failed"], "error": None,
        "tasks": [
            {"callId": "a", "state": "done", "error": None, **ended},
            {"callId": "b", "state": "failed", "error": "No speech in this audio", **ended},
        ],
    }  # fmt: skip


def test_4_a_provider_that_throttles_is_shown_with_the_next_attempt(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.speech.fail_once(
        call("a").url, TransientError("status=429 slow down", retry_after_seconds=0.3)
    )
    harness.begin("7", "r1")
    seen: list[dict[str, Any]] = []

    class StatusRecorder(NoLimit):
        def reserve(
            self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
        ) -> float | None:
            seen.append(status(harness)["run"]["tasks"][0])
            return super().reserve(key, rate)

    harness.limiter = StatusRecorder()
    harness.work("r1")
    assert (seen[1]["attempts"], seen[1]["error"]) == (1, "status=429 slow down")


def test_4b_the_status_of_a_waiting_recording_has_the_wait(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    with harness.database.transaction() as session:
        [claim] = claim_next(session, "me", 1, lease_seconds=30, per_fiche=10)
        assert claim
        assert finish_tasks(
            session,
            [claim],
            TaskState.WAITING,
            "status=429 slow down",
            available_at=database_now(40.0),
            owner=None,
        )
        assert session.scalars(select(TranscriptionTaskRow.finished_at)).one() is None
    task = status(harness)["run"]["tasks"][0]
    assert (task["state"], task["error"], task["owner"]) == (
        "waiting",
        "status=429 slow down",
        None,
    )
    assert 10 < task["againInSeconds"] <= 40


def test_5_a_silent_worker_is_replaced_or_its_run_ends_with_the_reason(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    with harness.database.transaction() as session:
        assert claim_next(session, "host:1", 1, lease_seconds=30, per_fiche=10)
    held = status(harness)["run"]["tasks"][0]
    assert (held["state"], held["owner"]) == ("working", "host:1")
    assert 5 < held["secondsLeft"] <= 30

    assert sweep_transcriptions(3600, database=harness.database) == []
    assert sweep_transcriptions(0, database=harness.database) == ["r1"]
    run = status(harness)["run"]
    assert (run["state"], run["failed"]) == ("finished with failures", 1)
    assert run["tasks"][0]["error"].startswith("No worker has worked on this run")
    assert harness.names()[-2:] == ["transcription.completed", "fiche/transcribed"]
    assert harness.begin("7", "r2").run_id == "r2", "the fiche is free again"


def test_6_a_second_request_returns_the_joined_run(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    first = request(harness)
    harness.begin("7", first.run_id)
    harness.clock.advance(timedelta(seconds=1))
    assert request(harness).run_id == first.run_id


def test_7_an_already_complete_fiche_is_reported_as_completed(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.work(harness.begin("7", "r1").run_id)
    harness.clock.advance(timedelta(seconds=1))
    harness.begin("7", "r2")
    assert [event["run_id"] for event in harness.events("transcription.completed")] == ["r1", "r2"]


def test_8_a_repeated_batch_request_gets_a_retry_key(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"), call("b"))
    harness.speech.fail_always(call("b").url, PermanentError("No speech in this audio"))
    first = request(harness, batch=True)
    assert first.key == "transcribe-7-2026-05-04"
    assert request(harness, batch=True).key is None, "it is still running"
    _complete(harness, first)
    again = request(harness, batch=True)
    assert again.key == "transcribe-7-2026-05-04-retry-1"
    harness.speech = FakeSpeechToText(otherwise=transcript_of)
    _complete(harness, again)
    assert request(harness, batch=True).key is None, "nothing is missing"


def _complete(harness: TranscriptionHarness, requested: RequestedTranscription) -> None:
    assert requested.key
    assert requested.run_id
    with harness.database.transaction() as session:
        mark_taken(session, requested.key, "dagster-1")
    harness.clock.advance(timedelta(seconds=1))
    harness.work(harness.begin("7", requested.run_id).run_id)


def test_9_a_fiche_that_takes_longer_than_its_lease_keeps_it(harness: TranscriptionHarness) -> None:
    async def slow(_url: str) -> None:
        await harness.longer_than_its_lease()

    harness.speech = FakeSpeechToText(otherwise=transcript_of, during_call=slow, at_once=2)
    harness.sell("7", *(call(f"c{number}") for number in range(4)))
    harness.work_for_long(harness.begin("7", "r1").run_id)
    assert {task["token"] for task in status(harness)["run"]["tasks"]} == {1}, (
        "no other worker took over a claim"
    )
    assert len(harness.speech.requests) == 4


def test_10_permanently_pending_recordings_are_distinguished(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"), call("b", url=""))
    harness.work(harness.begin("7", "r1").run_id)
    result = status(harness)
    assert (result["pending"], result["percentage"]) == (1, 50)
    assert result["run"]["state"] == "finished with failures"
    assert {task["callId"]: task["error"] for task in result["run"]["tasks"]}[
        "b"
    ] == "No recording URL available"


def test_11_the_status_distinguishes_the_run_and_the_fiche(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.work(harness.begin("7", "r1").run_id)
    harness.sell("7", call("a"), call("late"))
    harness.clock.advance(timedelta(seconds=1))
    with harness.database.transaction() as session:
        save_outcomes(
            session, [DetailsFetched("7", fiche("7", call("a"), call("late")))], harness.clock.now()
        )
    result = status(harness)
    assert (result["total"], result["pending"]) == (2, 1)
    assert (result["run"]["state"], result["run"]["targetTotal"], result["run"]["processed"]) == (
        "finished",
        1,
        1,
    )
