"""Search in transcripts, and the tools by which the model reads a transcript that is too long for the prompt."""

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from pydantic import Field

from automation_pipeline.audits.models.audits import (
    Timeline,
    TimelineChunk,
    TimelineRecording,
    minutage,
)
from automation_pipeline.audits.models.chat import (
    ModelOutput,
    ModelOutputError,
    Text,
    Tool,
    ToolCall,
    Whole,
    parse_model_output,
)
from automation_pipeline.audits.models.configs import AuditStep

_ACCENTS = re.compile(r"[\u0300-\u036f]")
_BETWEEN_WORDS = re.compile(r"[\W_]+")
MAX_TERMS = 40
SHORTEST_TERM = 4
FIRST_CHUNKS = 2
MAX_PREVIEW = 450
_PREVIEW_BEFORE = 120
MAX_REFERENCES = 20
_TOO_LONG = '{"error": "Plus de place."}'


def normalise(text: str) -> str:
    """The words alone: lower case, no accents, single spaces."""
    return _BETWEEN_WORDS.sub(
        " ", _ACCENTS.sub("", unicodedata.normalize("NFD", text.lower()))
    ).strip()


def search_terms(texts: Iterable[str], min_length: int) -> tuple[str, ...]:
    """The distinct normalised words of the texts that are long enough, in their order; at most
    MAX_TERMS."""
    words = (word for text in texts for word in normalise(text).split() if len(word) >= min_length)
    return tuple(islice(dict.fromkeys(words), MAX_TERMS))


@dataclass(frozen=True)
class RankedChunk:
    """`score` counts the terms in the chunk."""

    score: int
    recording: TimelineRecording
    chunk: TimelineChunk


def ranked_chunks(timeline: Timeline, terms: tuple[str, ...]) -> list[RankedChunk]:
    """The chunks with any of the normalised terms, best first, then in the order of the calls."""
    found: list[RankedChunk] = []
    for recording in timeline.recordings:
        for chunk in recording.chunks:
            words = normalise(chunk.full_text)
            found.append(RankedChunk(sum(term in words for term in terms), recording, chunk))
    return sorted(
        (ranked for ranked in found if ranked.score),
        key=lambda ranked: (-ranked.score, ranked.recording.index, ranked.chunk.index),
    )


def excerpt(timeline: Timeline, step: AuditStep, max_chunks: int) -> frozenset[tuple[int, int]]:
    """The indexes (recording, chunk) of the best chunks and their neighbours. Without a match, the first
    chunks of each recording."""
    best = ranked_chunks(
        timeline, search_terms((step.name, *step.keywords, *step.control_points), SHORTEST_TERM)
    )[:max_chunks]
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


def preview(text: str, terms: Sequence[str]) -> str:
    """A part of the text around the first word that contains one of the normalised terms."""
    starts = (
        word.start() - _PREVIEW_BEFORE
        for word in re.finditer(r"\S+", text)
        if any(term in normalise(word.group()) for term in terms)
    )
    start = max(0, min(next(starts, 0), len(text) - MAX_PREVIEW))
    return text[start : start + MAX_PREVIEW]


def object_schema(**properties: Mapping[str, object]) -> Mapping[str, object]:
    """Every property is required, as the strict mode of providers demands. For a parameter of a tool, null
    stands for the default."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _optional(description: str) -> Mapping[str, object]:
    return {"type": ["integer", "null"], "description": f"{description} si null"}


_INDEX = {"type": "integer", "description": "À partir de 0, comme l'a rendu searchTranscript"}

SEARCH_TOOL = Tool(
    "searchTranscript",
    "Cherche des mots dans les transcriptions et rend les segments qui en contiennent le plus, avec un aperçu.",
    object_schema(
        query={
            "type": "string",
            "description": "Les mots à chercher, sans souci de casse ni d'accents",
        },
        maxResults=_optional("Nombre de résultats, de 1 à 50 ; 25"),
        minTermLength=_optional("Longueur des mots les plus courts à chercher, de 2 à 8 ; 3"),
    ),
)
READ_TOOL = Tool(
    "getTranscriptChunks",
    "Rend le texte entier de segments, à citer mot pour mot.",
    object_schema(
        chunks={
            "type": "array",
            "items": object_schema(recording_index=_INDEX, chunk_index=_INDEX),
            "description": "De 1 à 60 segments, dont les 20 premiers sont rendus",
        },
        includeNeighbors=_optional(
            "Nombre de segments voisins à joindre de chaque côté, de 0 à 2 ; 0"
        ),
        maxChars=_optional("Nombre de caractères de texte, de 1000 à 80000 ; 20000"),
    ),
)


TOOLS = (SEARCH_TOOL, READ_TOOL)


class _SearchArguments(ModelOutput):
    query: Text
    max_results: Annotated[Whole, Field(ge=1, le=50)] | None = Field(None, alias="maxResults")
    min_term_length: Annotated[Whole, Field(ge=2, le=8)] | None = Field(None, alias="minTermLength")


class _Reference(ModelOutput):
    recording_index: Whole
    chunk_index: Whole


class _ReadArguments(ModelOutput):
    chunks: Annotated[tuple[_Reference, ...], Field(min_length=1, max_length=60)]
    include_neighbors: Annotated[Whole, Field(ge=0, le=2)] | None = Field(
        None, alias="includeNeighbors"
    )
    max_chars: Annotated[Whole, Field(ge=1_000, le=80_000)] | None = Field(None, alias="maxChars")


def run_tool(call: ToolCall, timeline: Timeline, max_characters: int) -> str:
    """Return the tool's result as JSON, or the error of the call, in at most `max_characters`."""
    tool = _TOOLS.get(call.name)
    try:
        if tool is None:
            raise ModelOutputError(
                f"Cet outil n'existe pas ; les outils sont {' et '.join(_TOOLS)}."
            )
        result = tool(call.arguments, timeline, max_characters)
    except ModelOutputError as error:
        result = _json({"error": error.problem})
    return result if len(result) <= max_characters else _TOO_LONG[: max(0, max_characters)]


