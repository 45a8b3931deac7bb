"""One recording with its transcript, or the error that names what is missing."""

import pytest
from sqlalchemy import select, update

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.models import Chunk
from automation_pipeline.transcription.queries.recordings import recording_document
from automation_pipeline.transcription.queries.runs import save_transcripts
from automation_pipeline_tests.audits.archive import Archive
from automation_pipeline_tests.fakes.speech import transcript

CHUNKS = [Chunk(n, 0.0, 1.0, 1, ("speaker_0",), f"speaker_0: part {n}") for n in range(2)]


@pytest.fixture
def fiche(database: Database) -> Database:
    Archive(database).put("900", calls=1)
    return database


def transcribe(database: Database, **columns: object) -> None:
    with database.transaction() as session:
        row_id = session.scalars(select(CallRecordingRow.id)).one()
        save_transcripts(session, {row_id: (transcript("tr_1"), CHUNKS)})
        if columns:
            session.execute(update(CallRecordingRow).values(**columns))


def shown(database: Database, fiche_id: str = "900", call_id: str = "9000") -> dict[str, object]:
    with database.reading() as session:
        return recording_document(session, fiche_id, call_id)


def test_a_recording_is_shown_with_its_transcript(fiche: Database) -> None:
    transcribe(fiche)
    expected = transcript("tr_1")
    document = shown(fiche)
    assert list(document) == [
        "call_id", "recording_url", "duration_seconds", "transcription_id", "has_transcription", "transcription",
    ]  # fmt: skip
    assert (document["call_id"], document["transcription_id"], document["has_transcription"]) == (
        "9000",
        "tr_1",
        True,
    )
    assert document["transcription"] == {
        "text": expected.text,
        "language_code": expected.language_code,
        "language_probability": expected.language_probability,
        "words": [],
    }


def test_a_transcript_without_text_is_joined_from_its_chunks(fiche: Database) -> None:
    transcribe(fiche, transcription_text=None)
    assert shown(fiche)["transcription"]["text"] == "speaker_0: part 0\nspeaker_0: part 1"  # type: ignore[index]


def test_a_silent_call_has_an_empty_text(fiche: Database) -> None:
    with fiche.transaction() as session:
        session.execute(
            update(CallRecordingRow).values(has_transcription=True, transcription_id="tr_1")
        )
    assert shown(fiche)["transcription"]["text"] == ""  # type: ignore[index]


def test_the_error_names_what_is_missing(fiche: Database) -> None:
    with pytest.raises(NotFoundError, match=r"^No transcription available for this recording$"):
        shown(fiche)
    for fiche_id, call_id in (("900", "77"), ("901", "9000")):
        with pytest.raises(NotFoundError, match=r"^Recording not found$"):
            shown(fiche, fiche_id, call_id)
    with fiche.transaction() as session:
        session.execute(update(CallRecordingRow).values(has_transcription=True))
    with pytest.raises(NotFoundError, match=r"^Transcription data not found in DB$"):
        shown(fiche)
