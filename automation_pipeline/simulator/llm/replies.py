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
from automation_pipeline.simulator.llm.schema import least

SEARCH, READ = "searchTranscript", "getTranscriptChunks"
MAX_SEARCHES, MAX_READS, CHUNKS_A_READ, MATCHES = 2, 3, 20, 25
READ_CHARACTERS = 40_000

Place = tuple[int, int]
Call = tuple[str, dict[str, object]]
_CALL_ID = re.compile(r"/recordings/(\d+)/")


@dataclass(frozen=True)
class ToolResults:
    """The tools' results: positions that were found, best first, and chunks that were read."""

    searches: int
    reads: int
    matches: tuple[Place, ...]
    chunks: tuple[Chunk, ...]
    fiche_id: str

    @property
    def unread(self) -> list[Place]:
        read = {(chunk.recording_index, chunk.chunk_index) for chunk in self.chunks}
        return [place for place in self.matches if place not in read]


def read_tool_results(messages: Sequence[Message]) -> ToolResults:
    """Ignores results that are errors or cannot be parsed."""
    names = {call.id: call.name for message in messages for call in message.calls}
    results = [
        (names.get(message.answers), message.text) for message in messages if message.role == "tool"
    ]
    matches = [place for name, text in results if name == SEARCH for place in _places(text)]
    chunks = [chunk for name, text in results if name == READ for chunk in _chunks(text)]
    distinct = {(chunk.recording_index, chunk.chunk_index): chunk for chunk in chunks}
    called = next((match for _, text in results if (match := _CALL_ID.search(text))), None)
    rounds = [{call.name for call in message.calls} for message in messages]
    return ToolResults(
        searches=sum(SEARCH in asked for asked in rounds),
        reads=sum(READ in asked for asked in rounds),
        matches=tuple(dict.fromkeys(matches)),
        chunks=by_weight(tuple(distinct.values())),
        fiche_id=fiche_of(called[1]) if called else UNKNOWN_FICHE,
    )


def next_calls(
    prompt: AuditPrompt, state: ToolResults, tools: Mapping[str, object], *, must_call: bool
) -> list[Call]:
    """None when the model knows enough to judge."""
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


CHAT = "chat"
ANSWER_FIELDS = frozenset({
    "traite", "conforme", "minutages", "score", "points_controle", "mots_cles_trouves", "commentaire_global",
    "niveau_conformite", "erreurs_transcription_tolerees",
})  # fmt: skip


@dataclass(frozen=True)
class Reply:
    content: str | None
    calls: tuple[Call, ...] = ()


def item_of(asked: ChatRequest) -> str:
    """`{fiche}/{step}`; the fiche is `?` until a tool's result names it."""
    prompt = read_prompt(asked.messages)
    if prompt is None:
        return CHAT
    fiche_id = (
        prompt.fiche_id if prompt.has_transcript else read_tool_results(asked.messages).fiche_id
    )
    return f"{fiche_id}/{prompt.position}"


def reply_to(asked: ChatRequest, *, seed: int, inventions: float) -> Reply:
    prompt = read_prompt(asked.messages)
    if prompt is None or not _fits(asked):
        return _chat(asked)
    calls = _calls_about(prompt, asked)
    if calls:
        return Reply(None, tuple(calls if asked.offer.several else calls[:1]))
    if asked.offer.must_call:
        return _chat(asked)
    return Reply(_json(_step_json(_judgement(prompt, asked, seed, inventions))))


def _fits(asked: ChatRequest) -> bool:
    """Whether the answer matches the schema."""
    required = (asked.format.schema or {}).get("required")
    return not isinstance(required, list) or ANSWER_FIELDS.issuperset(
        cast("list[object]", required)
    )


def _calls_about(prompt: AuditPrompt, asked: ChatRequest) -> list[Call]:
    offer = asked.offer
    if offer.choice == "none" or prompt.has_transcript:
        return []
    tools = {name: tool for name, tool in offer.tools.items() if offer.named in {None, name}}
    return next_calls(prompt, read_tool_results(asked.messages), tools, must_call=offer.must_call)


def _judgement(prompt: AuditPrompt, asked: ChatRequest, seed: int, inventions: float) -> Judgement:
    """Deterministic for the same prompt and the same tool results."""
    chunks = prompt.chunks if prompt.has_transcript else read_tool_results(asked.messages).chunks
    read = "\n".join(
        (prompt.text, *(message.text for message in asked.messages if message.role == "tool"))
    )
    digest = hashlib.sha256(read.encode("utf-8", "replace")).hexdigest()
    return judge_points(prompt, chunks, inventions=inventions, seed=f"{seed}/{digest}")


def _chat(asked: ChatRequest) -> Reply:
    offer = asked.offer
    answered = asked.messages[-1].role == "tool"
    if offer.must_call or (offer.choice == "auto" and not answered):
        name = offer.named or next(iter(offer.tools))
        arguments = least(offer.tools[name])
        return Reply(
            None,
            ((name, cast("dict[str, object]", arguments) if isinstance(arguments, dict) else {}),),
        )
    if asked.format.kind == "json_schema":
        return Reply(_json(least(asked.format.schema or {})))
    if asked.format.kind == "json_object":
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
