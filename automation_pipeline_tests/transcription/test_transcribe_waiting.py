"""Work on waiting recordings: priorities, limits, retries, taken-over claims, completion of runs."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import select, update

from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.storage.statements import database_now
from automation_pipeline.transcription.models import (
    AccessBreaker,
    ProviderAccessError,
    TaskState,
    TranscriptionPriority,
    TranscriptionStatus,
)
from automation_pipeline.transcription.queries.runs import claim_next, finish_tasks
from automation_pipeline.transcription.runs import sweep_transcriptions
from automation_pipeline.transcription.tables import (
    ChunkRow,
    TranscriptionRunRow,
    TranscriptionTaskRow,
)
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.speech import FakeSpeechToText, transcript
from automation_pipeline_tests.transcription.harness import (
    SPEECH_OPTIONS,
    TranscriptionHarness,
    call,
    transcript_of,
    urls,
)


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> TranscriptionHarness:
    return TranscriptionHarness(database, clock)


def tasks(harness: TranscriptionHarness) -> dict[str, TranscriptionTaskRow]:
    with harness.database.reading() as session:
        return {task.call_id: task for task in session.scalars(select(TranscriptionTaskRow))}


def test_every_recording_is_sent_once_and_stored_with_its_chunks(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"), call("b"), call("c"))
    harness.work(harness.begin("7", "r1").run_id)
    assert sorted(harness.speech.requests) == urls("abc")
    assert harness.transcribed() == {"a", "b", "c"}
    run = harness.summary("r1")
    assert (run.status, run.new, run.failed, run.transcribed) == (
        TranscriptionStatus.COMPLETED,
        3,
        0,
        3,
    )
    with harness.database.reading() as session:
        recording = session.scalars(
            select(CallRecordingRow).where(CallRecordingRow.call_id == "a")
        ).one()
        chunk = session.scalars(select(ChunkRow).where(ChunkRow.recording_id == recording.id)).one()
    assert (recording.transcription_id, recording.transcription_language_code) == ("tr_a", "fra")
    assert (chunk.chunk_index, chunk.message_count, list(chunk.speakers)) == (
        0,
        2,
        ["speaker_0", "speaker_1"],
    )


def test_each_event_is_published_once_without_recording_urls(harness: TranscriptionHarness) -> None:
    harness.options = replace(SPEECH_OPTIONS, per_fiche=1)
    harness.sell("7", call("a"), call("b"), call("c", url=""))
    harness.speech.fail_always(call("b").url, PermanentError("No speech"))
    harness.work(harness.begin("7", "r1").run_id)
    events = harness.events()
    assert "records.example.test" not in str(events)
    times = {"started_at", "completed_at", "duration_seconds", "duration_ms"}
    about = {"fiche_id": "7", "run_id": "r1"}
    shown = []
    for event in events:
        assert about.items() <= event.items()
        shown.append({name: event[name] for name in event if name not in {*about, *times}})
    a, b, c = ({"call_id": call_id, "recording_index": index, "total_to_transcribe": 3}
               for index, call_id in enumerate("abc", start=1))  # fmt: skip
    name = "transcription.recording"
    progress = {"name": "transcription.progress", "total_recordings": 3, "status": "in_progress"}
    assert shown == [
        {"name": "transcription.status_check", "total_recordings": 3, "already_transcribed": 0,
         "needs_transcription": 3, "is_complete": False, "status": "checked"},
        {"name": "transcription.started", "total_recordings": 3, "priority": "normal", "status": "started"},
        {"name": f"{name}_failed", **c, "error": "No recording URL available", "status": "failed"},
        {**progress, "transcribed": 0, "pending": 3, "failed": 1, "progress_percentage": 0},
        {"name": f"{name}_started", **a, "status": "processing"},
        {"name": f"{name}_completed", **a, "transcription_id": "tr_a", "status": "completed"},
        {"name": f"{name}_started", **b, "status": "processing"},
        {"name": f"{name}_failed", **b, "error": "No speech", "status": "failed"},
        {**progress, "transcribed": 1, "pending": 2, "failed": 2, "progress_percentage": 33},
        {"name": "transcription.completed", "total_recordings": 3, "transcribed": 1, "failed": 2,
         "status": "completed"},
        {"name": "fiche/transcribed", "transcribed_count": 1, "cached_count": 0, "failed_count": 2},
    ]  # fmt: skip


def test_the_events_of_a_run_have_its_duration_from_start_to_end(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    with harness.database.transaction() as session:
        session.execute(update(TranscriptionRunRow).values(started_at=database_now(-3600)))
    harness.work("r1")
    [completed] = harness.events("transcription.completed")
    [transcribed] = harness.events("fiche/transcribed")
    assert 3600 <= completed["duration_seconds"] < 3700  # type: ignore[operator]
    assert transcribed["duration_ms"] == round(completed["duration_seconds"] * 1000)  # type: ignore[operator]


def test_log_rows_carry_the_run_and_the_fiche(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.speech.fail_once(call("a").url, TransientError("503"))
    harness.work(harness.begin("7", "r1").run_id)
    with harness.database.reading() as session:
        rows = session.scalars(select(WorkflowLogRow).order_by(WorkflowLogRow.id)).all()
    assert {(row.workflow, row.entity_type, row.entity_id, row.trace_id) for row in rows} == {
        ("transcription", "fiche", "7", "r1")
    }
    assert [(row.level, row.message, row.data) for row in rows] == [
        ("info", "START: normal priority", {"total": 1, "already": 0, "targets": 1}),
        ("info", "Recording a: attempt 1", {}),
        ("warning", "Recording a: retry in 0 s. 503", {}),
        ("info", "Recording a: attempt 2", {}),
        ("info", "END: completed, 0 failed", {"new": 1, "cached": 0, "failed": 0}),
    ]


def test_recordings_are_sent_in_order_of_priority(harness: TranscriptionHarness) -> None:
    harness.speech = FakeSpeechToText(otherwise=transcript_of, at_once=1)
    for fiche_id, priority in (
        ("1", TranscriptionPriority.LOW),
        ("2", TranscriptionPriority.NORMAL),
        ("3", TranscriptionPriority.HIGH),
    ):
        harness.sell(fiche_id, call(f"{fiche_id}a"), call(f"{fiche_id}b"))
        harness.begin(fiche_id, f"r{fiche_id}", priority)
    harness.work("r1")
    assert harness.speech.requests == urls(["3a", "3b", "2a", "2b", "1a", "1b"])
    assert {harness.summary(run_id).status for run_id in ("r1", "r2", "r3")} == {
        TranscriptionStatus.COMPLETED
    }


def test_a_fiche_does_not_exceed_its_concurrency_limit(harness: TranscriptionHarness) -> None:
    harness.options = replace(SPEECH_OPTIONS, per_fiche=2)
    harness.sell("7", *(call(f"c{number}") for number in range(6)))
    harness.work(harness.begin("7").run_id)
    assert harness.speech.max_concurrent <= 2
    assert len(harness.transcribed()) == 6


def test_a_transient_error_is_retried_and_each_call_counts_as_one_attempt(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.speech.fail_once(call("a").url, TransientError("429"), TransientError("503"))
    harness.work(harness.begin("7", "r1").run_id)
    assert harness.speech.call_count(call("a").url) == 3
    assert tasks(harness)["a"].attempts == 3
    assert len(harness.events("transcription.recording_started")) == 3
    assert harness.summary("r1").failed == 0


@pytest.mark.parametrize(
    ("error", "calls"), [(TransientError("busy"), 3), (PermanentError("refused"), 1)]
)
def test_a_run_completes_after_a_recording_has_failed(
    error: Exception, calls: int, harness: TranscriptionHarness
) -> None:
    harness.sell("7", call("a"), call("b"))
    harness.speech.fail_always(call("a").url, error)  # type: ignore[arg-type]
    harness.work(harness.begin("7", "r1").run_id)
    assert harness.speech.call_count(call("a").url) == calls
    run = harness.summary("r1")
    assert (run.status, run.failed, run.transcribed) == (
        TranscriptionStatus.COMPLETED,
        1,
        1,
    )
    assert tasks(harness)["a"].error == str(error)
    assert harness.events("transcription.completed")[0]["failed"] == 1


def test_a_retry_waits_for_the_retry_after_of_the_provider(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.speech.fail_once(call("a").url, TransientError("429", retry_after_seconds=0.6))
    harness.begin("7", "r1")
    times: list[float] = []

    async def record_time(_url: str) -> None:
        with harness.database.reading() as session:
            times.append(session.connection().exec_driver_sql(_seconds(harness)).scalar_one())

    harness.speech._during_call = record_time
    harness.work("r1")
    assert times[1] - times[0] >= 0.6


def _seconds(harness: TranscriptionHarness) -> str:
    if harness.database.dialect == "sqlite":
        return "SELECT (julianday('now') - 2440587.5) * 86400.0"
    return "SELECT extract(epoch from clock_timestamp())::double precision"


def test_a_recording_transcribed_after_planning_is_not_sent(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"), call("b"))
    harness.begin("7", "r1")
    with harness.database.transaction() as session:
        session.execute(
            update(CallRecordingRow)
            .where(CallRecordingRow.call_id == "a")
            .values(has_transcription=True)
        )
    harness.work("r1")
    assert harness.speech.requests == urls("b")
    run = harness.summary("r1")
    assert (run.cached, run.new) == (1, 1)


def test_an_expired_claim_is_taken_over_with_a_higher_token(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    with harness.database.transaction() as session:
        [expired] = claim_next(session, "dead", 1, lease_seconds=0.0, per_fiche=10)
    assert expired
    harness.work("r1", owner="alive")
    assert tasks(harness)["a"].token == expired.token + 1
    with harness.database.transaction() as session:
        assert finish_tasks(session, [expired], TaskState.DONE) == set()
    assert harness.summary("r1").processed == 1


def test_a_long_recording_does_not_lose_its_claim(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.begin("7", "r1")
    taken_over: list[object] = []

    async def call_slowly(_url: str) -> None:
        await harness.longer_than_its_lease()
        with harness.database.transaction() as session:
            taken_over.append(
                claim_next(session, "another worker", 1, lease_seconds=1, per_fiche=10)
            )
            # Simulate an hour without updates before the worker's next heartbeat.
            hour_ago = {"touched_at": database_now(-3600)}
            session.execute(update(TranscriptionRunRow).values(hour_ago))
        await harness.longer_than_its_lease()
        swept.extend(sweep_transcriptions(1800, database=harness.database))

    swept: list[str] = []
    harness.speech = FakeSpeechToText(otherwise=transcript_of, during_call=call_slowly)
    harness.work_for_long("r1")
    assert (taken_over, swept) == ([[]], [])
    assert harness.summary("r1").new == 1


def test_a_silent_call_is_transcribed_without_chunks(harness: TranscriptionHarness) -> None:
    harness.sell("7", call("a"))
    harness.speech.add(call("a").url, transcript("tr_silent", text="", words=()))
    harness.work(harness.begin("7", "r1").run_id)
    assert harness.transcribed() == {"a"}
    with harness.database.reading() as session:
        assert session.scalars(select(ChunkRow)).all() == []


def test_two_concurrent_workers_send_nothing_twice_and_complete_the_run_once(
    harness: TranscriptionHarness,
) -> None:
    harness.sell("7", *(call(f"c{number}") for number in range(12)))
    harness.begin("7", "r1")
    workers = [
        threading.Thread(target=harness.work, args=("r1",), kwargs={"owner": name})
        for name in ("one", "two")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert sorted(harness.speech.requests) == sorted(set(harness.speech.requests))
    assert len(harness.transcribed()) == 12
    assert harness.names().count("transcription.completed") == 1
    assert harness.names().count("fiche/transcribed") == 1


def test_a_refused_api_key_stops_the_remaining_calls(harness: TranscriptionHarness) -> None:
    """Calls in progress at the first refusal are finished; all thirty recordings fail with its reason."""
    harness.sell("7", *(call(f"c{number:02}") for number in range(30)))
    harness.speech = FakeSpeechToText(otherwise=transcript_of, at_once=3)
    harness.speech.refuse_everything(
        ProviderAccessError("ElevenLabs speech-to-text failed status=401 (check the key)")
    )
    harness.work(harness.begin("7", "r1").run_id)
    assert len(harness.speech.calls) <= 3
    assert harness.summary("r1").failed == 30
    failed = harness.events("transcription.recording_failed")
    assert all("status=401 (check the key)" in str(event["error"]) for event in failed)


def test_a_refused_api_key_is_tried_again_after_a_minute() -> None:
    now = [0.0]
    breaker = AccessBreaker(lambda: now[0])
    breaker.open("status=402")
    now[0] = 59.9
    with pytest.raises(
        ProviderAccessError,
        match=r"^Not sent: the provider has just refused the key\. status=402$",
    ):
        breaker.check()
    now[0] = 60.0
    breaker.check()
