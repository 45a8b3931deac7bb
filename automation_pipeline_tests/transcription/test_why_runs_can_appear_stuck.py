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
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.crm import fiche
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.bench import Bench, NoLimit, call, transcript_of


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


def status(bench: Bench, fiche_id: str = "7") -> dict[str, Any]:
    with bench.database.reading() as session:
        return dict(transcription_status(session, fiche_id))


def request(bench: Bench, *, batch: bool = False) -> RequestedTranscription:
    [requested] = request_transcriptions(
        ["7"],
        priority=TranscriptionPriority.NORMAL,
        batch=batch,
        database=bench.database,
        clock=bench.clock,
    )
    return requested


def test_1_a_queued_request_returns_the_run_id_to_follow(bench: Bench) -> None:
    bench.sell("7", call("a"))
    requested = request(bench)
    assert requested.run_id
    bench.begin("7", requested.run_id)
    assert status(bench)["run"]["state"] == "processing"
    assert status(bench)["run"]["id"] == requested.run_id
    bench.work(requested.run_id)
    assert status(bench)["run"]["state"] == "finished"


def test_2_a_redis_outage_does_not_stop_the_run(bench: Bench) -> None:
    class Down:
        def reserve(
            self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
        ) -> float | None:
            raise TransientError("Redis does not answer: connection refused.")

    second = NoLimit()
    bench.limiter = FailoverRateLimiter(Down(), second)  # type: ignore[assignment]
    bench.sell("7", call("a"), call("b"))
    bench.work(bench.begin("7", "r1").run_id)
    assert bench.summary("r1").status is TranscriptionStatus.COMPLETED
    assert bench.names()[-2:] == ["transcription.completed", "fiche/transcribed"]
    assert second.reserved == 2


def test_3_without_realtime_the_status_has_all_data_of_the_events(bench: Bench) -> None:
    bench.sell("7", call("a"), call("b"))
    bench.speech.fail_always(call("b").url, PermanentError("No speech in this audio"))
    bench.work(bench.begin("7", "r1").run_id)
    events, completed = status(bench), bench.events("transcription.completed")[0]
    assert (events["total"], events["transcribed"]) == (
        completed["total_recordings"],
        completed["transcribed"],
    )
    assert events["run"]["failed"] == completed["failed"] == 1


def test_4_a_provider_that_throttles_is_shown_with_the_next_attempt(bench: Bench) -> None:
    bench.sell("7", call("a"))
    bench.speech.fail_once(
        call("a").url, TransientError("status=429 slow down", retry_after_seconds=0.3)
    )
    bench.begin("7", "r1")
    seen: list[dict[str, Any]] = []

    class Watch(NoLimit):
        def reserve(
            self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
        ) -> float | None:
            seen.append(status(bench)["run"]["tasks"][0])
            return super().reserve(key, rate)

    bench.limiter = Watch()
    bench.work("r1")
    assert (seen[1]["attempts"], seen[1]["error"]) == (1, "status=429 slow down")


def test_4b_the_status_of_a_waiting_recording_has_the_wait(bench: Bench) -> None:
    bench.sell("7", call("a"))
    bench.begin("7", "r1")
    with bench.database.transaction() as session:
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
    task = status(bench)["run"]["tasks"][0]
    assert (task["state"], task["error"], task["owner"]) == (
        "waiting",
        "status=429 slow down",
        None,
    )
    assert 10 < task["againInSeconds"] <= 40


def test_5_a_silent_worker_is_replaced_or_its_run_ends_with_the_reason(
    bench: Bench,
) -> None:
    bench.sell("7", call("a"))
    bench.begin("7", "r1")
    with bench.database.transaction() as session:
        assert claim_next(session, "host:1", 1, lease_seconds=30, per_fiche=10)
    held = status(bench)["run"]["tasks"][0]
    assert (held["state"], held["owner"]) == ("working", "host:1")
    assert 5 < held["secondsLeft"] <= 30

    assert sweep_transcriptions(3600, database=bench.database) == []
    assert sweep_transcriptions(0, database=bench.database) == ["r1"]
    run = status(bench)["run"]
    assert (run["state"], run["failed"]) == ("finished with failures", 1)
    assert run["tasks"][0]["error"].startswith("No worker has worked on this run")
    assert bench.names()[-2:] == ["transcription.completed", "fiche/transcribed"]
    assert bench.begin("7", "r2").run_id == "r2", "the fiche is free again"


