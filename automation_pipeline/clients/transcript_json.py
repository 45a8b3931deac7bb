"""A transcript as ElevenLabs writes it when all is as it should be: words by the tens of thousands, read in one go."""

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from automation_pipeline.transcription.domain.transcript import SPACING, Transcript, Word


class _Word(Struct, gc=False):
    text: str
    start: float
    end: float
    type: str
    speaker_id: str | None = None


class _Answer(Struct):
    transcription_id: str
    text: str | None = None
    language_code: str | None = None
    language_probability: float | None = None
    words: list[_Word] | None = None


_READ = Decoder(_Answer).decode


def plain_transcript(body: bytes) -> Transcript | None:
    """None for one that is odd in any way, down to the last of its words: it is for `TranscriptPayload`, which bears
    much and takes three times as long."""
    try:
        answer = _READ(body)
    except (DecodeError, UnicodeDecodeError):
        return None
    transcription_id = answer.transcription_id.strip()
    if not transcription_id:
        return None
    return Transcript(
        transcription_id=transcription_id,
        text=answer.text or "",
        language_code=_noted(answer.language_code),
        language_probability=answer.language_probability,
        words=tuple([
            Word(word.text, word.start, word.end, word.type, _noted(word.speaker_id))
            for word in answer.words or ()
            if word.type != SPACING and word.text and word.type
        ]),
    )  # fmt: skip


def _noted(text: str | None) -> str | None:
    return (text.strip() or None) if text else None
