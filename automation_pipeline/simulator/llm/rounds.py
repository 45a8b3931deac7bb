"""Tool mode: what the tools have answered so far, and what the model asks them next."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from automation_pipeline.simulator.llm.evidence import Chunk, by_weight, chunk_of_result
from automation_pipeline.simulator.llm.messages import Message
from automation_pipeline.simulator.llm.prompt import UNKNOWN_FICHE, AuditPrompt, fiche_of

SEARCH, READ = "searchTranscript", "getTranscriptChunks"
MAX_SEARCHES, MAX_READS, CHUNKS_A_READ, MATCHES = 2, 3, 20, 25
READ_CHARACTERS = 40_000

Place = tuple[int, int]
Call = tuple[str, dict[str, object]]
_CALL_ID = re.compile(r"/recordings/(\d+)/")


@dataclass(frozen=True)
class Known:
    """From the tools' results: where something was found, best first, and what was read."""

    searches: int
    reads: int
    matches: tuple[Place, ...]
    chunks: tuple[Chunk, ...]
    fiche_id: str

    @property
    def unread(self) -> list[Place]:
        read = {(chunk.recording_index, chunk.chunk_index) for chunk in self.chunks}
        return [place for place in self.matches if place not in read]


def known(messages: Sequence[Message]) -> Known:
    """A result that says an error, or nothing that can be read, is worth nothing."""
    names = {call.id: call.name for message in messages for call in message.calls}
    results = [
        (names.get(message.answers), message.text) for message in messages if message.role == "tool"
    ]
    matches = [place for name, text in results if name == SEARCH for place in _places(text)]
    chunks = [chunk for name, text in results if name == READ for chunk in _chunks(text)]
    distinct = {(chunk.recording_index, chunk.chunk_index): chunk for chunk in chunks}
    called = next((match for _, text in results if (match := _CALL_ID.search(text))), None)
    rounds = [{call.name for call in message.calls} for message in messages]
    return Known(
        searches=sum(SEARCH in asked for asked in rounds),
        reads=sum(READ in asked for asked in rounds),
        matches=tuple(dict.fromkeys(matches)),
        chunks=by_weight(tuple(distinct.values())),
        fiche_id=fiche_of(called[1]) if called else UNKNOWN_FICHE,
    )


def next_calls(
    prompt: AuditPrompt, state: Known, tools: Mapping[str, object], *, must_call: bool
) -> list[Call]:
    """None when there is enough to judge by."""
    can_search, can_read = SEARCH in tools, READ in tools
    if can_read and state.unread and state.reads < MAX_READS:
        return [_read(state.unread)]
    if can_search and (must_call or (not state.matches and state.searches < MAX_SEARCHES)):
        return _searches(prompt)
    return []


def _searches(prompt: AuditPrompt) -> list[Call]:
    """By the keywords, and by what the step is called."""
    queries = dict.fromkeys(filter(None, (" ".join(prompt.keywords), prompt.name)))
    return [
        (SEARCH, {"query": query, "maxResults": MATCHES, "minTermLength": None})
        for query in queries
    ]


def _read(places: Sequence[Place]) -> Call:
    chunks = [
        {"recording_index": recording, "chunk_index": chunk}
        for recording, chunk in places[:CHUNKS_A_READ]
    ]
    return READ, {"chunks": chunks, "includeNeighbors": None, "maxChars": READ_CHARACTERS}


def _listed(text: str, name: str) -> list[Mapping[str, object]]:
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        return []
    listed = cast("dict[str, object]", result).get(name) if isinstance(result, dict) else None
    if not isinstance(listed, list):
        return []
    return [
        cast("dict[str, object]", one)
        for one in cast("list[object]", listed)
        if isinstance(one, dict)
    ]


def _places(text: str) -> list[Place]:
    places = [
        (match.get("recording_index"), match.get("chunk_index"))
        for match in _listed(text, "matches")
    ]
    return [
        (first, second)
        for first, second in places
        if isinstance(first, int) and isinstance(second, int)
    ]


def _chunks(text: str) -> list[Chunk]:
    return [chunk for given in _listed(text, "chunks") if (chunk := chunk_of_result(given))]
