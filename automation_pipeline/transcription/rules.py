"""Rules of transcription: what follows a failed attempt, and how a transcript becomes chunks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from math import floor
from random import Random

from automation_pipeline.core.errors import AutomationError, InfrastructureError, TransientError
from automation_pipeline.transcription.models import SPACING, Chunk, SpeechOptions, Transcript, Word

# A recording fails if the provider or the audio's host requests a longer wait than this.
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
    """Decide what follows a failed attempt. `attempts` includes the failed one.

    The wait is the larger of the provider's Retry-After and the back-off. An InfrastructureError is
    always retried.
    """
    if isinstance(error, InfrastructureError):
        wait = options.backoff.delay(attempts, random)
        return RetryRecording(timedelta(seconds=wait), str(error))
    if not isinstance(error, TransientError) or attempts >= options.max_attempts:
        return FailRecording(str(error))
    retry_after = error.retry_after_seconds
    if retry_after is not None and retry_after > MAX_WAIT_SECONDS:
        return FailRecording(f"{error} The requested wait of {retry_after:.0f} s is too long.")
    wait = options.backoff.wait(attempts, retry_after, random)
    return RetryRecording(timedelta(seconds=wait), str(error))


MESSAGES_PER_CHUNK = 10
# This limits a message to one or two minutes of speech, so that a chunk fits into a prompt.
WORDS_PER_MESSAGE = 250
UNKNOWN_SPEAKER = "unknown"

# For a text without words, times and speakers are estimated.
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
    """Group the words into chunks. Every word that is not spacing is in exactly one chunk."""
    messages = list(_messages(words))
    return tuple(
        _chunk(index, messages[first : first + MESSAGES_PER_CHUNK])
        for index, first in enumerate(range(0, len(messages), MESSAGES_PER_CHUNK))
    )


def words_or_estimated(transcript: Transcript, duration_seconds: float | None) -> tuple[Word, ...]:
    """The provider's words, or estimated ones for a text without words: spread evenly over the recording,
    with two alternating speakers."""
    if any(_is_spoken(word) for word in transcript.words):
        return transcript.words
    texts = transcript.text.split()
    if not texts:
        return ()
    seconds = max(MIN_WORD_SECONDS, _estimated_seconds(len(texts), duration_seconds) / len(texts))
    return tuple(
        Word(text, n * seconds, (n + 1) * seconds, "word", f"speaker_{n // WORDS_PER_TURN % 2}")
        for n, text in enumerate(texts)
    )


def _estimated_seconds(words: int, duration_seconds: float | None) -> float:
    if duration_seconds is not None and duration_seconds > 0:
        return duration_seconds
    # Round halves up; round() rounds 2.5 to 2.
    return max(1, floor(words / WORDS_PER_SECOND + 0.5))


def _is_spoken(word: Word) -> bool:
    return word.kind != SPACING and word.text != ""


def _speaker(word: Word) -> str:
    return word.speaker or UNKNOWN_SPEAKER


def _messages(words: Iterable[Word]) -> Iterator[_Message]:
    for speaker, turn in groupby(filter(_is_spoken, words), key=_speaker):
        spoken = list(turn)
        for first in range(0, len(spoken), WORDS_PER_MESSAGE):
            part = spoken[first : first + WORDS_PER_MESSAGE]
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
