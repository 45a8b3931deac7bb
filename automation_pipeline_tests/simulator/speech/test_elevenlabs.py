"""Speech-to-text over a real socket: forms, the key, the cap, transcripts, the ledger and faults."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from automation_pipeline.simulator import CallKind, Phase, World, conversation
from automation_pipeline.simulator.audio import mp3
from automation_pipeline_tests.cases import every_case

WORLD = World(7, 24, vary=False)
CALLS = [(fiche, call) for fiche in WORLD.day(date(2026, 2, 3)) for call in fiche.recordings]
SALE, CALL = next(pair for pair in CALLS if Phase.WITHDRAWAL_RIGHT in conversation(*pair).phases)
ROUTE = "/v1/speech-to-text"
FIELDS = {
    "model_id": "scribe_v1",
    "language_code": "fra",
    "timestamps_granularity": "word",
    "diarize": "true",
}
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def process() -> Iterator[tuple[str, int]]:
    """The simulator's address and process id."""
    command = [
        sys.executable,
        "-m",
        "automation_pipeline.simulator",
        "--exact",
        "--speech-key",
        "open-sesame",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        yield running.stdout.readline().split()[-1], running.pid
        running.terminate()


@pytest.fixture
def simulator(process: tuple[str, int]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=process[0], headers={"xi-api-key": "open-sesame"}) as client:
        client.post("/_sim/speech", json={"per_minute": 0})
        client.post("/_sim/reset")
        yield client


def transcribe(simulator: httpx.Client, sound: bytes, **changed: str | None) -> httpx.Response:
    fields = {name: value for name, value in (FIELDS | changed).items() if value is not None}
    return simulator.post(ROUTE, data=fields, files={"file": ("audio.mp3", sound, "audio/mpeg")})


def sound_of(call_id: str) -> bytes:
    return mp3(call_id, 1)


def fault(simulator: httpx.Client, **rule: object) -> None:
    assert (
        simulator.post("/_sim/faults", json={"route": "speech.transcribe", **rule}).status_code
        == 200
    )


def ledger(simulator: httpx.Client, **params: str) -> Any:
    shown = simulator.get("/_sim/calls", params={"route": "speech.transcribe", **params}).json()
    return shown["routes"]["speech.transcribe"]


def test_the_audio_of_a_recording_is_recognised(
    simulator: httpx.Client,
) -> None:
    details = simulator.get(
        f"/api/fiches/by-id/{SALE.id}", headers={"authorization": "Bearer sim-token"}
    ).json()
    url = next(
        one["recording_url"] for one in details["recordings"] if one["call_id"] == CALL.call_id
    )
    answer = transcribe(simulator, simulator.get(url).content)
    transcript = conversation(SALE, CALL)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {
        "transcription_id",
        "language_code",
        "language_probability",
        "text",
        "words",
    }
    assert (body["language_code"], body["language_probability"], body["text"]) == (
        "fra",
        0.98,
        transcript.text,
    )
    assert body["transcription_id"].startswith("tr_")
    assert "rétractation" in body["text"]
    assert body["words"][0] == {
        "text": transcript.words[0].text,
        "start": 0.3,
        "end": transcript.words[0].end,
        "type": "word",
        "speaker_id": "speaker_0",
        "logprob": transcript.words[0].logprob,
    }
    assert {word["type"] for word in body["words"]} <= {"word", "spacing", "audio_event"}
    assert all(before["end"] <= after["start"] for before, after in pairwise(body["words"]))
    assert body["words"][-1]["end"] <= CALL.duration_seconds
    assert transcribe(simulator, sound_of(CALL.call_id)).json() == body


def test_a_silent_call_has_an_empty_text_and_no_words(simulator: httpx.Client) -> None:
    silent = next(
        call
        for number in range(3, 30)
        for fiche in WORLD.day(date(2026, 2, number - 2))
        for call in fiche.recordings
        if conversation(fiche, call).kind is CallKind.SILENT
    )
    body = transcribe(simulator, sound_of(silent.call_id)).json()
    assert (body["text"], body["words"]) == ("", [])
    assert body["transcription_id"]


@pytest.mark.parametrize("sound", [b"x", b"RIFF....WAVE", sound_of("99999999999"), bytes(300_000)])
def test_unknown_audio_always_has_the_same_transcript(
    simulator: httpx.Client, sound: bytes
) -> None:
    first, again = transcribe(simulator, sound).json(), transcribe(simulator, sound).json()
    assert first == again
    assert len(first["words"]) > 100
    assert transcribe(simulator, sound + b"y").json()["text"] != first["text"]


def test_speakers_and_words_can_be_left_out(simulator: httpx.Client) -> None:
    sound = sound_of(CALL.call_id)
    together = transcribe(simulator, sound, diarize="false").json()
    assert {word["speaker_id"] for word in together["words"]} == {None}
    text_only = transcribe(simulator, sound, timestamps_granularity="none").json()
    assert (text_only["words"], text_only["text"]) == ([], together["text"])


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"xi-api-key": "wrong"}, "Invalid API key."),
        ({"xi-api-key": "é"}, "Invalid API key."),
        ({}, "No xi-api-key header received, please provide one."),
        (
            {"authorization": "Bearer open-sesame"},
            "No xi-api-key header received, please provide one.",
        ),
    ],
)
def test_a_wrong_or_missing_key_has_the_error_format_of_the_provider(
    process: tuple[str, int], headers: dict[str, str], message: str
) -> None:
    encoded = {name: value.encode("utf-8") for name, value in headers.items()}
    files = {"file": ("audio.mp3", sound_of(CALL.call_id), "audio/mpeg")}
    answer = httpx.post(process[0] + ROUTE, data=FIELDS, files=files, headers=encoded)
    assert answer.status_code == 401
    assert answer.json() == {"detail": {"status": "invalid_api_key", "message": message}}


