"""Rules of transcription: what follows a failed attempt, how a transcript becomes chunks, and whether
a day is transcribed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from math import floor
from random import Random

from automation_pipeline.core.errors import AutomationError, InfrastructureError, TransientError
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.fiches.rules import never_requested
from automation_pipeline.transcription.models import (
    SPACING,
    Chunk,
    DayTranscripts,
    SpeechOptions,
    Transcript,
    Word,
)

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


def chunks_of(words: Iterable[Word]) -> tuple[Chunk, ...]:
    """Group the words into chunks. Every word that is not spacing is in exactly one chunk."""
    messages: list[tuple[str, Sequence[Word]]] = []
    turns = groupby(filter(_is_spoken, words), key=lambda word: word.speaker or UNKNOWN_SPEAKER)
    for speaker, turn in turns:
        spoken = list(turn)
        messages += [
            (speaker, spoken[first : first + WORDS_PER_MESSAGE])
            for first in range(0, len(spoken), WORDS_PER_MESSAGE)
        ]
    return tuple(
        _chunk(index, messages[first : first + MESSAGES_PER_CHUNK])
        for index, first in enumerate(range(0, len(messages), MESSAGES_PER_CHUNK))
    )


def _chunk(index: int, messages: Sequence[tuple[str, Sequence[Word]]]) -> Chunk:
    lines = [f"{speaker}: {' '.join([word.text for word in words])}" for speaker, words in messages]
    return Chunk(
        index=index,
        start=messages[0][1][0].start,
        end=messages[-1][1][-1].end,
        message_count=len(messages),
        speakers=tuple(dict.fromkeys(speaker for speaker, _ in messages)),
        full_text="\n".join(lines),
    )


def words_or_estimated(transcript: Transcript, duration_seconds: float | None) -> tuple[Word, ...]:
    """The provider's words, or estimated ones for a text without words: spread evenly over the recording,
    with two alternating speakers."""
    if any(_is_spoken(word) for word in transcript.words):
        return transcript.words
    texts = transcript.text.split()
    if not texts:
        return ()
    if duration_seconds is None or duration_seconds <= 0:
        # Round halves up; round() rounds 2.5 to 2.
        duration_seconds = max(1, floor(len(texts) / WORDS_PER_SECOND + 0.5))
    seconds = max(MIN_WORD_SECONDS, duration_seconds / len(texts))
    return tuple(
        Word(text, n * seconds, (n + 1) * seconds, "word", f"speaker_{n // WORDS_PER_TURN % 2}")
        for n, text in enumerate(texts)
    )


def _is_spoken(word: Word) -> bool:
    return word.kind != SPACING and word.text != ""


MIN_COVERAGE = 0.95
COVERAGE_CHECK = "transcript_coverage"


def judge_transcripts(day: DayTranscripts, *, has_sales_list: bool) -> DayFinding:
    """Check the coverage. Without a sales list of the day, the check fails."""
    if not has_sales_list:
        return never_requested((COVERAGE_CHECK,))[0]
    message = f"{day.transcribed} of {day.recordings} recordings of the day are transcribed."
    return DayFinding(COVERAGE_CHECK, day.coverage >= MIN_COVERAGE, message)
