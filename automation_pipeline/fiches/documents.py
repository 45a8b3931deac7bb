"""JSON documents of fiches: sales list entries, transcription counts, and what callers without a
permission do not see."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from automation_pipeline.core.clock import iso
from automation_pipeline.fiches.models.fiches import Recording, SalesListEntry

Document = dict[str, object]


@dataclass(frozen=True)
class CallTranscription:
    """How many of a fiche's recordings are transcribed. Vanished recordings do not count."""

    total: int
    transcribed: int
    last_at: datetime | None = None

    @property
    def pending(self) -> int:
        return self.total - self.transcribed

    @property
    def percentage(self) -> int:
        return round(100 * self.transcribed / self.total) if self.total else 100


def transcription_document(calls: CallTranscription) -> Document:
    return {
        "total": calls.total,
        "transcribed": calls.transcribed,
        "pending": calls.pending,
        "percentage": calls.percentage,
        "isComplete": calls.pending == 0,
        "lastTranscribedAt": calls.last_at and iso(calls.last_at),
    }


def unknown_transcription_document() -> Document:
    """The same document for a fiche that is not mirrored and for one that the caller may not see."""
    return {**transcription_document(CallTranscription(0, 0)), "percentage": 0, "isComplete": False}


def sales_document(fiche: SalesListEntry, *, with_audio: bool) -> Document:
    """`with_audio` includes the addresses of the recordings."""
    return {
        "id": fiche.fiche_id,
        "cle": fiche.cle,
        "nom": fiche.nom,
        "prenom": fiche.prenom,
        "telephone": fiche.telephone,
        "telephone_2": fiche.telephone_2,
        "email": fiche.email,
        "statut": fiche.statut,
        "date_insertion": fiche.inserted_at and iso(fiche.inserted_at),
        "date_modification": fiche.modified_at and iso(fiche.modified_at),
        "recordings": [
            _recording_document(call, with_audio=with_audio) for call in fiche.recordings
        ],
    }


def _recording_document(call: Recording, *, with_audio: bool) -> Document:
    return {
        "call_id": call.call_id,
        "start_time": iso(call.started_at),
        "duration_seconds": call.duration_seconds,
        "direction": call.direction,
        "from_number": call.from_number,
        "to_number": call.to_number,
        "answered": call.answered,
        "recording_url": (call.url or None) if with_audio else None,
    }


_AUDIO_FIELDS = ("recording_url", "transcription_text")
MAIL_DEVIS = "mail_devis"


def without_recordings_audio(document: Mapping[str, object]) -> Document:
    recordings = cast("list[Document]", document["recordings"])
    hidden = [{**recording, **dict.fromkeys(_AUDIO_FIELDS)} for recording in recordings]
    return {**_without_raw_field(document, "recordings"), "recordings": hidden}


def without_mail_devis(document: Mapping[str, object]) -> Document:
    return _without_raw_field(document, MAIL_DEVIS)


def _without_raw_field(document: Mapping[str, object], name: str) -> Document:
    """Hide the fields of the section that no table models."""
    raw = cast("Mapping[str, object]", document["raw_data"])
    return {**document, "raw_data": {key: value for key, value in raw.items() if key != name}}
