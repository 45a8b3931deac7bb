"""How far a fiche is, in short: whether it is mirrored, and how many of its calls are transcribed."""

from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.core.instants import iso

Document = dict[str, object]


@dataclass(frozen=True)
class Transcribed:
    """Recordings that the CRM no longer names do not count."""

    total: int
    transcribed: int
    last_at: datetime | None = None

    @property
    def pending(self) -> int:
        return self.total - self.transcribed

    @property
    def percentage(self) -> int:
        return round(100 * self.transcribed / self.total) if self.total else 100


def transcription_part(calls: Transcribed) -> Document:
    return {
        "total": calls.total,
        "transcribed": calls.transcribed,
        "pending": calls.pending,
        "percentage": calls.percentage,
        "isComplete": calls.pending == 0,
        "lastTranscribedAt": calls.last_at and iso(calls.last_at),
    }


def unknown_transcription() -> Document:
    """Of a fiche that is not mirrored, or not for the asker to see: the two look the same."""
    return {**transcription_part(Transcribed(0, 0)), "percentage": 0, "isComplete": False}
