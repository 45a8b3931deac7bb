"""Tests of `automation transcribe`: a request prints its run id; invalid input is rejected."""

from collections.abc import Iterator

import pytest
from sqlalchemy import select

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.storage.run_requests import RunRequestRow, mark_refused
from automation_pipeline_tests.cli.terminal import Terminal, during_pauses, open_terminal
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.transcription.harness import TranscriptionHarness, call


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


def test_each_fiche_is_requested_once_and_its_run_is_printed(terminal: Terminal) -> None:
    filed = terminal.json("transcribe", "7", "8", "7", "--priority", "high")["transcriptions"]
    assert [one["fiche_id"] for one in filed] == ["7", "8"]
    with terminal.database.reading() as session:
        requests = session.scalars(select(RunRequestRow).order_by(RunRequestRow.id)).all()
    assert [request.job for request in requests] == ["transcribe_fiche"] * 2
    assert [request.config for request in requests] == [
        {"fiche_id": one["fiche_id"], "priority": "high", "run_id": one["run_id"]} for one in filed
    ]


@pytest.fixture
def harness(
    terminal: Terminal, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> TranscriptionHarness:
    """The requested runs are worked on during the pauses of the command. The provider refuses one call."""
    harness = TranscriptionHarness(terminal.database, clock)
    harness.sell("7", call("7a"))
    harness.sell("8", call("8a"), call("8b"))
    harness.speech.fail_always(call("8b").url, PermanentError("No speech"))

    def work() -> None:
        with terminal.database.reading() as session:
            requests = session.scalars(select(RunRequestRow).order_by(RunRequestRow.id)).all()
        for request in requests:
            run_id = str(request.config["run_id"])
            harness.work(harness.begin(str(request.config["fiche_id"]), run_id).run_id)

    during_pauses(monkeypatch, *[work] * 3)
    return harness


def test_a_followed_transcription_prints_its_result(
    terminal: Terminal, harness: TranscriptionHarness
) -> None:
    ended = terminal.run("transcribe", "7", "--wait")
    assert (ended.code, ended.err) == (0, "")
    assert [line.split() for line in ended.out.splitlines()[-2:]] == [
        ["fiche", "status", "recordings", "transcribed", "failed", "error"],
        ["7", "completed", "1", "1", "0"],
    ]


def test_a_recording_that_fails_is_an_exit_code_with_its_reason(
    terminal: Terminal, harness: TranscriptionHarness
) -> None:
    document = terminal.json("transcribe", "7", "8", "--wait", code=1)
    runs = [one.pop("run_id") for one in document["transcriptions"]]
    assert len(set(runs)) == 2
    assert document["transcriptions"] == [
        {"fiche_id": fiche_id, "status": "completed", "recordings": recordings, "transcribed": 1, "failed": failed,
         "error": error}
        for fiche_id, recordings, failed, error in (
            ("7", 1, 0, None),
            ("8", 2, 1, "1 of 2 recordings of fiche 8 could not be transcribed: No speech"),
        )
    ]  # fmt: skip


def test_a_recording_without_audio_is_the_reason_for_the_exit_code(
    terminal: Terminal, harness: TranscriptionHarness
) -> None:
    harness.sell("9", call("9a"), call("9b", url=""))
    ended = terminal.run("transcribe", "9", "--wait")
    assert (ended.code, ended.err) == (
        1,
        "1 of 2 recordings of fiche 9 could not be transcribed: No recording URL available.\n",
    )


def test_a_single_transcription_that_cannot_start_is_the_error_of_the_command(
    terminal: Terminal, harness: TranscriptionHarness
) -> None:
    ended = terminal.run("transcribe", "404", "--wait")
    assert (ended.code, ended.err) == (1, "Fiche not found (404).\n")


def test_a_refused_transcription_has_a_row_in_the_table(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        with terminal.database.transaction() as session:
            for key in session.scalars(select(RunRequestRow.request_key)).all():
                mark_refused(session, key, "The queue is closed")

    during_pauses(monkeypatch, *[refuse] * 3)
    ended = terminal.run("transcribe", "7", "8", "--wait")
    assert ended.code == 1
    assert [line.split() for line in ended.out.splitlines()[-2:]] == [
        [fiche_id, "failed", "The", "queue", "is", "closed"] for fiche_id in ("7", "8")
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("transcribe", "Missing argument 'fiche_ids'"),
        ("transcribe abc", "A fiche id is a number, unlike abc."),
        ("transcribe 7 --priority soon", "Invalid value for '--priority'"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    terminal: Terminal, arguments: str, sentence: str
) -> None:
    ended = terminal.run(*arguments.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(sentence)
    assert len(ended.err.splitlines()) == 1
