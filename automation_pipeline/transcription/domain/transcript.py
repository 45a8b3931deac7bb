"""What speech-to-text hears in one recording, and the chunks that it is kept in. The cutting is in `chunks`."""

from dataclasses import dataclass

from msgspec import Struct

SPACING = "spacing"


class Word(Struct, frozen=True, gc=False, rename={"kind": "type", "speaker": "speaker_id"}):
    """A piece of the audio, in seconds from its start. `kind` is the provider's: `word`, `spacing`, `audio_event` …;
    `speaker` is None where the provider does not say who it is. A structure of msgspec's, for there are tens of
    thousands: they are read from the provider's JSON, with its names, as they are."""

    text: str
    start: float
    end: float
    kind: str
    speaker: str | None = None


@dataclass(frozen=True)
class Transcript:
    """One recording. Empty text and no words are a transcript too: nothing was said."""

    transcription_id: str
    text: str
    language_code: str | None
    language_probability: float | None
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Chunk:
    """Up to ten messages. Audits cite it by its index, which therefore never changes for the same words."""

    index: int
    start: float
    end: float
    message_count: int
    speakers: tuple[str, ...]
    full_text: str
