"""An audit prompt taken apart: which step of which fiche, its control points and keywords, and what
may be quoted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from automation_pipeline.simulator.llm.evidence import Chunk, by_weight, chunks_of_transcript
from automation_pipeline.simulator.llm.messages import Message

UNKNOWN_FICHE = "?"

_TRANSCRIPT = re.compile(
    r"^=== TRANSCRIPTION DES APPELS ===$(.*?)^=== FIN DE LA TRANSCRIPTION ===$",
    re.MULTILINE | re.DOTALL,
)
_STEP = re.compile(
    r"^=== ÉTAPE (\d+)/\d+ : (.*) ===$(.*?)^=== FIN DE L['’]ÉTAPE ===$", re.MULTILINE | re.DOTALL
)
_WEIGHT = re.compile(r"Poids : (\d+)")
_POINTS = re.compile(r"^Points de contrôle :\n(.*?)^Mots-clés : ?(.*)$", re.MULTILINE | re.DOTALL)
_POINT = re.compile(r"^\d+\. ", re.MULTILINE)
NO_KEYWORDS = "aucun"


@dataclass(frozen=True, kw_only=True)
class AuditPrompt:
    """`chunks` is empty in tool mode, where the transcript is only read through tools. `text` is
    the whole prompt."""

    text: str
    position: int
    name: str
    weight: int
    points: tuple[str, ...]
    keywords: tuple[str, ...]
    has_transcript: bool
    chunks: tuple[Chunk, ...]

    @property
    def fiche_id(self) -> str:
        """The first call's id without the number of the call."""
        first = min(self.chunks, key=lambda chunk: chunk.recording_index, default=None)
        return fiche_of(first.call_id) if first else UNKNOWN_FICHE


def fiche_of(call_id: str) -> str:
    return call_id[:-2] or UNKNOWN_FICHE


def read_prompt(messages: Sequence[Message]) -> AuditPrompt | None:
    """None for any other chat."""
    for message in messages:
        if message.role == "user" and (prompt := _read(message.text)):
            return prompt
    return None


def _read(text: str) -> AuditPrompt | None:
    transcript = _TRANSCRIPT.search(text)
    step = _STEP.search(text, transcript.end() if transcript else 0)
    listed = _POINTS.search(step[3]) if step else None
    if not (step and listed):
        return None
    weight = _WEIGHT.search(step[3])
    keywords = [keyword.strip() for keyword in listed[2].split(",")]
    return AuditPrompt(
        text=text,
        position=int(step[1]),
        name=step[2],
        weight=int(weight[1]) if weight else 1,
        points=tuple(point.strip() for point in _POINT.split(listed[1]) if point.strip()),
        keywords=tuple(keyword for keyword in keywords if keyword and keyword != NO_KEYWORDS),
        has_transcript=transcript is not None,
        chunks=by_weight(chunks_of_transcript(transcript[1])) if transcript else (),
    )
