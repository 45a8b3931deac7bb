"""The model's answer about a step: its schema, its parser, and the match with the configured
control points."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Annotated, Literal, TypeVar, cast, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    ValidationError,
)

from automation_pipeline.audits.models.chat import AnswerSchema
from automation_pipeline.audits.models.findings import (
    UNKNOWN,
    Citation,
    Conforme,
    ControlPoint,
    Niveau,
    Statut,
    StepFinding,
)
from automation_pipeline.audits.rules.search import normalise

MAX_TEXT = 20_000
_MOST_COMPLAINTS = 8
_LARGEST = 2**31 - 1
# Prose may hold braces; a text with more of them than this counts as no answer.
_MOST_BRACES = 64
_NO_JSON = (
    "La réponse n'est pas du JSON valide : donne un seul objet JSON complet, sans autre texte."
)
_REASONED = re.compile(r"</(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
_OBJECT = re.compile(r'\{\s*"')
_DECODER = json.JSONDecoder()


class ModelOutputError(ValueError):
    """`problem`: one French sentence that tells the model what to mend."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def _storable(given: object) -> object:
    """Without NUL and halves of surrogate pairs, which a JSON escape can smuggle in and no database
    takes."""
    if not isinstance(given, str):
        return given
    return given.replace("\0", "").encode(errors="replace").decode()[:MAX_TEXT]


def _whole(given: object) -> object:
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _real(given: object) -> object:
    return float(given) if type(given) is int and abs(given) <= _LARGEST else given


Text = Annotated[str, BeforeValidator(_storable)]
Whole = Annotated[StrictInt, Field(ge=-_LARGEST, le=_LARGEST), BeforeValidator(_whole)]
NonNegative = Annotated[StrictInt, Field(ge=0, le=_LARGEST), BeforeValidator(_whole)]
Seconds = Annotated[
    StrictFloat, Field(ge=0, le=_LARGEST, allow_inf_nan=False), BeforeValidator(_real)
]
Flag = StrictBool


class ModelOutput(BaseModel):
    """Unknown fields are ignored: a provider without strict schemas lets some through."""

    model_config = ConfigDict(extra="ignore", frozen=True)


OutputModel = TypeVar("OutputModel", bound=ModelOutput)


def parse_model_output(model: type[OutputModel], text: str) -> OutputModel:
    """The object in the model's text, whatever surrounds it; WrittenError when there is none that
    fits.

    Of several objects, the last one that fits counts: a model corrects its drafts.
    """
    found = _objects(text)
    for given in reversed(found):
        with suppress(ValidationError):
            return model.model_validate(given)
    if not found:
        raise ModelOutputError(_NO_JSON)
    try:
        return model.model_validate(found[-1])
    except ValidationError as error:
        raise ModelOutputError(_complaints(error)) from None


def _objects(text: str) -> list[dict[str, object]]:
    """The JSON objects in the text, in their order: the whole text, or what reasoning, prose and
    code fences leave. One missing brace at the end is added."""
    whole = text.replace("\0", "").strip()
    read = _loaded(whole)
    if read is None:
        said = _without_reasoning(whole)
        return _scanned(said) or _closed(said)
    if not isinstance(read, dict):
        raise ModelOutputError("La réponse doit être un objet JSON, pas une autre valeur.")
    return [cast("dict[str, object]", read)]


def _without_reasoning(text: str) -> str:
    """Models that reason aloud do so in tags before the answer. Some servers drop the opening
    tag."""
    return text[max((end.end() for end in _REASONED.finditer(text)), default=0) :]


def _scanned(text: str) -> list[dict[str, object]]:
    """Objects that stand in prose or fences. Inside an object that cannot be read, none is looked
    for."""
    found: list[dict[str, object]] = []
    place = 0
    for _ in range(_MOST_BRACES):
        begin = text.find("{", place)
        if begin < 0:
            break
        try:
            read, place = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError):
            if _OBJECT.match(text, begin):
                break
            place = begin + 1
        else:
            found.append(read)
    return found


def _closed(text: str) -> list[dict[str, object]]:
    begin = text.find("{")
    read = _loaded(text[begin:].removesuffix("```").strip() + "}") if begin >= 0 else None
    return [cast("dict[str, object]", read)] if isinstance(read, dict) else []


