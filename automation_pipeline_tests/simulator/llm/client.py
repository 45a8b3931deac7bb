"""Requests to the simulated model by the official client, and the calls that the simulator counts."""

from datetime import date
from typing import Any, Literal

import httpx
from openai import OpenAI
from pydantic import BaseModel, ConfigDict

from automation_pipeline.simulator import Phase, World, phases_of_fiche
from automation_pipeline_tests.simulator.llm.audit_prompts import prompt, step
from automation_pipeline_tests.simulator_control import NO_CERTIFICATES

KEY = "open-sesame"
MODEL = "gpt-5.2"
FICHE = next(
    fiche
    for fiche in World(7, 24, vary=False).day(date(2026, 2, 3))
    if {Phase.WITHDRAWAL_RIGHT, Phase.PRICE} <= phases_of_fiche(fiche)
)
WITHDRAWAL = step(
    "Droit de rétractation",
    ["Le droit de rétractation est annoncé", "La lune est pleine"],
    ["rétractation", "lune"],
)
CHAT: Any = [{"role": "user", "content": "Bonjour, réponds en JSON si tu peux."}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {
                "town": {"type": "string", "minLength": 1},
                "days": {"type": ["integer", "null"]},
            },
            "required": ["town", "days"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
ROUTE = "llm.complete"


def client_of(url: str, key: str) -> OpenAI:
    return OpenAI(
        base_url=f"{url}/v1",
        api_key=key,
        max_retries=0,
        http_client=httpx.Client(verify=NO_CERTIFICATES, timeout=20),
    )


def items(url: str) -> dict[str, int]:
    calls = httpx.get(f"{url}/_sim/calls", params={"route": ROUTE}, verify=NO_CERTIFICATES).json()
    return calls["routes"][ROUTE]["items"]


class Citation(BaseModel):
    model_config = ConfigDict(extra="forbid")
    texte: str
    minutage: str
    minutage_secondes: float
    speaker: str
    recording_index: int
    chunk_index: int
    recording_date: str
    recording_time: str
    recording_url: str


class Point(BaseModel):
    model_config = ConfigDict(extra="forbid")
    point: str
    statut: Literal["PRESENT", "ABSENT", "PARTIEL", "NON_APPLICABLE"]
    commentaire: str
    citations: list[Citation]
    minutages: list[str]
    erreur_transcription_notee: bool
    variation_phonetique_utilisee: str | None


class Finding(BaseModel):
    model_config = ConfigDict(extra="forbid")
    traite: bool
    conforme: Literal["CONFORME", "NON_CONFORME", "PARTIEL"]
    minutages: list[str]
    score: int
    points_controle: list[Point]
    mots_cles_trouves: list[str]
    commentaire_global: str
    niveau_conformite: Literal["EXCELLENT", "BON", "ACCEPTABLE", "INSUFFISANT", "REJET"]
    erreurs_transcription_tolerees: int


def audit(client: OpenAI, *messages: Any) -> Any:
    prompts = messages or ({"role": "user", "content": prompt(FICHE, WITHDRAWAL)},)
    return client.chat.completions.parse(
        model=MODEL, messages=list(prompts), response_format=Finding
    )
