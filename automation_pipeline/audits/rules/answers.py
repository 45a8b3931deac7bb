"""The model's answer about a step: its schema, its parser, and the match with the configured
control points."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from automation_pipeline.audits.models.audits import (
    Conforme,
    ControlPoint,
    Niveau,
    Statut,
    StepFinding,
)
from automation_pipeline.audits.models.chat import (
    AnswerSchema,
    parse_model_output,
)
from automation_pipeline.audits.rules.tools import normalise, object_schema

JsonSchema = Mapping[str, object]
_NEGATIONS = {
    "ne": "ne",
    "n": "ne",
    "pas": "pas",
    "aucun": "aucun",
    "aucune": "aucun",
    "sans": "sans",
    "jamais": "jamais",
    "non": "non",
}
# "un" is missing, because it is more often an article.
_NUMBERS = frozenset((
    "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze", "treize", "quatorze",
    "quinze", "seize", "vingt", "vingts", "trente", "quarante", "cinquante", "soixante", "cent", "cents", "mille",
))  # fmt: skip
NOT_DEALT_WITH = "Non traité par le modèle."
_MIN_SIMILARITY = 0.85
_MIN_CONTAINED_WORDS = 2
_NUMBERING = re.compile(
    r"\s*(?:[-*•]|(?:point\s+(?:de\s+contr[oô]le\s+)?)?\(?\d+(?:\.\d+)*\s*[.):–-])\s+",
    re.IGNORECASE,
)
# NON_APPLICABLE is last, because it needs no proof and does not lower the ratio.
_STRICTEST_FIRST = (Statut.ABSENT, Statut.PARTIEL, Statut.PRESENT, Statut.NON_APPLICABLE)


def _list_of(items: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": items}


def _one_of(*values: str) -> JsonSchema:
    return {"type": "string", "enum": list(values)}


def _text(description: str) -> JsonSchema:
    return {"type": "string", "description": description}


def _integer(description: str) -> JsonSchema:
    return {"type": "integer", "description": description}


_FLAG: JsonSchema = {"type": "boolean"}
_MINUTAGES = _list_of(_text("MM:SS"))

_CITATION = object_schema(
    texte=_text("Passage copié mot pour mot d'un seul segment"),
    minutage=_text("Début du passage, MM:SS"),
    minutage_secondes={
        "type": "number",
        "description": "Début du passage en secondes, au moins 0",
    },
    speaker=_text("Locuteur, comme dans la transcription"),
    recording_index=_integer("Index de l'enregistrement, à partir de 0"),
    chunk_index=_integer("Index du segment dans l'enregistrement, à partir de 0"),
    recording_date=_text("Date de l'enregistrement"),
    recording_time=_text("Heure de l'enregistrement"),
    recording_url=_text("Adresse de l'enregistrement, N/A si elle n'est pas donnée"),
)
_POINT = object_schema(
    point=_text("Le point de contrôle, recopié à l'identique"),
    statut=_one_of(*(statut.value for statut in Statut)),
    commentaire=_text("Ce qui justifie le statut"),
    citations=_list_of(_CITATION),
    minutages=_MINUTAGES,
    erreur_transcription_notee=_FLAG,
    variation_phonetique_utilisee={
        "type": ["string", "null"],
        "description": "La variante entendue, ou null",
    },
)
ANSWER_SCHEMA = AnswerSchema(
    "audit_step",
    object_schema(
        traite=_FLAG,
        conforme=_one_of(*(conforme.value for conforme in Conforme)),
        minutages=_MINUTAGES,
        score=_integer("Points obtenus, de 0 au poids de l'étape"),
        points_controle=_list_of(_POINT),
        mots_cles_trouves=_list_of({"type": "string"}),
        commentaire_global=_text("Bilan de l'étape"),
        niveau_conformite=_one_of(
            *(niveau.value for niveau in Niveau if niveau is not Niveau.PENDING)
        ),
        erreurs_transcription_tolerees=_integer(
            "Nombre d'erreurs de transcription tolérées, au moins 0"
        ),
    ),
)


def parse_answer(content: str) -> StepFinding:
    """Raises ModelOutputError when the answer breaks the schema."""
    return parse_model_output(StepFinding, content)


def numbers_and_negations(text: str) -> tuple[list[str], list[str]]:
    """The numbers of a normalised text in their order, and its negations in alphabetical order."""
    words = text.split()
    numbers = [
        number
        for word in words
        for number in ([word] if word in _NUMBERS else re.findall(r"\d+", word))
    ]
    return numbers, sorted(_NEGATIONS[word] for word in words if word in _NEGATIONS)


@dataclass(frozen=True)
class Reconciled:
    """`missing` counts the configured points without an answer, `unknown` the dropped answers."""

    finding: StepFinding
    missing: int
    unknown: int


def reconcile(finding: StepFinding, configured: tuple[str, ...]) -> Reconciled:
    """Return each configured point exactly once, in its order and with its text. Of several answers to one
    point, the one with the closest text counts; among equals the strictest, and among those the
    first."""
    found: dict[int, ControlPoint] = {}
    left: Sequence[ControlPoint] = finding.points
    for key in (str.strip, normalise, _unnumbered):
        if not left:
            break
        equal, left = _equal(configured, found, left, key)
        found |= equal
    found |= _similar(
        {slot: text for slot, text in enumerate(configured) if slot not in found}, left
    )
    unanswered = ControlPoint(
        point="",
        statut=Statut.ABSENT,
        commentaire=NOT_DEALT_WITH,
        citations=(),
        minutages=(),
        erreur_transcription_notee=False,
        variation_phonetique_utilisee=None,
    )
    return Reconciled(
        replace(
            finding,
            points=tuple(
                replace(found.get(slot, unanswered), point=text)
                for slot, text in enumerate(configured)
            ),
        ),
        len(configured) - len(found),
        len(finding.points) - len(found),
    )


def _unnumbered(text: str) -> str:
    return normalise(_NUMBERING.sub("", text, count=1) if _NUMBERING.match(text) else text)


def _strictness(point: ControlPoint) -> int:
    return _STRICTEST_FIRST.index(point.statut)


def _equal(
    configured: tuple[str, ...],
    found: Mapping[int, ControlPoint],
    left: Sequence[ControlPoint],
    key: Callable[[str], str],
) -> tuple[dict[int, ControlPoint], Sequence[ControlPoint]]:
    """Return the matches by this key, and the answers without one. Dropped duplicates are in neither."""
    slots: dict[str, list[int]] = defaultdict(list)
    for slot, text in enumerate(configured):
        slots[key(text)].append(slot)
    answers: dict[str, list[ControlPoint]] = defaultdict(list)
    rest: list[ControlPoint] = []
    for point in left:
        name = key(point.point)
        (answers[name] if name and name in slots else rest).append(point)
    equal: dict[int, ControlPoint] = {}
    for name, points in answers.items():
        free = [slot for slot in slots[name] if slot not in found]
        strictest_first = sorted(enumerate(points), key=lambda pair: _strictness(pair[1]))
        kept = dict(sorted(strictest_first[: len(free)], key=lambda pair: pair[0]))
        equal.update(zip(free, kept.values(), strict=False))
    return equal, rest


def _similar(slots: Mapping[int, str], left: Sequence[ControlPoint]) -> dict[int, ControlPoint]:
    """Match similar texts, best pairs first."""
    asked = {slot: _unnumbered(text) for slot, text in slots.items()}
    answered = [_unnumbered(point.point) for point in left]
    similarity = {
        (slot, at): _similarity(one, two)
        for slot, one in asked.items()
        for at, two in enumerate(answered)
    }
    clear = [pair for pair, value in similarity.items() if value > 0]
    clear.sort(key=lambda pair: (-similarity[pair], _strictness(left[pair[1]]), pair))
    similar: dict[int, ControlPoint] = {}
    used: set[int] = set()
    for slot, at in clear:
        if slot not in similar and at not in used:
            similar[slot] = left[at]
            used.add(at)
    return similar


def _similarity(one: str, two: str) -> float:
    """From 0 to 1; 0 also for texts that are not clearly similar."""
    inner, outer = sorted((one, two), key=len)
    if not inner or numbers_and_negations(one) != numbers_and_negations(two):
        return 0.0
    if f" {inner} " in f" {outer} " and len(inner.split()) >= max(
        _MIN_CONTAINED_WORDS, len(outer.split()) / 2
    ):
        return 2 * len(inner) / (len(inner) + len(outer))
    # By default, difflib ignores frequent characters of texts of 200 characters or more.
    matcher = SequenceMatcher(None, one, two, autojunk=False)
    if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < _MIN_SIMILARITY:
        return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= _MIN_SIMILARITY else 0.0
