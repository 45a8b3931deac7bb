"""The judgement of one step: each control point by the keywords that belong to it, with a quotation
as proof."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from automation_pipeline.simulator.llm.evidence import Chunk, Sentence, found, shortened
from automation_pipeline.simulator.llm.prompt import AuditPrompt
from automation_pipeline.simulator.llm.words import Words, is_about, normalised, words

# A point that forbids something, and one that only counts when it comes up; by its first words.
FORBIDS = ("aucun ", "aucune ", "absence ", "pas de ", "pas d ")
CONDITIONAL = ("si ", "le cas echeant ", "en cas ")
CONFORME_FROM, PARTIEL_FROM, EXCELLENT_FROM = 0.85, 0.4, 0.95
RATIOS = {"PRESENT": 1.0, "PARTIEL": 0.5, "ABSENT": 0.0}

# What a model makes up: sounds right, was never said.
INVENTIONS = (
    "comme convenu je vous confirme ce point, {keyword}, c'est bien noté",
    "je vous le redis pour que ce soit clair, {keyword}, vous avez bien compris",
    "nous en avons parlé tout à l'heure, {keyword}, tout est en ordre",
)


@dataclass(frozen=True)
class Proof:
    keyword: str
    chunk: Chunk
    speaker: str
    text: str


@dataclass(frozen=True)
class Judged:
    """One control point. A broken prohibition is ABSENT without a proof; what does not come up is
    NON_APPLICABLE."""

    point: str
    statut: str
    comment: str
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True)
class Judgement:
    points: tuple[Judged, ...]
    keywords: tuple[str, ...]
    weight: int
    ratio: float = field(init=False)

    def __post_init__(self) -> None:
        counted = [RATIOS[one.statut] for one in self.points if one.statut in RATIOS]
        object.__setattr__(self, "ratio", sum(counted) / len(counted) if counted else 1.0)

    @property
    def score(self) -> int:
        return math.floor(self.ratio * self.weight + 0.5)

    @property
    def conforme(self) -> str:
        if self.ratio >= CONFORME_FROM:
            return "CONFORME"
        return "PARTIEL" if self.ratio >= PARTIEL_FROM else "NON_CONFORME"

    @property
    def niveau(self) -> str:
        if self.conforme == "CONFORME":
            return "EXCELLENT" if self.ratio >= EXCELLENT_FROM else "BON"
        return "ACCEPTABLE" if self.conforme == "PARTIEL" else "INSUFFISANT"


def judged(
    prompt: AuditPrompt, chunks: Sequence[Chunk], *, inventions: float, seed: str
) -> Judgement:
    """`seed` decides which proofs are made up, a share of `inventions` of the PRESENT points."""
    proofs = {keyword: proof for keyword in prompt.keywords if (proof := _proof(keyword, chunks))}
    points = [_judged_point(point, prompt.keywords, proofs) for point in prompt.points]
    judged_points = tuple(
        _with_invention(point, place)
        if point.statut == "PRESENT" and _strikes(seed, place, inventions)
        else point
        for place, point in enumerate(points)
    )
    return Judgement(judged_points, tuple(proofs), prompt.weight)


def _proof(keyword: str, chunks: Sequence[Chunk]) -> Proof | None:
    phrase = words(keyword)
    place: tuple[Chunk, Sentence] | None = found(phrase, chunks)
    return (
        Proof(keyword, place[0], place[1].speaker, shortened(place[1].text, phrase))
        if place
        else None
    )


def _judged_point(point: str, keywords: Sequence[str], proofs: dict[str, Proof]) -> Judged:
    result: Words = words(point)
    own = [keyword for keyword in keywords if is_about(result, words(keyword))]
    proven = [proofs[keyword] for keyword in own or keywords if keyword in proofs]
    opening = f"{' '.join(result)} "
    if opening.startswith(FORBIDS):
        return _forbidden(point, proven)
    if proven and (own or 2 * len(proven) >= len(keywords)):
        comment = f"Dit à {proven[0].chunk.minutage} : « {proven[0].keyword} »."
        return Judged(point, "PRESENT", comment, tuple(proven[:2]))
    if proven:
        return Judged(
            point,
            "PARTIEL",
            "Le sujet est abordé, sans être traité entièrement.",
            tuple(proven[:1]),
        )
    if opening.startswith(CONDITIONAL):
        return Judged(point, "NON_APPLICABLE", "Le cas ne se présente pas dans les appels.")
    return Judged(point, "ABSENT", "Rien dans les appels ne permet de le constater.")


def _forbidden(point: str, proven: Sequence[Proof]) -> Judged:
    if not proven:
        return Judged(point, "NON_APPLICABLE", "Rien de tel n'est dit dans les appels.")
    return Judged(
        point, "ABSENT", f"Manquement à {proven[0].chunk.minutage} : « {proven[0].text} »"
    )


def _strikes(seed: str, place: int, share: float) -> bool:
    return Random(f"{seed}/{place}").random() < share


def _with_invention(point: Judged, place: int) -> Judged:
    """The same place in the call, with words that are not said there."""
    true = point.proofs[0]
    result = normalised(true.chunk.text)
    turned = INVENTIONS[place % len(INVENTIONS) :] + INVENTIONS[: place % len(INVENTIONS)]
    texts = (text.format(keyword=true.keyword) for text in turned)
    text = next((text for text in texts if normalised(text) not in result), None)
    if text is None:
        return point
    return Judged(
        point.point,
        point.statut,
        point.comment,
        (Proof(true.keyword, true.chunk, true.speaker, text),),
    )