def test_an_unknown_speech_model_is_refused(simulator: httpx.Client) -> None:
    answer = transcribe(simulator, b"x", model_id="scribe_v9")
    assert (answer.status_code, answer.json()["detail"]["status"]) == (400, "invalid_model_id")
    assert "'scribe_v9' is not a valid model_id" in answer.json()["detail"]["message"]


def test_an_empty_file_is_refused(simulator: httpx.Client) -> None:
    answer = transcribe(simulator, b"")
    assert answer.status_code == 400
    assert answer.json() == {
        "detail": {"status": "invalid_content", "message": "The uploaded file is empty."}
    }


def problems(answer: httpx.Response) -> list[tuple[str, str]]:
    assert answer.status_code == 422
    return [(problem["loc"][1], problem["type"]) for problem in answer.json()["detail"]]


def test_missing_parts_and_wrong_parameters_are_named(simulator: httpx.Client) -> None:
    assert problems(transcribe(simulator, b"x", model_id=None)) == [("model_id", "missing")]
    assert problems(transcribe(simulator, b"x", timestamps_granularity="bit")) == [
        ("timestamps_granularity", "literal_error")
    ]
    assert problems(transcribe(simulator, b"x", diarize="perhaps")) == [("diarize", "bool_parsing")]
    assert problems(transcribe(simulator, b"x", language_code="français")) == [
        ("language_code", "value_error")
    ]
    only_text = {
        name: (None, value) for name, value in {"file": "no file name", "other": "x"}.items()
    }
    assert problems(simulator.post(ROUTE, files=only_text)) == [
        ("model_id", "missing"),
        ("file", "missing"),
    ]


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b'{"model_id": "scribe_v1"}', "application/json"),
        (b"--line\r\nnonsense", "multipart/form-data; boundary=line"),
        (b"", "multipart/form-data; boundary=line"),
        (b"--line--", "multipart/form-data"),
    ],
)
def test_a_body_that_is_not_a_form_is_a_400(
    simulator: httpx.Client, content: bytes, content_type: str
) -> None:
    answer = simulator.post(ROUTE, content=content, headers={"content-type": content_type})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("There was an error parsing the body: ")
    assert ledger(simulator)["items"] == {"no file": 1}


def test_only_post_is_allowed(simulator: httpx.Client) -> None:
    assert simulator.get(ROUTE).status_code == 405


