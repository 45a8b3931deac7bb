"""What is said in a call: a pure function of the fiche (whose cle carries the seed) and the
recording.

The longest answered recording of a fiche is where the sale is made. What its agent forgets is the
fiche's own habit, so a phase is missing from the whole fiche or from none of it; the other
recordings are follow-ups and mishaps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from random import Random

from automation_pipeline.simulator.speech.facts import Facts, facts_of, invented_facts
from automation_pipeline.simulator.speech.phrases import PHRASES
from automation_pipeline.simulator.speech.questions import QUESTIONS
from automation_pipeline.simulator.speech.timing import timed
from automation_pipeline.simulator.speech.transcript import (
    AGENT,
    CLIENT,
    CallKind,
    Phase,
    Transcript,
    Turn,
)
from automation_pipeline.simulator.world.values import Fiche, Recording

PAUSE_SECONDS, MAX_EXTRA_PAUSE_SECONDS = 0.5, 3.0
SECONDS_WITHOUT_QUESTIONS, SECONDS_A_QUESTION = 300, 40
SHORTEST_VOICEMAIL_SECONDS = 12

# How often an agent says it, in the order of a sale.
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
    rng = Random(f"{fiche.cle}/{recording.call_id}/speech")
    kind = _kind(fiche, recording, rng)
    script = sale_script(fiche) if kind is CallKind.SALES else SCRIPTS[kind]
    return _said(kind, script, facts_of(fiche), recording.duration_seconds, rng)


def generic_conversation(digest: str) -> Transcript:
    """For audio that is no call of this world: a sale between invented people, always the same for
    the same digest."""
    rng = Random(f"{digest}/speech")
    return _said(CallKind.SALES, _habits(rng), invented_facts(rng), rng.randrange(240, 600), rng)


def phases_said(fiche: Fiche) -> frozenset[Phase]:
    """Everything that is said in any call of the fiche."""
    return frozenset(
        phase for call in fiche.recordings for phase in conversation(fiche, call).phases
    )


def sale_script(fiche: Fiche) -> tuple[Phase, ...]:
    """What the fiche's agent means to say in the sale, if the call is long enough."""
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


def _said(
    kind: CallKind, script: Sequence[Phase], facts: Facts, seconds: float, rng: Random
) -> Transcript:
    """The phases that fit into the call, spread over it."""
    questions = int((seconds - SECONDS_WITHOUT_QUESTIONS) // SECONDS_A_QUESTION)
    phases = [
        (phase, turns) for phase in script if (turns := list(_turns(phase, facts, questions, rng)))
    ]
    timing_seed = rng.random()
    while phases:
        turns = [turn for _, spoken in phases for turn in spoken]
        words = timed(turns, Random(timing_seed), pause=PAUSE_SECONDS)
        spare = seconds - words[-1].end
        if spare >= 0:
            # A pause is at most half as long again as its average: two thirds of the spare time
            # always fit.
            extra = min(MAX_EXTRA_PAUSE_SECONDS, spare * 0.66 / len(turns))
            words = timed(turns, Random(timing_seed), pause=PAUSE_SECONDS + extra)
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