def _loaded(text: str) -> object:
    """None when it cannot be read: broken, nested too deep, or with a number of thousands of
    digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


_MESSAGES = {
    "missing": "est obligatoire",
    "bool_type": "doit être true ou false",
    "string_type": "doit être un texte",
    "tuple_type": "doit être une liste",
    "model_type": "doit être un objet",
    "int_type": "doit être un nombre entier",
    "float_type": "doit être un nombre",
    "finite_number": "doit être un nombre fini",
    "enum": "doit être une des valeurs permises : {expected}",
    "literal_error": "doit être une des valeurs permises : {expected}",
    "greater_than_equal": "doit être au moins {ge}",
    "less_than_equal": "doit être au plus {le}",
    "too_short": "doit avoir au moins {min_length} élément(s)",
    "too_long": "doit avoir au plus {max_length} éléments",
}


def _complaints(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    payload: list[str] = []
    for problem in problems[:_MOST_COMPLAINTS]:
        why = _MESSAGES.get(problem["type"], "n'est pas valide").format(**problem.get("ctx", {}))
        payload.append(f"{_path(problem['loc'])} {why}".replace("' or '", "' ou '"))
    more = len(problems) - len(payload)
    return "; ".join(payload) + (f"; et {more} autre(s) faute(s)" if more else "") + "."


def _path(location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


JsonSchema = Mapping[str, object]
_Graded = Literal["EXCELLENT", "BON", "ACCEPTABLE", "INSUFFISANT", "REJET"]


class InvalidAnswerError(ModelOutputError):
    """The answer breaks the schema."""


def _object(properties: JsonSchema) -> JsonSchema:
    """Every property is required: the strict mode of providers wants it so."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


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

_CITATION = _object(
    {
        "texte": _text("Passage copié mot pour mot d'un seul segment"),
        "minutage": _text("Début du passage, MM:SS"),
        "minutage_secondes": {
            "type": "number",
            "description": "Début du passage en secondes, au moins 0",
        },
        "speaker": _text("Locuteur, comme dans la transcription"),
        "recording_index": _integer("Index de l'enregistrement, à partir de 0"),
        "chunk_index": _integer("Index du segment dans l'enregistrement, à partir de 0"),
        "recording_date": _text("Date de l'enregistrement"),
        "recording_time": _text("Heure de l'enregistrement"),
        "recording_url": _text("Adresse de l'enregistrement, N/A si elle n'est pas donnée"),
    }
)
_POINT = _object(
    {
        "point": _text("Le point de contrôle, recopié à l'identique"),
        "statut": _one_of(*(statut.value for statut in Statut)),
        "commentaire": _text("Ce qui justifie le statut"),
        "citations": _list_of(_CITATION),
        "minutages": _MINUTAGES,
        "erreur_transcription_notee": _FLAG,
        "variation_phonetique_utilisee": {
            "type": ["string", "null"],
            "description": "La variante entendue, ou null",
        },
    }
)
ANSWER_SCHEMA = AnswerSchema(
    "audit_step",
    _object(
        {
            "traite": _FLAG,
            "conforme": _one_of(*(conforme.value for conforme in Conforme)),
            "minutages": _MINUTAGES,
            "score": _integer("Points obtenus, de 0 au poids de l'étape"),
            "points_controle": _list_of(_POINT),
            "mots_cles_trouves": _list_of({"type": "string"}),
            "commentaire_global": _text("Bilan de l'étape"),
            "niveau_conformite": _one_of(*get_args(_Graded)),
            "erreurs_transcription_tolerees": _integer(
                "Nombre d'erreurs de transcription tolérées, au moins 0"
            ),
        }
    ),
)


class _Citation(ModelOutput):
    texte: Text
    minutage: Text
    minutage_secondes: Seconds
    speaker: Text
    recording_index: Whole
    chunk_index: Whole
    # We know these better, so that an answer without them is as good.
    recording_date: Text = UNKNOWN
    recording_time: Text = UNKNOWN
    recording_url: Text = UNKNOWN


class _Point(ModelOutput):
    point: Text
    statut: Statut
    commentaire: Text
    citations: tuple[_Citation, ...]
    minutages: tuple[Text, ...]
    erreur_transcription_notee: Flag
    variation_phonetique_utilisee: Text | None

    def found(self) -> ControlPoint:
        citations = tuple(Citation(**citation.model_dump()) for citation in self.citations)
        return ControlPoint(**self.model_dump(exclude={"citations"}), citations=citations)


class _Answer(ModelOutput):
    traite: Flag
    conforme: Conforme
    minutages: tuple[Text, ...]
    score: NonNegative
    points_controle: tuple[_Point, ...]
    mots_cles_trouves: tuple[Text, ...]
    commentaire_global: Text
    niveau_conformite: _Graded
    erreurs_transcription_tolerees: NonNegative

    def found(self) -> StepFinding:
        return StepFinding(
            traite=self.traite,
            conforme=self.conforme,
            score=self.score,
            niveau_conformite=Niveau(self.niveau_conformite),
            points=tuple(point.found() for point in self.points_controle),
            commentaire_global=self.commentaire_global,
            minutages=self.minutages,
            mots_cles_trouves=self.mots_cles_trouves,
            erreurs_transcription_tolerees=self.erreurs_transcription_tolerees,
        )


def parse_answer(content: str) -> StepFinding:
    """What the model found, as it says; BadAnswerError when the answer breaks the schema."""
    try:
        return parse_model_output(_Answer, content).found()
    except ModelOutputError as error:
        raise InvalidAnswerError(error.problem) from None


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
# Without "un", which is an article more often.
_NUMBERS = {
    *(
        "deux",
        "trois",
        "quatre",
        "cinq",
        "six",
        "sept",
        "huit",
        "neuf",
        "dix",
        "onze",
        "douze",
        "treize",
        "quatorze",
    ),
    *(
        "quinze",
        "seize",
        "vingt",
        "vingts",
        "trente",
        "quarante",
        "cinquante",
        "soixante",
        "cent",
        "cents",
        "mille",
    ),
}


