"""Decisions of transcription: what follows a failed attempt, and how a transcript is cut into
chunks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from math import floor
from random import Random

from automation_pipeline.core.errors import AutomationError, InfrastructureError, TransientError
from automation_pipeline.transcription.models import SPACING, Chunk, SpeechOptions, Transcript, Word

# A provider, or a host of audio, that asks for more patience than this is not coming back today.
MAX_WAIT_SECONDS = 3600.0


@dataclass(frozen=True)
class RetryRecording:
    after: timedelta
    error: str


@dataclass(frozen=True)
class FailRecording:
    error: str


def after_error(
    error: AutomationError, attempts: int, options: SpeechOptions, random: Random
) -> RetryRecording | FailRecording:
    """`attempts` counts the tries so far, the failed one included. The larger of the provider's
    Retry-After and the back-off is waited for. What is nobody's
    failure out there is tried again however often."""
    if isinstance(error, InfrastructureError):
        wait = options.backoff.delay(attempts, random)
        return RetryRecording(timedelta(seconds=wait), str(error))
    if not isinstance(error, TransientError) or attempts >= options.max_attempts:
        return FailRecording(str(error))
    history = error.retry_after_seconds
    if history is not None and history > MAX_WAIT_SECONDS:
        return FailRecording(f"{error} The wait it asks for, {history:.0f} s, is too long.")
    wait = options.backoff.wait(attempts, history, random)
    return RetryRecording(timedelta(seconds=wait), str(error))


MESSAGES_PER_CHUNK = 10
# A message is a minute or two of speech at most, so that a chunk stays a passage that a model can
# be shown.
WORDS_PER_MESSAGE = 250
UNKNOWN_SPEAKER = "unknown"

# Where the provider gives a text without words, their times and speakers are made up.
MIN_WORD_SECONDS = 0.05
WORDS_PER_SECOND = 2
WORDS_PER_TURN = 10


@dataclass(frozen=True, slots=True)
class _Message:
    speaker: str
    text: str
    start: float
    end: float


def chunks_of(words: Iterable[Word]) -> tuple[Chunk, ...]:
    """The chunks of these words, in their order. Every word that is not a spacing is in exactly one
    of them."""
    messages = list(_messages(words))
    return tuple(
        _chunk(index, messages[first : first + MESSAGES_PER_CHUNK])
        for index, first in enumerate(range(0, len(messages), MESSAGES_PER_CHUNK))
    )


def words_or_estimated(transcript: Transcript, duration_seconds: float | None) -> tuple[Word, ...]:
    """The provider's words; where it heard none in a text, the text's own, spread evenly over the
    recording, with two speakers taking turns. None at all for an empty transcript."""
    if any(_is_spoken(word) for word in transcript.words):
        return transcript.words
    texts = transcript.text.split()
    if not texts:
        return ()
    each = max(MIN_WORD_SECONDS, _length(len(texts), duration_seconds) / len(texts))
    return tuple(
        Word(text, at * each, (at + 1) * each, "word", f"speaker_{at // WORDS_PER_TURN % 2}")
        for at, text in enumerate(texts)
    )


def _length(words: int, duration_seconds: float | None) -> float:
    if duration_seconds is not None and duration_seconds > 0:
        return duration_seconds
    # Halves are rounded up: Python's round() would make 2 of 2.5.
    return max(1, floor(words / WORDS_PER_SECOND + 0.5))


def _is_spoken(word: Word) -> bool:
    return word.kind != SPACING and word.text != ""


def _speaker(word: Word) -> str:
    return word.speaker or UNKNOWN_SPEAKER


def _messages(words: Iterable[Word]) -> Iterator[_Message]:
    for speaker, turn in groupby(filter(_is_spoken, words), key=_speaker):
        said = list(turn)
        for first in range(0, len(said), WORDS_PER_MESSAGE):
            part = said[first : first + WORDS_PER_MESSAGE]
            yield _Message(
                speaker, " ".join([word.text for word in part]), part[0].start, part[-1].end
            )


def _chunk(index: int, messages: Sequence[_Message]) -> Chunk:
    return Chunk(
        index=index,
        start=messages[0].start,
        end=messages[-1].end,
        message_count=len(messages),
        speakers=tuple(dict.fromkeys(message.speaker for message in messages)),
        full_text="\n".join(f"{message.speaker}: {message.text}" for message in messages),
    )
