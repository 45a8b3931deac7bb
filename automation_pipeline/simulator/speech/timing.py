"""When it is said: turns become words with times, one after the other, spacings filling every gap
between them."""

from collections.abc import Sequence
from random import Random

from automation_pipeline.simulator.speech.transcript import Turn, Word

LEAD_SECONDS = 0.3
EVENT_SECONDS = 0.6


def timed(turns: Sequence[Turn], rng: Random, *, pause: float) -> tuple[Word, ...]:
    """`pause` is how long the silence between two turns is on average. Times are in whole
    milliseconds."""
    words: list[Word] = []
    at = LEAD_SECONDS
    for turn in turns:
        if words:
            at += pause * rng.uniform(0.5, 1.5)
        for token in turn.text.split():
            if words:
                start = round(max(at, words[-1].end + 0.02), 3)
                words.append(Word(" ", "spacing", words[-1].end, start, words[-1].speaker, 0.0))
                at = start
            words.append(_word(token, turn.speaker, at, rng))
            at = words[-1].end + rng.uniform(0.03, 0.09)
    return tuple(words)


def _word(token: str, speaker: str, at: float, rng: Random) -> Word:
    event = token.startswith("(")
    length = EVENT_SECONDS if event else (0.1 + 0.04 * len(token)) * rng.uniform(0.8, 1.2)
    kind = "audio_event" if event else "word"
    return Word(
        token,
        kind,
        at,
        round(at + length, 3),
        speaker,
        0.0 if event else -round(rng.expovariate(12), 4),
    )