def _search(arguments: str, timeline: Timeline, max_characters: int) -> str:
    search = parse_model_output(_SearchArguments, arguments)
    shortest = search.min_term_length or 3
    terms = search_terms((search.query,), shortest)
    if not terms:
        raise ModelOutputError(f"query ne contient aucun mot d'au moins {shortest} caractères.")
    found = ranked_chunks(timeline, terms)
    start, end = '{"matches": [', f'], "total_matches": {len(found)}}}'
    matches, space = list[str](), max_characters - len(start) - len(end)
    for ranked in found[: search.max_results or 25]:
        shown = {"score": ranked.score}, {"preview": preview(ranked.chunk.full_text, terms)}
        match = _json(_described(ranked.recording, ranked.chunk, *shown))
        space -= len(match) + len(", ")
        if space < 0:
            break
        matches.append(match)
    return f"{start}{', '.join(matches)}{end}"


def _read(arguments: str, timeline: Timeline, max_characters: int) -> str:
    """If not all chunks fit, the requested ones come before their neighbours. The result is in the order of the
    calls."""
    request = parse_model_output(_ReadArguments, arguments)
    references = dict.fromkeys((one.recording_index, one.chunk_index) for one in request.chunks)
    truncated = len(references) > MAX_REFERENCES
    read, left = dict[tuple[int, int], str](), request.max_chars or 20_000
    space = max_characters - len('{"chunks": [], "truncated": false}')
    for key, (recording, chunk) in _chunks_to_read(
        timeline, list(references), request.include_neighbors or 0
    ).items():
        length = _fitting(recording, chunk, left, space)
        if length:
            read[key] = _with_text(recording, chunk, length)
            left, space = left - length, space - len(read[key]) - len(", ")
        if length < len(chunk.full_text):
            truncated = True
            break
    return f'{{"chunks": [{", ".join(read[key] for key in sorted(read))}], "truncated": {_json(truncated)}}}'


_TOOLS: Mapping[str, Callable[[str, Timeline, int], str]] = {
    SEARCH_TOOL.name: _search,
    READ_TOOL.name: _read,
}


def _chunks_to_read(
    timeline: Timeline, references: list[tuple[int, int]], around: int
) -> dict[tuple[int, int], tuple[TimelineRecording, TimelineChunk]]:
    """The existing chunks: the first references, then their neighbours."""
    first = references[:MAX_REFERENCES]
    neighbours = [
        (recording_index, chunk_index + offset)
        for recording_index, chunk_index in first
        for distance in range(1, around + 1)
        for offset in (-distance, distance)
    ]
    return {
        (recording_index, chunk_index): (recording, chunk)
        for recording_index, chunk_index in dict.fromkeys([*first, *neighbours])
        if (recording := timeline.recording(recording_index)) is not None
        if (chunk := timeline.chunk(recording_index, chunk_index)) is not None
    }


def _fitting(recording: TimelineRecording, chunk: TimelineChunk, left: int, space: int) -> int:
    """How many of the text's characters fit: at most `left`, in `space` characters of JSON."""
    lengths = range(min(left, len(chunk.full_text)) + 1)
    fitting = bisect_right(
        lengths, space, key=lambda length: len(_with_text(recording, chunk, length))
    )
    return max(0, fitting - 1)


def _with_text(recording: TimelineRecording, chunk: TimelineChunk, length: int) -> str:
    return _json(_described(recording, chunk, {}, {"full_text": chunk.full_text[:length]}))


def _described(
    recording: TimelineRecording,
    chunk: TimelineChunk,
    first: Mapping[str, object],
    last: Mapping[str, object],
) -> dict[str, object]:
    return {
        "recording_index": recording.index,
        "chunk_index": chunk.index,
        **first,
        "minutage": minutage(chunk.start),
        "minutage_secondes": chunk.start,
        "start_timestamp": chunk.start,
        "end_timestamp": chunk.end,
        "speakers": chunk.speakers,
        "recording_date": recording.date,
        "recording_time": recording.time,
        "recording_url": recording.url,
        **last,
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
