"""Documents of fiches, and the names of recordings."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.fiches.models.fiches import recording_uuid
from automation_pipeline.fiches.queries.fiches import (
    UNKNOWN_TRANSCRIPTION,
    transcription_document,
)
from automation_pipeline.fiches.routes import without_raw_field, without_recordings_audio
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.crm import recording


@every_case(
    ("total", "done", "pending", "percentage", "complete"),
    [
        (3, 2, 1, 67, False),
        (3, 3, 0, 100, True),
        (3, 0, 3, 0, False),
        (0, 0, 0, 100, True),
        (200, 199, 1, 100, False),
    ],
)
def test_transcription_counts_add_up(
    total: int, done: int, pending: int, percentage: int, complete: bool
) -> None:
    assert transcription_document(total, done) == {
        "total": total, "transcribed": done, "pending": pending, "percentage": percentage, "isComplete": complete,
        "lastTranscribedAt": None,
    }  # fmt: skip


def test_an_unknown_fiche_is_not_complete() -> None:
    result = UNKNOWN_TRANSCRIPTION
    assert (result["total"], result["percentage"], result["isComplete"]) == (0, 0, False)


RECORDING = {
    "call_id": "7",
    "recording_url": "https://records.example.test/7.mp3",
    "transcription_text": "Bonjour",
}
DOCUMENT = {
    "fiche_id": "1",
    "recordings": [RECORDING],
    "raw_data": {
        "mail_devis": {"a": 1},
        "recordings": {"0": {"mp3": "https://records.example.test/7.mp3"}},
        "x": 1,
    },
}


def test_recordings_are_shown_without_audio_urls_and_transcripts() -> None:
    shown = without_recordings_audio(DOCUMENT)
    assert shown["recordings"] == [
        {"call_id": "7", "recording_url": None, "transcription_text": None}
    ]
    assert shown["raw_data"] == {"mail_devis": {"a": 1}, "x": 1}
    assert "records.example.test" not in str(shown)
    assert DOCUMENT["recordings"] == [RECORDING]


def test_the_mail_devis_field_can_be_removed() -> None:
    assert "mail_devis" not in str(without_raw_field(DOCUMENT, "mail_devis"))
    assert without_raw_field(DOCUMENT, "mail_devis")["recordings"] == [RECORDING]


UUID = "0a1b2c3d-1111-4222-8333-444455556666"
NAME = f"{UUID}-03-02-26-10h14-33100000001-33600000001.mp3"


@every_case(
    "url",
    [
        NAME,
        f"https://records.example.test/t/{NAME}",
        f"https://records.example.test/{NAME}?token=a/b&x=1.mp3",
        f"https://records.example.test/{NAME}#t=10/2",
        f"/t/{NAME.upper()}",
        f"http://[/{NAME}",
    ],
)
def test_the_recording_uuid_is_read_from_the_last_path_segment(url: str) -> None:
    assert recording_uuid(url) == UUID


@every_case(
    "url",
    [
        "",
        "https://records.example.test/1.mp3",
        f"https://records.example.test/{NAME}/play",
        f"https://records.example.test/{NAME}.wav",
        f"https://records.example.test/x{NAME}",
        f"https://records.example.test/play?file={NAME}",
        NAME.replace("10h14", "10:14"),
        NAME.replace("33100000001", "anonyme"),
        NAME.replace("0a1b2c3d", "0a1b2c3"),
        NAME.replace("33100000001", "٣٣"),
    ],
)
def test_a_file_name_in_another_format_has_no_uuid(url: str) -> None:
    assert recording_uuid(url) is None


@given(st.text())
def test_any_text_gives_a_uuid_or_none(url: str) -> None:
    assert recording_uuid(url) in {None, UUID}


def test_recording_date_and_time_are_the_start_in_paris_time() -> None:
    """10h14 in the file name is local time; the start is the same instant, 09:14 UTC."""
    call = recording("1", url=NAME)
    assert (call.recording_date, call.recording_time) == ("03/02/2026", "10:14")
    summer = replace(call, started_at=call.started_at.replace(month=7, hour=22))
    assert (summer.recording_date, summer.recording_time) == ("04/07/2026", "00:14")
