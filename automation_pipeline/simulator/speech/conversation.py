"""The words of a call, which are drawn from the fiche and the recording."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from random import Random
from typing import cast

from automation_pipeline.simulator.crm.sections import (
    GAMMES,
    INSURERS,
    LEVELS,
    Section,
    details_json,
)
from automation_pipeline.simulator.speech.phrases import PHRASES
from automation_pipeline.simulator.speech.transcript import (
    AGENT,
    CLIENT,
    CallKind,
    Phase,
    Transcript,
    Turn,
    Word,
)
from automation_pipeline.simulator.world.world import (
    Agent,
    Fiche,
    Prospect,
    Recording,
    agents,
    draw_prospect,
)

COMPANY = "Clairval Courtage"
MONTHS = (
    "janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre", "octobre", "novembre",
    "décembre",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    agent: str
    company: str
    civilite: str
    client: str
    insurer: str
    formula: str
    price: str
    starts_on: str
    debited_on: str
    former_insurer: str
    former_price: str


def facts_of(fiche: Fiche) -> Facts:
    details = details_json(fiche, [], with_mail_devis=False)
    return _facts(
        fiche.agent,
        fiche.prospect,
        _section(details["elements_souscription"]),
        Random(f"{fiche.cle}/facts"),
    )


def invented_facts(rng: Random) -> Facts:
    """For audio that belongs to no fiche."""
    return _facts(rng.choice(rng.choice(agents())), draw_prospect(rng), {}, rng)


def _facts(agent: Agent, prospect: Prospect, subscription: Section, rng: Random) -> Facts:
    product, former = (
        _section(subscription.get("produit")),
        _section(subscription.get("ancien_contrat")),
    )
    insurer, formula = rng.choice(INSURERS), f"{rng.choice(GAMMES)} {rng.choice(LEVELS)}"
    price, former_price = (f"{rng.randrange(2500, 18000) / 100:.2f}" for _ in range(2))
    return Facts(
        agent=agent.nom.title(),
        company=COMPANY,
        civilite=prospect.civilite_text.lower(),
        client=f"{prospect.prenom} {prospect.nom}".title(),
        insurer=str(product.get("groupe_nom", insurer)).title(),
        formula=str(product.get("formule", formula)).title(),
        price=_spoken_price(str(product.get("cotisation", price))),
        starts_on=_spoken_day(
            str(product.get("date_effet", f"01/{rng.randrange(1, 13):02d}/2026"))
        ),
        debited_on=str(_section(subscription.get("paiement")).get("prelevement_le", "10")),
        former_insurer=str(former.get("assureur", rng.choice(INSURERS))).title(),
        former_price=_spoken_price(str(former.get("cotisation", former_price))),
    )


def _section(value: object) -> Section:
    return cast("Section", value) if isinstance(value, dict) else {}


def _spoken_price(amount: str) -> str:
    euros, _, cents = amount.partition(".")
    return f"{euros} euros {cents}"


def _spoken_day(french_day: str) -> str:
    day, month, year = french_day.split("/")
    return f"{'1er' if day == '01' else int(day)} {MONTHS[int(month) - 1]} {year}"


QUESTIONS: tuple[tuple[str, ...], ...] = (
    (
        "> Et les médecines douces ?",
        "Quatre séances par an, ostéopathe ou acupuncteur, à trente euros la séance.",
    ),
    (
        "> Les appareils auditifs, c'est compris ?",
        "Oui, les modèles de classe un sont sans reste à charge.",
    ),
    (
        "> Si je pars en vacances en Espagne ?",
        "Vous gardez la carte européenne, et l'assistance vous rapatrie.",
    ),
    ("> Mon pharmacien prendra la carte ?", "Oui, le tiers payant est accepté partout."),
    (
        "> Et les cures thermales ?",
        "Un forfait de cent cinquante euros, sur prescription de votre médecin.",
    ),
    (
        "> Le kiné, j'y vais souvent.",
        "Le ticket modérateur est remboursé, sans limite du nombre de séances.",
    ),
    (
        "> Mes analyses de sang ?",
        "Prises en charge à cent pour cent de la base, au laboratoire de votre choix.",
    ),
    (
        "> On peut ajouter une personne plus tard ?",
        "Bien sûr, à tout moment, avec une remise pour la famille.",
    ),
    ("> Il y a un questionnaire médical ?", "Non, aucune question de santé n'est posée."),
    (
        "> Comment j'envoie mes factures ?",
        "Par l'application, une photo suffit, ou bien par courrier.",
    ),
    (
        "> Les implants dentaires ?",
        "Un forfait de trois cents euros par an, à partir de la première année.",
    ),
    ("> Et si je déménage ?", "Vous nous prévenez, le contrat vous suit."),
    (
        "> Ma fille est étudiante, elle compte ?",
        "Jusqu'à vingt-cinq ans, elle peut rester avec vous.",
    ),
    ("> Les vaccins ?", "Le vaccin contre la grippe est offert, les autres sur ordonnance."),
    ("> Le transport en ambulance ?", "Oui, s'il est prescrit, il est remboursé entièrement."),
    (
        "> Et l'aide à la maison après une opération ?",
        "Dix heures d'aide ménagère, par l'assistance.",
    ),
)


LEAD_SECONDS = 0.3
EVENT_SECONDS = 0.6


def with_times(turns: Sequence[Turn], rng: Random, *, pause: float) -> tuple[Word, ...]:
    """`pause` is the average silence between two turns. Times are in whole milliseconds."""
    words: list[Word] = []
    at = LEAD_SECONDS
    for turn in turns:
        if words:
            at += pause * rng.uniform(0.5, 1.5)
        for token in turn.text.split():
            if words:
                start = round(max(at, words[-1].end + 0.02), 3)
                words.append(Word(" ", "spacing", words[-1].end, start, words[-1].speaker, 0.0))
                at = start
            words.append(_word(token, turn.speaker, at, rng))
            at = words[-1].end + rng.uniform(0.03, 0.09)
    return tuple(words)


def _word(token: str, speaker: str, at: float, rng: Random) -> Word:
    event = token.startswith("(")
    length = EVENT_SECONDS if event else (0.1 + 0.04 * len(token)) * rng.uniform(0.8, 1.2)
    kind = "audio_event" if event else "word"
    return Word(
        token,
        kind,
        at,
        round(at + length, 3),
        speaker,
        0.0 if event else -round(rng.expovariate(12), 4),
    )


PAUSE_SECONDS, MAX_EXTRA_PAUSE_SECONDS = 0.5, 3.0
SECONDS_WITHOUT_QUESTIONS, SECONDS_PER_QUESTION = 300, 40
SHORTEST_VOICEMAIL_SECONDS = 12

# The probability of each phase, in the order of a sale.
HABITS: dict[Phase, float] = {
    Phase.PRESENTATION: 0.94,
    Phase.RECORDING_NOTICE: 0.78,
    Phase.DISCOVERY: 0.88,
    Phase.CURRENT_CONTRACT: 0.82,
    Phase.PRODUCT: 0.97,
    Phase.QUESTIONS: 1.0,
    Phase.PRICE: 0.94,
    Phase.PRESSURE: 0.12,
    Phase.WITHDRAWAL_RIGHT: 0.7,
    Phase.CONSENT: 0.92,
    Phase.PAYMENT: 0.9,
    Phase.RECAP: 0.75,
    Phase.THANKS: 0.95,
}
SCRIPTS: dict[CallKind, tuple[Phase, ...]] = {
    CallKind.FOLLOW_UP: (Phase.FOLLOW_UP, Phase.THANKS),
    CallKind.SHORT: (Phase.CALL_BACK,),
    CallKind.VOICEMAIL: (Phase.VOICEMAIL,),
    CallKind.SILENT: (),
}


def conversation(fiche: Fiche, recording: Recording) -> Transcript:
    """The transcript of a call, determined by the fiche (whose `cle` contains the seed) and the recording.

    The sale is in the longest answered recording of a fiche. A phase that the agent omits there is missing from
    the whole fiche, because the other recordings are follow-ups, voicemails and silence."""
    rng = Random(f"{fiche.cle}/{recording.call_id}/speech")
    kind = _kind(fiche, recording, rng)
    script = sale_script(fiche) if kind is CallKind.SALES else SCRIPTS[kind]
    return _fitting_phases(kind, script, facts_of(fiche), recording.duration_seconds, rng)


def generic_conversation(digest: str) -> Transcript:
    """The transcript of audio that is not a call of this world: a sale between invented people, determined by the
    digest."""
    rng = Random(f"{digest}/speech")
    return _fitting_phases(
        CallKind.SALES, _habits(rng), invented_facts(rng), rng.randrange(240, 600), rng
    )


def phases_of_fiche(fiche: Fiche) -> frozenset[Phase]:
    """All phases in any call of the fiche."""
    return frozenset(
        phase for call in fiche.recordings for phase in conversation(fiche, call).phases
    )


def sale_script(fiche: Fiche) -> tuple[Phase, ...]:
    """The phases of the sale, if the call is long enough."""
    return _habits(Random(f"{fiche.cle}/habits"))


def _habits(rng: Random) -> tuple[Phase, ...]:
    return tuple(phase for phase, share in HABITS.items() if rng.random() < share)


def _kind(fiche: Fiche, recording: Recording, rng: Random) -> CallKind:
    if not recording.answered:
        return (
            CallKind.VOICEMAIL
            if recording.duration_seconds >= SHORTEST_VOICEMAIL_SECONDS
            else CallKind.SILENT
        )
    longest = max(
        (call for call in fiche.recordings if call.answered), key=lambda call: call.duration_seconds
    )
    usual = CallKind.SALES if recording.call_id == longest.call_id else CallKind.FOLLOW_UP
    kinds = (usual, CallKind.SHORT, CallKind.VOICEMAIL, CallKind.SILENT)
    return rng.choices(kinds, (90, 5, 3, 2))[0]


def _fitting_phases(
    kind: CallKind, script: Sequence[Phase], facts: Facts, seconds: float, rng: Random
) -> Transcript:
    """The phases that fit into the call, spread over it."""
    questions = int((seconds - SECONDS_WITHOUT_QUESTIONS) // SECONDS_PER_QUESTION)
    phases = [
        (phase, turns) for phase in script if (turns := list(_turns(phase, facts, questions, rng)))
    ]
    timing_seed = rng.random()
    while phases:
        turns = [turn for _, spoken in phases for turn in spoken]
        words = with_times(turns, Random(timing_seed), pause=PAUSE_SECONDS)
        spare = seconds - words[-1].end
        if spare >= 0:
            # A pause is at most one and a half times as long as the average, so two thirds of the spare
            # time always fit.
            extra = min(MAX_EXTRA_PAUSE_SECONDS, spare * 0.66 / len(turns))
            words = with_times(turns, Random(timing_seed), pause=PAUSE_SECONDS + extra)
            return Transcript(kind=kind, phases=tuple(phase for phase, _ in phases), words=words)
        phases.pop()
    return Transcript(kind=CallKind.SILENT, phases=(), words=())


def _turns(phase: Phase, facts: Facts, questions: int, rng: Random) -> Iterator[Turn]:
    if phase is Phase.QUESTIONS:
        exchanges = rng.sample(QUESTIONS, min(max(questions, 0), len(QUESTIONS)))
        lines = [line for exchange in exchanges for line in exchange]
    else:
        lines = list(rng.choice(PHRASES[phase]))
    known = asdict(facts)
    for of_client, spoken in groupby(lines, lambda line: line.startswith("> ")):
        text = " ".join(line.removeprefix("> ") for line in spoken).format_map(known)
        yield Turn(CLIENT if of_client else AGENT, text)
