"""The calls as the model reads them, every number counting from 1. Who answers gives the numbers less 1."""

import re
from collections.abc import Iterable
from functools import lru_cache

from automation_pipeline.audits.domain.timeline import Timeline, TimelineChunk, TimelineRecording

EXCERPT_NOTICE = "Extrait : seuls les passages qui semblent utiles à cette étape sont donnés."

_LIKE_OUR_MARKS = re.compile(r"===|---|\[segment", re.IGNORECASE)


# The calls of the audits under way: each step of one is asked about the same.
@lru_cache(maxsize=32)
def timeline_text(timeline: Timeline, chosen: frozenset[tuple[int, int]] | None = None) -> str:
    """All of it, or the chosen chunks by their indexes (recording, chunk)."""
    heading = "=== TRANSCRIPTION DES APPELS ==="
    if chosen is not None:
        heading = f"{heading}\n{EXCERPT_NOTICE}"
    recordings = (_recording(recording, chosen) for recording in timeline.recordings)
    return "\n\n".join((heading, *filter(None, recordings))) + "\n=== FIN DE LA TRANSCRIPTION ==="


def one_line(text: str) -> str:
    return " ".join(text.split())


def defused(text: str) -> str:
    """The text without blank lines, and with no line that could pass for a mark of ours."""
    return "\n".join(_defused_lines(text))


def _defused_lines(text: str) -> Iterable[str]:
    for line in text.splitlines():
        if line.strip():
            yield f" {line}" if _LIKE_OUR_MARKS.match(line) else line


def _recording(recording: TimelineRecording, chosen: frozenset[tuple[int, int]] | None) -> str:
    """Empty when none of its chunks is chosen."""
    chunks = [chunk for chunk in recording.chunks if chosen is None or (recording.index, chunk.index) in chosen]
    if not chunks:
        return ""
    facts = {
        "Date": recording.date,
        "Heure": recording.time,
        "Appel": recording.call_id,
        "De": recording.from_number,
        "Vers": recording.to_number,
        "Durée": f"{recording.duration_seconds} s",
        "Segments": str(len(recording.chunks)),
    }
    described = " | ".join(f"{name} : {one_line(fact)}" for name, fact in facts.items())
    segments = "\n\n".join(map(_chunk, chunks))
    return f"--- Enregistrement {recording.index + 1} ---\n{described}\n{segments}"


def _chunk(chunk: TimelineChunk) -> str:
    speakers = one_line(", ".join(chunk.speakers))
    heading = f"[Segment {chunk.index + 1}] {chunk.start:.1f} s - {chunk.end:.1f} s | Locuteurs : {speakers}"
    return f"{heading}\n{defused(chunk.full_text)}"
