"""Claims on recordings: expiry, takeover, errors and the sweep."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import event, select, update

from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.errors import (
    AutomationError,
    InfrastructureError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.retry import Backoff
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.statements import database_now
from automation_pipeline.transcription import recordings
from automation_pipeline.transcription.models import (
    SpeechProvider,
    TaskState,
    TranscriptionPriority,
    TranscriptionStatus,
)
from automation_pipeline.transcription.queries.runs import (
    TASKS,
    RecordingClaim,
    claim_next,
    finish_tasks,
)
from automation_pipeline.transcription.recordings import transcribe_recording
from automation_pipeline.transcription.rules import FailRecording, RetryRecording, after_error
from automation_pipeline.transcription.runs import sweep_transcriptions
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.harness import (
    SPEECH_OPTIONS,
    NoLimit,
    TranscriptionHarness,
    call,
    transcript_of,
    urls,
)


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> TranscriptionHarness:
    return TranscriptionHarness(database, clock)


def claim(harness: TranscriptionHarness, owner: str, lease_seconds: float = 30) -> RecordingClaim:
    with harness.database.transaction() as session:
        claimed = next(
            iter(claim_next(session, owner, 1, lease_seconds=lease_seconds, per_fiche=10)), None
        )
    assert claimed
    return claimed


def task(harness: TranscriptionHarness) -> TranscriptionTaskRow:
    with harness.database.reading() as session:
        return session.scalars(select(TranscriptionTaskRow)).one()


class FailingLimit(NoLimit):
    """Raises one of the errors per call until none is left."""

    def __init__(self, errors: Sequence[AutomationError]) -> None:
        super().__init__()
        self._errors = list(errors)

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        if self._errors:
            raise self._errors.pop(0)
        return super().reserve(key, rate, max_wait_seconds=max_wait_seconds)


async def no_wait() -> None:
    pass


def transcribe(harness: TranscriptionHarness, claimed: RecordingClaim) -> None:
    provider = SpeechProvider(harness.speech, harness.limiter, harness.options)
    work = transcribe_recording(
        claimed, before_call=no_wait, database=harness.database, provider=provider
    )
    asyncio.run(work)


def test_the_holder_of_a_stale_claim_can_neither_call_nor_write(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    old, new = claim(harness, "old", lease_seconds=0), claim(harness, "new")
    assert new.token == old.token + 1
    transcribe(harness, old)
    assert harness.speech.calls == []
    with harness.database.transaction() as session:
        assert finish_tasks(session, [old], TaskState.DONE) == set()
    assert task(harness).state == TaskState.WORKING


def test_an_expired_claim_cannot_be_extended(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    expired = claim(harness, "me", lease_seconds=0)
    with harness.database.transaction() as session:
        assert not TASKS.extend(session, [(expired.task_id, expired.token)], 30)
    assert claim(harness, "other").token == 2


@pytest.mark.parametrize(
    ("at_once", "per_minute", "first"),
    [
        (5, 60_000, 5),
        (50, 30, 2),  # at least two
        (50, 100, 3),  # what the provider takes in two seconds
        (50, 300, 10),
    ],
)
def test_all_free_slots_claim_recordings_in_one_statement(
    harness: TranscriptionHarness,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
    per_minute: int,
    first: int,
) -> None:
    requested: list[int] = []

    def counted(session: Session, owner: str, most: int, **limits: float) -> list[RecordingClaim]:
        requested.append(most)
        return claim_next(session, owner, most, **limits)  # type: ignore[arg-type]

    monkeypatch.setattr(recordings, "claim_next", counted)
    harness.speech = FakeSpeechToText(otherwise=transcript_of, at_once=at_once)
    harness.options = replace(SPEECH_OPTIONS, per_minute=per_minute)
    harness.sell("1", *(call(f"1{number}") for number in range(5)))
    harness.begin("1", "r1")
    harness.work("r1")
    assert requested[0] == first


def test_a_worker_stops_when_its_own_runs_have_ended(harness: TranscriptionHarness) -> None:
    harness.speech = FakeSpeechToText(otherwise=transcript_of, at_once=1)
    harness.sell("1", call("1a"))
    harness.sell("2", *(call(f"2{number}") for number in range(30)))
    harness.begin("1", "r1", TranscriptionPriority.HIGH)
    harness.begin("2", "r2", TranscriptionPriority.LOW)
    harness.work("r1")
    assert len(harness.speech.requests) <= 4
    assert harness.summary("r2").status is TranscriptionStatus.RUNNING


def test_a_more_urgent_request_raises_the_urgency_of_the_joined_run(
    harness: TranscriptionHarness,
) -> None:
    harness.speech = FakeSpeechToText(otherwise=transcript_of, at_once=1)
    for fiche_id in ("1", "2"):
        harness.sell(fiche_id, call(f"{fiche_id}a"))
        harness.begin(fiche_id, f"r{fiche_id}", TranscriptionPriority.LOW)
    assert harness.begin("2", "later", TranscriptionPriority.HIGH).run_id == "r2"
    harness.work("r1", "r2")
    assert harness.speech.requests == urls(["2a", "1a"])


def test_audio_errors_do_not_count_as_attempts_and_are_limited_too(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.speech.fail_always(call("a").url, TransientError("Audio download failed: status=503"))
    harness.work(harness.begin("7", "r1").run_id)
    assert (task(harness).attempts, task(harness).state) == (0, TaskState.FAILED)
    assert harness.speech.calls == []
    assert len(harness.speech.requests) == SPEECH_OPTIONS.max_attempts


def test_infrastructure_errors_do_not_end_recordings(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    errors = [InfrastructureError("Redis does not answer.")] * (SPEECH_OPTIONS.max_attempts + 2)
    harness.limiter = FailingLimit(errors)
    harness.work(harness.begin("7", "r1").run_id)
    assert (task(harness).attempts, task(harness).audio_failures, task(harness).state) == (
        1,
        0,
        TaskState.DONE,
    )
    assert len(harness.speech.calls) == 1


def test_a_recording_whose_attempts_are_used_up_fails(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    with harness.database.transaction() as session:
        session.execute(update(TranscriptionTaskRow).values(attempts=SPEECH_OPTIONS.max_attempts))
    harness.work("r1")
    assert harness.speech.requests == []
    assert str(task(harness).error).startswith("Given up after 3 attempts")


@every_case(
    ("error", "attempts", "expected"),
    [
        (
            TransientError("429.", retry_after_seconds=3600),
            1,
            RetryRecording(timedelta(hours=1), "429."),
        ),
        (
            TransientError("429.", retry_after_seconds=3601),
            1,
            FailRecording("429. The requested wait of 3601 s is too long."),
        ),
        (TransientError("503."), 1, RetryRecording(timedelta(seconds=4), "503.")),
        (
            TransientError("503.", retry_after_seconds=1),
            2,
            RetryRecording(timedelta(seconds=8), "503."),
        ),
        (TransientError("503."), 3, FailRecording("503.")),
        (PermanentError("404."), 1, FailRecording("404.")),
        (InfrastructureError("Redis."), 9, RetryRecording(timedelta(seconds=60), "Redis.")),
    ],
)
def test_a_failed_attempt_is_followed_by_a_retry_or_a_failure(
    error: AutomationError, attempts: int, expected: RetryRecording | FailRecording
) -> None:
    options = replace(SPEECH_OPTIONS, backoff=Backoff(base_seconds=4, cap_seconds=60))
    assert after_error(error, attempts, options, Random(7)) == expected


def test_a_run_with_an_active_worker_is_not_swept(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"), call("b"))
    harness.begin("7", "r1")
    with harness.database.transaction() as session:
        session.execute(update(TranscriptionRunRow).values(touched_at=database_now(-1000)))
    transcribe(harness, claim(harness, "another worker"))
    assert sweep_transcriptions(900, database=harness.database) == []


def test_the_sweep_publishes_each_recording_and_ends_inconsistent_runs(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    with harness.database.transaction() as session:
        abandoned = {"target_total": 5, "touched_at": database_now(-3600)}
        session.execute(update(TranscriptionRunRow).values(abandoned))
    assert sweep_transcriptions(1800, database=harness.database) == ["r1"]
    run = harness.summary("r1")
    assert (run.status, run.error) == (
        TranscriptionStatus.FAILED,
        "No worker has worked on this run for 30 minutes",
    )
    assert harness.names().count("transcription.recording_failed") == 1
    assert harness.names().count("fiche/transcribed") == 1


def test_a_long_call_for_another_run_keeps_its_claim(
    harness: TranscriptionHarness,
) -> None:
    taken_over: list[object] = []

    async def call_slowly(url: str) -> None:
        if url == call("2a").url:
            await harness.longer_than_its_lease()
            with harness.database.transaction() as session:
                taken_over.append(
                    claim_next(session, "another worker", 1, lease_seconds=1, per_fiche=10)
                )

    harness.speech = FakeSpeechToText(otherwise=transcript_of, during_call=call_slowly, at_once=2)
    for fiche_id in ("2", "1"):
        harness.sell(fiche_id, call(f"{fiche_id}a"))
        harness.begin(fiche_id, f"r{fiche_id}")
    harness.work_for_long("r1")
    assert taken_over == [[]]


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_finished_tasks_are_not_scanned(database: Database) -> None:
    executed: list[tuple[str, Any]] = []

    def record(
        _connection: object, _cursor: object, statement: str, given: Any, *_: object
    ) -> None:
        executed.append((statement, given))

    with database.transaction() as session:
        connection = session.connection()
        event.listen(connection, "before_cursor_execute", record)
        claim_next(session, "me", 5, lease_seconds=30, per_fiche=5)
        event.remove(connection, "before_cursor_execute", record)
        [(statement, given)] = executed
        plan = [
            str(step)
            for step in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
        ]
    scans = [step for step in plan if "SCAN transcription_tasks" in step]
    assert scans
    assert all("ix_transcription_tasks_live" in step for step in scans)