def test_6_a_second_request_returns_the_joined_run(bench: Bench) -> None:
    bench.sell("7", call("a"))
    first = request(bench)
    bench.begin("7", first.run_id)
    bench.clock.pass_time(timedelta(seconds=1))
    assert request(bench).run_id == first.run_id


def test_7_an_already_complete_fiche_is_reported_as_completed(bench: Bench) -> None:
    bench.sell("7", call("a"))
    bench.work(bench.begin("7", "r1").run_id)
    bench.clock.pass_time(timedelta(seconds=1))
    bench.begin("7", "r2")
    assert [event["run_id"] for event in bench.events("transcription.completed")] == ["r1", "r2"]


def test_8_a_repeated_batch_request_gets_a_retry_key(bench: Bench) -> None:
    bench.sell("7", call("a"), call("b"))
    bench.speech.fail_always(call("b").url, PermanentError("No speech in this audio"))
    first = request(bench, batch=True)
    assert first.key == "transcribe-7-2026-05-04"
    assert request(bench, batch=True).key is None, "it is still running"
    _complete(bench, first)
    again = request(bench, batch=True)
    assert again.key == "transcribe-7-2026-05-04-retry-1"
    bench.speech = FakeSpeechToText(otherwise=transcript_of)
    _complete(bench, again)
    assert request(bench, batch=True).key is None, "nothing is missing"


def _complete(bench: Bench, requested: RequestedTranscription) -> None:
    assert requested.key
    assert requested.run_id
    with bench.database.transaction() as session:
        mark_taken(session, requested.key, "dagster-1")
    bench.clock.pass_time(timedelta(seconds=1))
    bench.work(bench.begin("7", requested.run_id).run_id)


def test_9_a_fiche_that_takes_longer_than_its_lease_keeps_it(bench: Bench) -> None:
    async def slow(_url: str) -> None:
        await bench.longer_than_its_lease()

    bench.speech = FakeSpeechToText(otherwise=transcript_of, during_call=slow, at_once=2)
    bench.sell("7", *(call(f"c{number}") for number in range(4)))
    bench.work_for_long(bench.begin("7", "r1").run_id)
    assert {task["token"] for task in status(bench)["run"]["tasks"]} == {1}, (
        "no other worker took over a claim"
    )
    assert len(bench.speech.asked) == 4


def test_10_permanently_pending_recordings_are_distinguished(bench: Bench) -> None:
    bench.sell("7", call("a"), call("b", url=""))
    bench.work(bench.begin("7", "r1").run_id)
    result = status(bench)
    assert (result["pending"], result["percentage"]) == (1, 50)
    assert result["run"]["state"] == "finished with failures"
    assert {task["callId"]: task["error"] for task in result["run"]["tasks"]}[
        "b"
    ] == "No recording URL available"


def test_11_the_status_distinguishes_the_run_and_the_fiche(bench: Bench) -> None:
    bench.sell("7", call("a"))
    bench.work(bench.begin("7", "r1").run_id)
    bench.sell("7", call("a"), call("late"))
    bench.clock.pass_time(timedelta(seconds=1))
    with bench.database.transaction() as session:
        save_outcomes(
            session, [DetailsFetched("7", fiche("7", call("a"), call("late")))], bench.clock.now()
        )
    result = status(bench)
    assert (result["total"], result["pending"]) == (2, 1)
    assert (result["run"]["state"], result["run"]["targetTotal"], result["run"]["processed"]) == (
        "finished",
        1,
        1,
    )
