"""Audit prompts in the documented format, which the simulated model must be able to parse."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby

from automation_pipeline.simulator import Fiche, conversation

RULES = "=== RÈGLES ===\nCite mot à mot.\n=== FIN DES RÈGLES ==="
ANSWER = "Analyse maintenant cette étape."


def chunks(fiche: Fiche) -> dict[tuple[int, int], str]:
    """The text of each chunk, by the index of its recording and its own index."""
    return {
        (recording, chunk): text
        for recording, (_, texts) in enumerate(_calls(fiche))
        for chunk, (_, _, text) in enumerate(texts)
    }


@cache
def transcript(fiche: Fiche) -> str:
    blocks = ["=== TRANSCRIPTION DES APPELS ==="]
    for number, (call_id, texts) in enumerate(_calls(fiche), start=1):
        segments = [
            f"[Segment {segment}] {start:.1f} s - {end:.1f} s | Locuteurs : speaker_0, speaker_1\n{text}"
            for segment, (start, end, text) in enumerate(texts, start=1)
        ]
        head = (
            f"--- Enregistrement {number} ---\n"
            f"Date : 03/02/2026 | Heure : 10:14 | Appel : {call_id} | De : 06 | Vers : 01 | "
            f"Durée : 312 s | Segments : {len(texts)}\n"
        )
        blocks.append(head + "\n\n".join(segments))
    return "\n\n".join(blocks) + "\n=== FIN DE LA TRANSCRIPTION ==="


def step(
    name: str, points: Sequence[str], keywords: Sequence[str], *, position: int = 3, weight: int = 8
) -> str:
    numbered = "\n".join(f"{number}. {point}" for number, point in enumerate(points, start=1))
    return (
        f"=== ÉTAPE {position}/18 : {name} ===\n"
        f"Gravité : HIGH | Poids : {weight} | Critique : non | Vérification produit : non\n"
        f"Consigne : Juge cette étape.\nPoints de contrôle :\n{numbered}\n"
        f"Mots-clés : {', '.join(keywords) or 'aucun'}\n=== FIN DE L'ÉTAPE ==="
    )


def prompt(fiche: Fiche, *described: str) -> str:
    return "\n\n".join(
        (
            transcript(fiche),
            *described,
            "=== RÈGLES ===\nCite mot à mot.\n=== FIN DES RÈGLES ===",
            ANSWER,
        )
    )


def tool_prompt(*described: str) -> str:
    first = "Appels disponibles : 1 enregistrement(s), 3 segment(s). Cherche avec les outils avant de juger."
    return "\n\n".join((first, *described, ANSWER))


@cache
def _calls(fiche: Fiche) -> tuple[tuple[str, list[tuple[float, float, str]]], ...]:
    return tuple(_spoken(fiche))


def _spoken(fiche: Fiche) -> Iterator[tuple[str, list[tuple[float, float, str]]]]:
    for call in fiche.recordings:
        spoken = [word for word in conversation(fiche, call).words if word.kind != "spacing"]
        turns = [
            (speaker, list(words))
            for speaker, words in groupby(spoken, key=lambda word: word.speaker)
        ]
        if turns:
            yield (
                call.call_id,
                [
                    (
                        part[0][1][0].start,
                        part[-1][1][-1].end,
                        "\n".join(
                            f"{speaker}: {' '.join(word.text for word in words)}"
                            for speaker, words in part
                        ),
                    )
                    for part in (turns[at : at + 10] for at in range(0, len(turns), 10))
                ],
            )
