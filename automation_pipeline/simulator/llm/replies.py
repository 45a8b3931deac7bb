"""Replies of the model: tool calls, the judgement of an audit step, or free text."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from automation_pipeline.simulator.llm.judge import (
    UNKNOWN_FICHE,
    AuditPrompt,
    Chunk,
    JudgedPoint,
    Judgement,
    Proof,
    by_weight,
    chunk_of_result,
    fiche_of,
    judge_points,
    read_prompt,
)
from automation_pipeline.simulator.llm.requests import ChatRequest, Message
from automation_pipeline.simulator.llm.schema import minimal_value

SEARCH, READ = "searchTranscript", "getTranscriptChunks"
MAX_SEARCHES, MAX_READS, CHUNKS_PER_READ, MATCHES = 2, 3, 20, 25
READ_CHARACTERS = 40_000

Position = tuple[int, int]
Call = tuple[str, dict[str, object]]
_CALL_ID = re.compile(r"/recordings/(\d+)/")


@dataclass(frozen=True)
class ToolResults:
    """The results of the tool calls so far: the positions that were found, best first, and the chunks that were
    read."""

    searches: int
    reads: int
    matches: tuple[Position, ...]
    chunks: tuple[Chunk, ...]
    fiche_id: str

    @property
    def unread(self) -> list[Position]:
        read = {(chunk.recording_index, chunk.chunk_index) for chunk in self.chunks}
        return [position for position in self.matches if position not in read]


def read_tool_results(messages: Sequence[Message]) -> ToolResults:
    """Read the results of the tool calls. Results that are errors or cannot be parsed are ignored."""
    names = {call.id: call.name for message in messages for call in message.calls}
    results = [
        (names.get(message.answers), message.text) for message in messages if message.role == "tool"
    ]
    matches = [
        position for name, text in results if name == SEARCH for position in _positions(text)
    ]
    chunks = [chunk for name, text in results if name == READ for chunk in _chunks(text)]
    distinct = {(chunk.recording_index, chunk.chunk_index): chunk for chunk in chunks}
    call_id = next((match for _, text in results if (match := _CALL_ID.search(text))), None)
    rounds = [{call.name for call in message.calls} for message in messages]
    return ToolResults(
        searches=sum(SEARCH in called_tools for called_tools in rounds),
        reads=sum(READ in called_tools for called_tools in rounds),
        matches=tuple(dict.fromkeys(matches)),
        chunks=by_weight(tuple(distinct.values())),
        fiche_id=fiche_of(call_id[1]) if call_id else UNKNOWN_FICHE,
    )


def next_calls(
    prompt: AuditPrompt, state: ToolResults, tools: Mapping[str, object], *, must_call: bool
) -> list[Call]:
    """The next tool calls; none when the model knows enough to judge."""
    can_search, can_read = SEARCH in tools, READ in tools
    if can_read and state.unread and state.reads < MAX_READS:
        return [_read(state.unread)]
    if can_search and (must_call or (not state.matches and state.searches < MAX_SEARCHES)):
        return _searches(prompt)
    return []


def _searches(prompt: AuditPrompt) -> list[Call]:
    """Search for the keywords and for the name of the step."""
    queries = dict.fromkeys(filter(None, (" ".join(prompt.keywords), prompt.name)))
    return [
        (SEARCH, {"query": query, "maxResults": MATCHES, "minTermLength": None})
        for query in queries
    ]


def _read(positions: Sequence[Position]) -> Call:
    chunks = [
        {"recording_index": recording, "chunk_index": chunk}
        for recording, chunk in positions[:CHUNKS_PER_READ]
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


def _positions(text: str) -> list[Position]:
    positions = [
        (match.get("recording_index"), match.get("chunk_index"))
        for match in _listed(text, "matches")
    ]
    return [
        (first, second)
        for first, second in positions
        if isinstance(first, int) and isinstance(second, int)
    ]


def _chunks(text: str) -> list[Chunk]:
    return [chunk for given in _listed(text, "chunks") if (chunk := chunk_of_result(given))]


CHAT = "chat"
ANSWER_FIELDS = frozenset({
    "traite", "conforme", "minutages", "score", "points_controle", "mots_cles_trouves", "commentaire_global",
    "niveau_conformite", "erreurs_transcription_tolerees",
})  # fmt: skip


@dataclass(frozen=True)
class Reply:
    content: str | None
    calls: tuple[Call, ...] = ()


def item_of(request: ChatRequest) -> str:
    """The item in the ledger: `{fiche}/{step}`. The fiche is `?` until the result of a tool names it."""
    prompt = read_prompt(request.messages)
    if prompt is None:
        return CHAT
    fiche_id = (
        prompt.fiche_id if prompt.has_transcript else read_tool_results(request.messages).fiche_id
    )
    return f"{fiche_id}/{prompt.position}"


def reply_to(request: ChatRequest, *, seed: int, inventions: float) -> Reply:
    prompt = read_prompt(request.messages)
    if prompt is None or not _fits(request):
        return _chat(request)
    calls = _calls_about(prompt, request)
    if calls:
        return Reply(None, tuple(calls if request.tool_options.several else calls[:1]))
    if request.tool_options.must_call:
        return _chat(request)
    return Reply(_json(_step_json(_judgement(prompt, request, seed, inventions))))


def _fits(request: ChatRequest) -> bool:
    """Whether the schema of the request requires only fields that the judgement of a step has."""
    required = (request.format.schema or {}).get("required")
    return not isinstance(required, list) or ANSWER_FIELDS.issuperset(
        cast("list[object]", required)
    )


def _calls_about(prompt: AuditPrompt, request: ChatRequest) -> list[Call]:
    tool_options = request.tool_options
    if tool_options.choice == "none" or prompt.has_transcript:
        return []
    tools = {
        name: tool
        for name, tool in tool_options.tools.items()
        if tool_options.named in {None, name}
    }
    return next_calls(
        prompt, read_tool_results(request.messages), tools, must_call=tool_options.must_call
    )


def _judgement(
    prompt: AuditPrompt, request: ChatRequest, seed: int, inventions: float
) -> Judgement:
    """Judge the step. The same prompt and tool results always give the same judgement."""
    chunks = prompt.chunks if prompt.has_transcript else read_tool_results(request.messages).chunks
    read = "\n".join(
        (prompt.text, *(message.text for message in request.messages if message.role == "tool"))
    )
    digest = hashlib.sha256(read.encode("utf-8", "replace")).hexdigest()
    return judge_points(prompt, chunks, inventions=inventions, seed=f"{seed}/{digest}")


def _chat(request: ChatRequest) -> Reply:
    tool_options = request.tool_options
    answered = request.messages[-1].role == "tool"
    if tool_options.must_call or (tool_options.choice == "auto" and not answered):
        name = tool_options.named or next(iter(tool_options.tools))
        arguments = minimal_value(tool_options.tools[name])
        return Reply(
            None,
            ((name, cast("dict[str, object]", arguments) if isinstance(arguments, dict) else {}),),
        )
    if request.format.kind == "json_schema":
        return Reply(_json(minimal_value(request.format.schema or {})))
    if request.format.kind == "json_object":
        return Reply(_json({"answer": "Simulated."}))
    return Reply("Bonjour, je suis un modèle simulé : je sais surtout juger des appels.")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _step_json(judgement: Judgement) -> dict[str, object]:
    points = judgement.points
    statuts = [point.statut for point in points]
    return {
        "traite": True,
        "conforme": judgement.conforme,
        "minutages": _minutages(points),
        "score": judgement.score,
        "points_controle": [_point_json(point) for point in points],
        "mots_cles_trouves": list(judgement.keywords),
        "commentaire_global": f"{statuts.count('PRESENT')} point(s) de contrôle sur {len(points)} constaté(s).",
        "niveau_conformite": judgement.niveau,
        "erreurs_transcription_tolerees": 0,
    }


def _point_json(point: JudgedPoint) -> dict[str, object]:
    return {
        "point": point.point,
        "statut": point.statut,
        "commentaire": point.comment,
        "citations": [_citation_json(proof) for proof in point.proofs],
        "minutages": _minutages([point]),
        "erreur_transcription_notee": False,
        "variation_phonetique_utilisee": None,
    }


def _citation_json(proof: Proof) -> Mapping[str, object]:
    chunk = proof.chunk
    return {
        "texte": proof.text,
        "minutage": chunk.minutage,
        "minutage_secondes": chunk.start,
        "speaker": proof.speaker,
        "recording_index": chunk.recording_index,
        "chunk_index": chunk.chunk_index,
        "recording_date": chunk.date,
        "recording_time": chunk.time,
        "recording_url": chunk.url,
    }


def _minutages(points: Sequence[JudgedPoint]) -> list[str]:
    return list(dict.fromkeys(proof.chunk.minutage for point in points for proof in point.proofs))
