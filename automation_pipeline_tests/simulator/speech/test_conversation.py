"""Transcripts of calls: they are deterministic, differ by fiche, fit into the call and agree with the fiche."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from functools import cache
from itertools import pairwise

from automation_pipeline.simulator import (
    CallKind,
    Fiche,
    Phase,
    Recording,
    Transcript,
    World,
    conversation,
    phases_of_fiche,
)
from automation_pipeline.simulator.crm.sections import details_json
from automation_pipeline.simulator.speech.conversation import QUESTIONS, generic_conversation
from automation_pipeline.simulator.speech.phrases import PHRASES
from automation_pipeline_tests.cases import every_case

# The keywords that an audit searches for, and the only phase that contains them.
KEYWORDS = {
    r"ORIAS|courtier|courtage inscrite": Phase.PRESENTATION,
    r"enregistr": Phase.RECORDING_NOTICE,
    r"vos besoins": Phase.DISCOVERY,
    r"contrat actuel": Phase.CURRENT_CONTRACT,
    r"Les garanties": Phase.PRODUCT,
    r"cotisation": Phase.PRICE,
    r"dernière chance|perdu": Phase.PRESSURE,
    r"rétractation|14 jours|renoncer": Phase.WITHDRAWAL_RIGHT,
    r"signature|signer|signé\b": Phase.CONSENT,
    r"IBAN|prélèvement": Phase.PAYMENT,
    r"récapitule|En résumé": Phase.RECAP,
}


@cache
def fiches() -> Sequence[Fiche]:
    return World(7, 120, vary=False).day(date(2026, 2, 3))


@cache
def conversations() -> Sequence[tuple[Fiche, Recording, Transcript]]:
    return [
        (fiche, call, conversation(fiche, call)) for fiche in fiches() for call in fiche.recordings
    ]


@every_case(("keyword", "phase"), KEYWORDS.items())
def test_a_keyword_occurs_in_every_version_of_its_phase_and_in_no_other(
    keyword: str, phase: Phase
) -> None:
    phases = {
        spoken
        for spoken, versions in PHRASES.items()
        for lines in versions
        if re.search(keyword, " ".join(lines))
    }
    assert phases == {phase}
    assert all(re.search(keyword, " ".join(lines)) for lines in PHRASES[phase])
    assert not any(re.search(keyword, " ".join(lines)) for lines in QUESTIONS)


def test_a_transcript_has_only_the_keywords_of_its_phases() -> None:
    for _, _, transcript in conversations():
        for keyword, phase in KEYWORDS.items():
            assert bool(re.search(keyword, transcript.text)) == (phase in transcript.phases), (
                keyword,
                transcript.text,
            )


def test_a_conversation_depends_on_the_seed() -> None:
    assert [conversation(fiche, call) for fiche, call, _ in conversations()[:40]] == [
        transcript for *_, transcript in conversations()[:40]
    ]
    other = World(8, 120, vary=False).fiche(fiches()[3].id)
    assert other
    assert phases_of_fiche(other) != phases_of_fiche(fiches()[3])


@every_case(
    ("phase", "low", "high"),
    [
        (Phase.RECORDING_NOTICE, 0.6, 0.9),
        (Phase.WITHDRAWAL_RIGHT, 0.5, 0.85),
        (Phase.PRESSURE, 0.05, 0.25),
        (Phase.CONSENT, 0.8, 0.99),
        (Phase.PAYMENT, 0.75, 0.99),
    ],
)
def test_some_sales_lack_phases(phase: Phase, low: float, high: float) -> None:
    sales = [transcript for *_, transcript in conversations() if transcript.kind is CallKind.SALES]
    assert low < sum(phase in transcript.phases for transcript in sales) / len(sales) < high


def test_most_fiches_have_one_sale_and_every_other_kind_of_call_occurs() -> None:
    kinds = Counter(transcript.kind for *_, transcript in conversations())
    assert all(kinds[kind] >= 5 for kind in CallKind)
    sales = Counter(
        fiche.id for fiche, _, transcript in conversations() if transcript.kind is CallKind.SALES
    )
    assert set(sales.values()) == {1}
    assert len(sales) > 0.75 * len([fiche for fiche in fiches() if fiche.recordings])
    assert len({phases_of_fiche(fiche) for fiche in fiches()}) > 50


def test_an_empty_transcript_has_neither_text_nor_words() -> None:
    silent = [
        transcript for *_, transcript in conversations() if transcript.kind is CallKind.SILENT
    ]
    assert {(transcript.text, transcript.words, transcript.phases) for transcript in silent} == {
        ("", (), ())
    }


def check_times(transcript: Transcript, seconds: float) -> None:
    assert all(0 <= word.start <= word.end <= seconds for word in transcript.words)
    assert all(before.end == after.start for before, after in pairwise(transcript.words)), (
        "spacings fill every gap"
    )
    assert all((word.kind == "spacing") == bool(at % 2) for at, word in enumerate(transcript.words))
    assert all(word.end > word.start for word in transcript.words)


def test_words_follow_one_another_within_the_recording() -> None:
    for _, call, transcript in conversations():
        check_times(transcript, call.duration_seconds)


def test_two_speakers_alternate_with_audio_events() -> None:
    kinds: Counter[str] = Counter()
    for _, _, transcript in conversations():
        kinds.update(word.text for word in transcript.words if word.kind == "audio_event")
        if transcript.kind is CallKind.SALES:
            assert {word.speaker for word in transcript.words} == {"speaker_0", "speaker_1"}
            turns = sum(
                before.speaker != after.speaker for before, after in pairwise(transcript.words)
            )
            assert turns >= 6
    assert kinds["(rire)"] > 20
    assert set(kinds) == {"(rire)", "(bip)"}


def test_names_product_and_price_are_those_of_the_fiche() -> None:
    for fiche, _, transcript in conversations():
        subscription: object = details_json(fiche, [], with_mail_devis=False)[
            "elements_souscription"
        ]
        if Phase.PRESENTATION in transcript.phases:
            assert fiche.agent.nom.title() in transcript.text
        if isinstance(subscription, dict) and Phase.PRICE in transcript.phases:
            assert subscription["produit"]["cotisation"].replace(".", " euros ") in transcript.text
        if isinstance(subscription, dict) and Phase.PRODUCT in transcript.phases:
            assert subscription["produit"]["formule"].title() in transcript.text
            assert subscription["produit"]["groupe_nom"].title() in transcript.text


def test_a_long_call_has_more_questions_and_a_short_one_ends_early() -> None:
    def of_length(fiche: Fiche, seconds: int) -> Transcript:
        call: Recording = next(call for call in fiche.recordings if call.answered)
        only = Fiche(
            **{name: getattr(fiche, name) for name in Fiche.__slots__} | {"recordings": (call,)}
        )
        changed = Recording(
            **{name: getattr(call, name) for name in Recording.__slots__}
            | {"duration_seconds": seconds}
        )
        return conversation(only, changed)

    fiche, _, _ = next(
        transcript
        for transcript in conversations()
        if transcript[2].kind is CallKind.SALES and len(transcript[0].recordings) == 1
    )
    brief, usual, long = (of_length(fiche, seconds) for seconds in (40, 300, 1500))
    assert len(brief.words) < len(usual.words) < len(long.words)
    assert usual.phases[: len(brief.phases)] == brief.phases
    assert Phase.QUESTIONS in long.phases


def test_unknown_audio_always_has_the_same_conversation() -> None:
    first, second = generic_conversation("ab"), generic_conversation("cd")
    assert generic_conversation("ab") == first
    assert first.text != second.text
    check_times(first, 600)