def test_a_transcription_above_the_cap_gets_a_retry_after_and_is_counted(
    simulator: httpx.Client,
) -> None:
    assert simulator.post("/_sim/speech", json={"per_minute": 2}).json() == {"per_minute": 2}
    answers = [transcribe(simulator, sound_of(CALL.call_id)) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert 58 <= int(answers[2].headers["retry-after"]) <= 60
    assert answers[2].json()["detail"]["status"] == "rate_limit_exceeded"
    shown = ledger(simulator, times="1")
    assert (shown["statuses"], shown["items"]) == ({"200": 2, "429": 2}, {CALL.call_id: 4})
    assert len(shown["times"]) == 4
    assert shown["times"] == sorted(shown["times"])


def test_a_call_with_a_wrong_key_does_not_count_and_a_faulted_call_does(
    simulator: httpx.Client,
) -> None:
    simulator.post("/_sim/speech", json={"per_minute": 1})
    fault(simulator, status=500, first=1)
    assert simulator.post(ROUTE, headers={"xi-api-key": "wrong"}).status_code == 401
    assert [transcribe(simulator, b"x").status_code for _ in range(2)] == [500, 429]


def test_a_reset_empties_the_minute_and_keeps_the_cap(simulator: httpx.Client) -> None:
    simulator.post("/_sim/speech", json={"per_minute": 1})
    for _ in range(2):
        assert [transcribe(simulator, b"x").status_code for _ in range(2)] == [200, 429]
        simulator.post("/_sim/reset")
    simulator.post("/_sim/speech", json={"per_minute": 0})
    assert [transcribe(simulator, b"x").status_code for _ in range(3)] == [200, 200, 200]


@every_case(
    "posted", ["", "3", "{}", '{"per_minute": "1"}', '{"per_minute": -1}', '{"per_minute": 1.5}']
)
def test_an_invalid_cap_is_refused(simulator: httpx.Client, posted: str) -> None:
    assert simulator.post("/_sim/speech", content=posted).status_code == 422


def test_the_cap_can_be_given_at_the_start() -> None:
    command = [sys.executable, "-m", "automation_pipeline.simulator", "--speech-per-minute", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        with httpx.Client(
            base_url=running.stdout.readline().split()[-1], headers={"xi-api-key": "sim-speech-key"}
        ) as client:
            assert [transcribe(client, b"x").status_code for _ in range(2)] == [200, 429]
        running.terminate()


def test_faults_apply_by_call_and_have_the_error_format_of_the_provider(
    simulator: httpx.Client,
) -> None:
    other = next(call for _, call in CALLS if call.call_id != CALL.call_id)
    fault(simulator, item=CALL.call_id, status=429, retry_after=3, first=1)
    assert transcribe(simulator, sound_of(other.call_id)).status_code == 200
    faulted = transcribe(simulator, sound_of(CALL.call_id))
    assert (faulted.status_code, faulted.headers["retry-after"]) == (429, "3")
    assert faulted.json() == {
        "detail": {"status": "too_many_concurrent_requests", "message": "Simulated answer 429."}
    }
    assert transcribe(simulator, sound_of(CALL.call_id)).status_code == 200
    assert ledger(simulator, item=CALL.call_id)["items"] == {CALL.call_id: 2}


def test_answers_can_be_corrupted_and_dropped(simulator: httpx.Client) -> None:
    sound = sound_of(CALL.call_id)
    fault(simulator, body="wrong_types", first=1)
    fault(simulator, body="not_json", status=502, first=1)
    fault(simulator, status=599, first=1)
    fault(simulator, drop=True, first=1)
    assert isinstance(transcribe(simulator, sound).json()["text"], list)
    assert transcribe(simulator, sound).text.startswith("<html>")
    assert transcribe(simulator, sound).json()["detail"]["status"] == "error_599"
    with pytest.raises(httpx.RemoteProtocolError):
        transcribe(simulator, sound)
    assert transcribe(simulator, sound).status_code == 200


def peak_memory(process_id: int) -> int:
    """The highest memory usage of the process so far, in bytes."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_a_big_upload_and_a_big_download_stay_out_of_memory(
    process: tuple[str, int], simulator: httpx.Client
) -> None:
    simulator.post("/_sim/faults", json={"route": "audio", "pad_bytes": 200 * MEGABYTE})
    transcribe(simulator, sound_of(CALL.call_id))
    before = peak_memory(process[1])
    with simulator.stream("GET", f"/recordings/{CALL.call_id}/{CALL.file_name}") as download:
        upload = simulator.post(
            ROUTE,
            content=form_with(download.iter_bytes()),
            headers={"content-type": "multipart/form-data; boundary=line"},
        )
    assert upload.json()["text"] == conversation(SALE, CALL).text
    assert peak_memory(process[1]) - before < 20 * MEGABYTE


def form_with(sound: Iterator[bytes]) -> Iterator[bytes]:
    yield b'--line\r\nContent-Disposition: form-data; name="model_id"\r\n\r\nscribe_v1\r\n'
    yield b'--line\r\nContent-Disposition: form-data; name="file"; filename="audio.mp3"\r\n\r\n'
    yield from sound
    yield b"\r\n--line--\r\n"


def test_an_upload_that_breaks_off_is_a_call_without_an_answer(simulator: httpx.Client) -> None:
    def breaking_off() -> Iterator[bytes]:
        yield b"--line\r\n"
        raise InterruptedError

    with pytest.raises(InterruptedError):
        simulator.post(
            ROUTE,
            content=breaking_off(),
            headers={"content-type": "multipart/form-data; boundary=line"},
        )
    while ledger(simulator)["in_flight"]:
        pass
    shown = ledger(simulator, times="1")
    assert (shown["calls"], shown["statuses"], shown["items"], len(shown["times"])) == (
        1,
        {"none": 1},
        {},
        1,
    )
