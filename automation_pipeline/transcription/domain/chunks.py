"""How the words of a transcript become chunks of at most ten messages; a message is one speaker's turn, or a part of
it where the turn is long."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import floor

from automation_pipeline.transcription.domain.transcript import SPACING, Chunk, Transcript, Word

MESSAGES_A_CHUNK = 10
# A message is a minute or two of speech at most, so that a chunk stays a passage that a model can be shown.
WORDS_A_MESSAGE = 250
UNKNOWN_SPEAKER = "unknown"

# Where the provider gives a text without words, their times and speakers are made up.
SHORTEST_WORD_SECONDS = 0.05
WORDS_A_SECOND = 2
WORDS_A_TURN = 10


@dataclass(frozen=True, slots=True)
class _Message:
    speaker: str
    text: str
    start: float
    end: float


def chunks_of(words: Iterable[Word]) -> tuple[Chunk, ...]:
    """The chunks of these words, in their order. Every word that is not a spacing is in exactly one of them."""
    messages = list(_messages(words))
    return tuple(
        _chunk(index, messages[first : first + MESSAGES_A_CHUNK])
        for index, first in enumerate(range(0, len(messages), MESSAGES_A_CHUNK))
    )


def words_or_synthesised(transcript: Transcript, duration_seconds: float | None) -> tuple[Word, ...]:
    """The provider's words; where it heard none in a text, the text's own, spread evenly over the recording, with two
    speakers taking turns. None at all for an empty transcript."""
    if any(_is_said(word) for word in transcript.words):
        return transcript.words
    texts = transcript.text.split()
    if not texts:
        return ()
    each = max(SHORTEST_WORD_SECONDS, _length(len(texts), duration_seconds) / len(texts))
    return tuple(
        Word(text, at * each, (at + 1) * each, "word", f"speaker_{at // WORDS_A_TURN % 2}")
        for at, text in enumerate(texts)
    )


def _length(words: int, duration_seconds: float | None) -> float:
    if duration_seconds is not None and duration_seconds > 0:
        return duration_seconds
    # Halves are rounded up: Python's round() would make 2 of 2.5.
    return max(1, floor(words / WORDS_A_SECOND + 0.5))


def _is_said(word: Word) -> bool:
    return word.kind != SPACING and word.text != ""


def _speaker(word: Word) -> str:
    return word.speaker or UNKNOWN_SPEAKER


def _messages(words: Iterable[Word]) -> Iterator[_Message]:
    for speaker, turn in groupby(filter(_is_said, words), key=_speaker):
        said = list(turn)
        for first in range(0, len(said), WORDS_A_MESSAGE):
            part = said[first : first + WORDS_A_MESSAGE]
            yield _Message(speaker, " ".join([word.text for word in part]), part[0].start, part[-1].end)


def _chunk(index: int, messages: Sequence[_Message]) -> Chunk:
    return Chunk(
        index=index,
        start=messages[0].start,
        end=messages[-1].end,
        message_count=len(messages),
        speakers=tuple(dict.fromkeys(message.speaker for message in messages)),
        full_text="\n".join(f"{message.speaker}: {message.text}" for message in messages),
    )
