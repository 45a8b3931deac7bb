"""What the model says next: tool calls, the judgement of an audit step, or something sensible to
any other chat."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from automation_pipeline.simulator.llm.asked import Asked
from automation_pipeline.simulator.llm.judge import Judged, Judgement, Proof, judged
from automation_pipeline.simulator.llm.prompt import AuditPrompt, read_prompt
from automation_pipeline.simulator.llm.rounds import Call, known, next_calls
from automation_pipeline.simulator.llm.schema import least

CHAT = "chat"
ANSWER_FIELDS = frozenset({
    "traite", "conforme", "minutages", "score", "points_controle", "mots_cles_trouves", "commentaire_global",
    "niveau_conformite", "erreurs_transcription_tolerees",
})  # fmt: skip


@dataclass(frozen=True)
class Reply:
    content: str | None
    calls: tuple[Call, ...] = ()


def item_of(asked: Asked) -> str:
    """`{fiche}/{step}`; the fiche is `?` until a tool's result names it."""
    prompt = read_prompt(asked.messages)
    if prompt is None:
        return CHAT
    fiche_id = prompt.fiche_id if prompt.has_transcript else known(asked.messages).fiche_id
    return f"{fiche_id}/{prompt.position}"


def reply_to(asked: Asked, *, seed: int, inventions: float) -> Reply:
    prompt = read_prompt(asked.messages)
    if prompt is None or not _fits(asked):
        return _chat(asked)
    calls = _calls_about(prompt, asked)
    if calls:
        return Reply(None, tuple(calls if asked.offer.several else calls[:1]))
    if asked.offer.must_call:
        return _chat(asked)
    return Reply(_json(_step_json(_judgement(prompt, asked, seed, inventions))))


def _fits(asked: Asked) -> bool:
    """Whether the answer matches the schema."""
    required = (asked.format.schema or {}).get("required")
    return not isinstance(required, list) or ANSWER_FIELDS.issuperset(
        cast("list[object]", required)
    )


def _calls_about(prompt: AuditPrompt, asked: Asked) -> list[Call]:
    offer = asked.offer
    if offer.choice == "none" or prompt.has_transcript:
        return []
    tools = {name: tool for name, tool in offer.tools.items() if offer.named in {None, name}}
    return next_calls(prompt, known(asked.messages), tools, must_call=offer.must_call)


def _judgement(prompt: AuditPrompt, asked: Asked, seed: int, inventions: float) -> Judgement:
    """The same prompt, with the same answers of the tools, is judged the same again."""
    chunks = prompt.chunks if prompt.has_transcript else known(asked.messages).chunks
    read = "\n".join(
        (prompt.text, *(message.text for message in asked.messages if message.role == "tool"))
    )
    digest = hashlib.sha256(read.encode("utf-8", "replace")).hexdigest()
    return judged(prompt, chunks, inventions=inventions, seed=f"{seed}/{digest}")


def _chat(asked: Asked) -> Reply:
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


def _point_json(point: Judged) -> dict[str, object]:
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


def _minutages(points: Sequence[Judged]) -> list[str]:
    return list(dict.fromkeys(proof.chunk.minutage for point in points for proof in point.proofs))
