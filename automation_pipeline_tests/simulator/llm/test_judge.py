"""The judgement of audit steps: phases that occur or are missing, quotations, and invented quotations."""

import json
from collections.abc import Collection, Sequence
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from automation_pipeline.simulator import Fiche, Kind, Phase, World, phases_of_fiche
from automation_pipeline.simulator.llm.judge import (
    AuditPrompt,
    Judgement,
    judge_points,
    normalised,
    read_prompt,
)
from automation_pipeline.simulator.llm.requests import Message
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator.llm.audit_prompts import (
    chunks,
    prompt,
    step,
    tool_prompt,
    transcript,
)

WORLD = World(7, 24, vary=False)
WITHDRAWAL = step(
    "Droit de rétractation", ["Le droit de rétractation est annoncé"], ["rétractation", "renoncer"]
)
CONFIG: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "demo/audit_config.json").read_text()
)


@cache
def fiches() -> list[Fiche]:
    days = (WORLD.day(date(2026, 2, 2) + timedelta(days=later)) for later in range(8))
    return [
        fiche for day in days for fiche in day if fiche.kind is not Kind.MISSING and chunks(fiche)
    ]


@cache
def phases_by_fiche() -> dict[str, Collection[Phase]]:
    return {fiche.id: phases_of_fiche(fiche) for fiche in fiches()}


def read(text: str) -> AuditPrompt:
    found = read_prompt([Message("system", "Tu contrôles."), Message("user", text)])
    assert found
    return found


def judge(fiche: Fiche, described: str, *, inventions: float = 0.0) -> Judgement:
    parsed = read(prompt(fiche, described))
    return judge_points(parsed, parsed.chunks, inventions=inventions, seed=f"7/{fiche.id}")


def statuts(lines: Sequence[str], points: Sequence[str], keywords: Sequence[str]) -> list[str]:
    text = (
        "=== TRANSCRIPTION DES APPELS ===\n\n--- Enregistrement 1 ---\nAppel : 98170000012\n"
        "[Segment 1] 0.0 s - 9.0 s | Locuteurs : speaker_0\n"
        + "\n".join(f"speaker_0: {line}" for line in lines)
        + "\n=== FIN DE LA TRANSCRIPTION ===\n\n"
        + step("Essai", points, keywords)
    )
    parsed = read(text)
    return [
        point.statut for point in judge_points(parsed, parsed.chunks, inventions=0, seed="x").points
    ]


@every_case(
    ("phase", "point", "keywords"),
    [
        (Phase.WITHDRAWAL_RIGHT, "Le droit de rétractation est annoncé", ["rétractation"]),
        (Phase.RECORDING_NOTICE, "L'enregistrement est annoncé", ["enregistré"]),
        (Phase.PRESENTATION, "L'immatriculation ORIAS est mentionnée", ["ORIAS"]),
        (Phase.DISCOVERY, "Les besoins sont recueillis", ["vos besoins"]),
        (Phase.PRICE, "La cotisation est annoncée", ["cotisation"]),
        (Phase.CONSENT, "La signature électronique est expliquée", ["signature électronique"]),
        (Phase.PAYMENT, "L'IBAN est recueilli", ["IBAN"]),
    ],
)
def test_a_step_passes_if_the_transcript_contains_its_phase(
    phase: Phase, point: str, keywords: list[str]
) -> None:
    described = step("Essai", [point], keywords)
    verdicts = {
        (phase in phases_by_fiche()[fiche.id], judge(fiche, described).conforme)
        for fiche in fiches()[::4]
    }
    assert verdicts == {(True, "CONFORME"), (False, "NON_CONFORME")}


def test_a_quotation_is_a_verbatim_part_of_its_chunk_and_long_enough() -> None:
    proven = 0
    for fiche in fiches()[:60]:
        texts = chunks(fiche)
        for described in map(rendered, CONFIG["steps"]):
            for proof in (
                proof for point in judge(fiche, described).points for proof in point.proofs
            ):
                assert proof.text in texts[proof.chunk.recording_index, proof.chunk.chunk_index]
                assert len(normalised(proof.text)) >= 12
                proven += 1
    assert proven > 500


def rendered(one: dict[str, Any]) -> str:
    return step(
        one["name"],
        one["controlPoints"],
        one["keywords"],
        position=one["position"],
        weight=one["weight"],
    )


@every_case("share", [0.0, 0.2, 1.0])
def test_invented_quotations_follow_the_share_and_are_not_in_the_chunk(share: float) -> None:
    proofs = [
        proof
        for fiche in fiches()
        for proof in judge(fiche, WITHDRAWAL, inventions=share).points[0].proofs[:1]
    ]
    invented = [
        proof for proof in proofs if normalised(proof.text) not in normalised(proof.chunk.text)
    ]
    assert len(proofs) > 60
    assert abs(len(invented) / len(proofs) - share) <= (0.12 if 0 < share < 1 else 0)


