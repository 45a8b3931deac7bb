"""Words and passages in transcripts: normalisation, search terms, ranked chunks, excerpts and
previews."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from automation_pipeline.audits.models.configs import AuditStep
from automation_pipeline.audits.models.timelines import Timeline, TimelineChunk, TimelineRecording

_ACCENTS = re.compile(r"[\u0300-\u036f]")
_BETWEEN_WORDS = re.compile(r"[\W_]+")


def normalise(text: str) -> str:
    """The words alone: lower case, no accents, single spaces."""
    plain = _ACCENTS.sub("", unicodedata.normalize("NFD", text.lower()))
    return _BETWEEN_WORDS.sub(" ", plain).strip()


MAX_TERMS = 40


def search_terms(texts: Iterable[str], min_length: int) -> tuple[str, ...]:
    """The distinct normalised words of these texts that are long enough, in their order; the first
    forty of them."""
    message = (
        word for text in texts for word in normalise(text).split() if len(word) >= min_length
    )
    return tuple(islice(dict.fromkeys(message), MAX_TERMS))


def case_variants(text: str) -> frozenset[str]:
    """Databases fold the case of unaccented letters only; these are the ways of writing the
    accented ones."""
    return frozenset({text, text.lower(), text.upper(), text.title()})


SHORTEST_TERM = 4
FIRST_CHUNKS = 2


@dataclass(frozen=True)
class RankedChunk:
    """`score`: how many of the terms it holds."""

    score: int
    recording: TimelineRecording
    chunk: TimelineChunk


def ranked_chunks(timeline: Timeline, terms: tuple[str, ...]) -> list[RankedChunk]:
    """The chunks that hold any of these normalised terms, best first, then in the order of the
    calls."""
    found = [
        RankedChunk(_score(chunk, terms), recording, chunk)
        for recording in timeline.recordings
        for chunk in recording.chunks
    ]
    held = [ranked for ranked in found if ranked.score]
    return sorted(
        held, key=lambda ranked: (-ranked.score, ranked.recording.index, ranked.chunk.index)
    )


def excerpt(timeline: Timeline, step: AuditStep, max_chunks: int) -> frozenset[tuple[int, int]]:
    """The indexes (recording, chunk) of the best chunks, each with its neighbours; where nothing
    matches, how each recording begins."""
    terms = search_terms((step.name, *step.keywords, *step.control_points), SHORTEST_TERM)
    best = ranked_chunks(timeline, terms)[:max_chunks]
    if not best:
        return frozenset(
            (recording.index, chunk.index)
            for recording in timeline.recordings
            for chunk in recording.chunks[:FIRST_CHUNKS]
        )
    return frozenset(
        (ranked.recording.index, index)
        for ranked in best
        for index in range(ranked.chunk.index - 1, ranked.chunk.index + 2)
        if timeline.chunk(ranked.recording.index, index)
    )


def _score(chunk: TimelineChunk, terms: tuple[str, ...]) -> int:
    said = normalise(chunk.full_text)
    return sum(term in said for term in terms)


MAX_PREVIEW = 450
_BEFORE = 120


def preview(text: str, terms: Sequence[str]) -> str:
    """A part of the text as it stands, around the first word that holds one of these normalised
    terms."""
    found = next(
        (word.start() for word in re.finditer(r"\S+", text) if _holds(word.group(), terms)), 0
    )
    latest = max(0, len(text) - MAX_PREVIEW)
    start = min(max(0, found - _BEFORE), latest)
    return text[start : start + MAX_PREVIEW]


def _holds(word: str, terms: Sequence[str]) -> bool:
    plain = normalise(word)
    return any(term in plain for term in terms)