def numbers_and_negations(text: str) -> tuple[list[str], list[str]]:
    """Of a normalised text: its numbers in their order, and its negations in that of the
    alphabet."""
    message = text.split()
    numbers = [
        number
        for word in message
        for number in ([word] if word in _NUMBERS else re.findall(r"\d+", word))
    ]
    return numbers, sorted(_NEGATIONS[word] for word in message if word in _NEGATIONS)


NOT_DEALT_WITH = "Non traité par le modèle."

_ALIKE = 0.85
_FEWEST_WITHIN = 2
_NUMBERING = re.compile(
    r"\s*(?:[-*•]|(?:point\s+(?:de\s+contr[oô]le\s+)?)?\(?\d+(?:\.\d+)*\s*[.):–-])\s+",
    re.IGNORECASE,
)

# What is not applicable leaves the ratio without any proof, so it is the mildest.
_FROM_STRICT = (Statut.ABSENT, Statut.PARTIEL, Statut.PRESENT, Statut.NON_APPLICABLE)


@dataclass(frozen=True)
class Reconciled:
    """`missing` of the configured points were not returned; `unknown` of the returned ones were
    dropped."""

    finding: StepFinding
    missing: int
    unknown: int


def reconcile(finding: StepFinding, configured: tuple[str, ...]) -> Reconciled:
    """Every configured point exactly once, in its order and with its text. Of several answers to
    one point the one in its own words stays, among equals the strictest, among those the first; the
    others are dropped."""
    found: dict[int, ControlPoint] = {}
    left: Sequence[ControlPoint] = finding.points
    for key in (str.strip, normalise, _unnumbered):
        if not left:
            break
        equal, left = _equal(configured, found, left, key)
        found |= equal
    found |= _alike({slot: text for slot, text in enumerate(configured) if slot not in found}, left)
    points = tuple(
        replace(found[slot], point=text) if slot in found else _missing(text)
        for slot, text in enumerate(configured)
    )
    return Reconciled(
        replace(finding, points=points),
        len(configured) - len(found),
        len(finding.points) - len(found),
    )


def _missing(text: str) -> ControlPoint:
    return ControlPoint(point=text, statut=Statut.ABSENT, commentaire=NOT_DEALT_WITH)


def _unnumbered(text: str) -> str:
    return normalise(_NUMBERING.sub("", text, count=1) if _NUMBERING.match(text) else text)


def _strictness(point: ControlPoint) -> int:
    return _FROM_STRICT.index(point.statut)


def _equal(
    configured: tuple[str, ...],
    found: Mapping[int, ControlPoint],
    left: Sequence[ControlPoint],
    key: Callable[[str], str],
) -> tuple[dict[int, ControlPoint], Sequence[ControlPoint]]:
    """What matches by this key, and what has yet to be matched. Duplicates are in neither."""
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
        equal.update(zip(free, _strictest(points, len(free)), strict=False))
    return equal, rest


def _strictest(points: Sequence[ControlPoint], count: int) -> list[ControlPoint]:
    """So many of them, in the order they came in."""
    chosen = sorted(range(len(points)), key=lambda at: _strictness(points[at]))[:count]
    return [points[at] for at in sorted(chosen)]


def _alike(slots: Mapping[int, str], left: Sequence[ControlPoint]) -> dict[int, ControlPoint]:
    """The best pairs first."""
    asked = {slot: _unnumbered(text) for slot, text in slots.items()}
    answered = [_unnumbered(point.point) for point in left]
    likeness = {
        (slot, at): _likeness(one, two)
        for slot, one in asked.items()
        for at, two in enumerate(answered)
    }
    clear = [pair for pair, value in likeness.items() if value > 0]
    clear.sort(key=lambda pair: (-likeness[pair], _strictness(left[pair[1]]), pair))
    alike: dict[int, ControlPoint] = {}
    used: set[int] = set()
    for slot, at in clear:
        if slot not in alike and at not in used:
            alike[slot] = left[at]
            used.add(at)
    return alike


def _likeness(one: str, two: str) -> float:
    """From 0, also for what is not clearly alike, to 1."""
    inner, outer = sorted((one, two), key=len)
    if not inner or numbers_and_negations(one) != numbers_and_negations(two):
        return 0.0
    if f" {inner} " in f" {outer} " and len(inner.split()) >= max(
        _FEWEST_WITHIN, len(outer.split()) / 2
    ):
        return 2 * len(inner) / (len(inner) + len(outer))
    # By itself difflib ignores the frequent letters of texts from 200 characters on, which are all
    # of them.
    matcher = SequenceMatcher(None, one, two, autojunk=False)
    if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < _ALIKE:
        return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= _ALIKE else 0.0