def test_invented_quotations_depend_on_the_seed() -> None:
    def invented(seed: str) -> list[bool]:
        parsed = [read(prompt(fiche, WITHDRAWAL)) for fiche in fiches()]
        judgements = [
            judge_points(one, one.chunks, inventions=0.3, seed=f"{seed}/{number}")
            for number, one in enumerate(parsed)
        ]
        return [
            proof.text not in proof.chunk.text
            for one in judgements
            for proof in one.points[0].proofs[:1]
        ]

    assert invented("7") == invented("7") != invented("8")


@every_case(
    ("text", "points", "keywords", "expected"),
    [
        (
            ["Votre conversation est enregistrée."],
            ["L'enregistrement est dit"],
            ["enregistré"],
            ["PRESENT"],
        ),
        (
            ["Votre conversation est notée ici."],
            ["L'enregistrement est dit"],
            ["enregistré"],
            ["ABSENT"],
        ),
        (["Un contraire de ce que vous dites."], ["Le contrat est lu"], ["contrat"], ["ABSENT"]),
        (
            ["Le délai court, et la rétractation."],
            ["Le délai"],
            ["délai de rétractation"],
            ["ABSENT"],
        ),
        (
            ["Je parle du premier sujet ici."],
            ["Tout est dit"],
            ["premier", "second", "troisième"],
            ["PARTIEL"],
        ),
        (
            ["Le premier et le second sujet."],
            ["Tout est dit"],
            ["premier", "second", "troisième"],
            ["PRESENT"],
        ),
        (["Ah oui."], ["Si le client a un chien"], ["chien"], ["NON_APPLICABLE"]),
        (
            ["C'est votre dernière chance."],
            ["Aucune dernière chance"],
            ["dernière chance"],
            ["ABSENT"],
        ),
        (
            ["Prenez tout votre temps."],
            ["Aucune dernière chance"],
            ["dernière chance"],
            ["NON_APPLICABLE"],
        ),
        # Too short for a quotation.
        (
            ["IBAN ?", "oui"],
            ["L'IBAN est demandé"],
            ["IBAN"],
            ["ABSENT"],
        ),
        (["Rien à signaler de plus ici."], ["Tout est dit"], [], ["ABSENT"]),
    ],
)
def test_a_point_is_judged_by_the_keywords_that_belong_to_it(
    text: list[str], points: list[str], keywords: list[str], expected: list[str]
) -> None:
    assert statuts(text, points, keywords) == expected


def test_a_step_without_an_applicable_point_passes() -> None:
    described = step("Essai", ["Aucun hélicoptère"], ["hélicoptère"], weight=6)
    verdict = judge(fiches()[0], described)
    assert (verdict.ratio, verdict.score, verdict.conforme, verdict.niveau) == (
        1.0,
        6,
        "CONFORME",
        "EXCELLENT",
    )


def test_every_part_of_a_prompt_is_parsed() -> None:
    fiche = fiches()[0]
    parsed = read(prompt(fiche, rendered(CONFIG["steps"][3])))
    assert (parsed.position, parsed.weight, parsed.name) == (4, 8, "Découverte des besoins")
    assert list(parsed.points) == CONFIG["steps"][3]["controlPoints"]
    assert list(parsed.keywords) == CONFIG["steps"][3]["keywords"]
    assert (parsed.has_transcript, parsed.fiche_id) == (True, fiche.id)
    assert {(one.recording_index, one.chunk_index): one.text for one in parsed.chunks} == chunks(
        fiche
    )


def test_other_texts_are_not_audit_prompts() -> None:
    assert (
        read_prompt([Message("user", "Bonjour"), Message("user", transcript(fiches()[0]))]) is None
    )
    assert read_prompt([Message("system", prompt(fiches()[0], WITHDRAWAL))]) is None
    assert read(tool_prompt(WITHDRAWAL)).has_transcript is False


def test_the_configuration_of_the_demo_has_the_reference_shape_and_varied_results() -> None:
    steps = CONFIG["steps"]
    assert [one["position"] for one in steps] == list(range(1, 19))
    assert [one["weight"] for one in steps] == [
        10,
        7,
        2,
        8,
        8,
        5,
        10,
        9,
        7,
        6,
        10,
        7,
        9,
        8,
        8,
        6,
        3,
        2,
    ]
    assert [one["position"] for one in steps if one["isCritical"]] == [1, 4, 5, 7, 11]
    assert all(
        2 <= len(one["controlPoints"]) <= 4 and 3 <= len(one["keywords"]) <= 6 for one in steps
    )
    outcomes = [_outcome(fiche) for fiche in fiches()]
    good = sum(rejected is False and share >= 0.75 for rejected, share in outcomes) / len(outcomes)
    assert 0.3 <= good <= 0.7
    assert 0.25 <= sum(rejected for rejected, _ in outcomes) / len(outcomes) <= 0.7


def _outcome(fiche: Fiche) -> tuple[bool, float]:
    """Whether a critical step fails, and the share of the score."""
    verdicts = [(one, judge(fiche, rendered(one))) for one in CONFIG["steps"]]
    rejected = any(
        one["isCritical"] and verdict.conforme != "CONFORME" for one, verdict in verdicts
    )
    return rejected, sum(verdict.score for _, verdict in verdicts) / 125
