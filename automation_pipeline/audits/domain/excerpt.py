"""The part of long calls that a step is likely to be about."""

from dataclasses import dataclass

from automation_pipeline.audits.domain.config import AuditStep
from automation_pipeline.audits.domain.normalised import normalised
from automation_pipeline.audits.domain.timeline import Timeline, TimelineChunk, TimelineRecording
from automation_pipeline.audits.domain.words import terms_of

SHORTEST_TERM = 4
FIRST_CHUNKS = 2


@dataclass(frozen=True)
class RankedChunk:
    """`score`: how many of the terms it holds."""

    score: int
    recording: TimelineRecording
    chunk: TimelineChunk


def ranked_chunks(timeline: Timeline, terms: tuple[str, ...]) -> list[RankedChunk]:
    """The chunks that hold any of these normalised terms, best first, then in the order of the calls."""
    found = [
        RankedChunk(_score(chunk, terms), recording, chunk)
        for recording in timeline.recordings
        for chunk in recording.chunks
    ]
    held = [ranked for ranked in found if ranked.score]
    return sorted(held, key=lambda ranked: (-ranked.score, ranked.recording.index, ranked.chunk.index))


def excerpt(timeline: Timeline, step: AuditStep, max_chunks: int) -> frozenset[tuple[int, int]]:
    """The indexes (recording, chunk) of the best chunks, each with its neighbours; where nothing matches, how each
    recording begins."""
    terms = terms_of((step.name, *step.keywords, *step.control_points), SHORTEST_TERM)
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
    said = normalised(chunk.full_text)
    return sum(term in said for term in terms)
