"""A transcript as ElevenLabs writes it when all is as it should be: words by the tens of thousands, read in one go."""

from collections.abc import Sequence

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from automation_pipeline.transcription.domain.transcript import SPACING, Transcript, Word


class _Answer(Struct):
    transcription_id: str
    text: str | None = None
    language_code: str | None = None
    language_probability: float | None = None
    words: list[Word] | None = None


_READ = Decoder(_Answer).decode


def plain_transcript(body: bytes) -> Transcript | None:
    """None for one that is odd in any way, down to the last of its words: it is for `TranscriptPayload`, which bears
    much and takes three times as long."""
    try:
        answer = _READ(body)
    except (DecodeError, UnicodeDecodeError):
        return None
    words = [word for word in answer.words or () if word.kind != SPACING and word.text and word.kind]
    transcription_id = answer.transcription_id.strip()
    if not transcription_id or not _are_bare(words):
        return None
    return Transcript(
        transcription_id=transcription_id,
        text=answer.text or "",
        language_code=(answer.language_code or "").strip() or None,
        language_probability=answer.language_probability,
        words=tuple(words),
    )


def _are_bare(words: Sequence[Word]) -> bool:
    """Whether the speakers' names are as they are kept: none is empty, or has blanks around it."""
    return all(name is None or (name and name == name.strip()) for name in {word.speaker for word in words})
