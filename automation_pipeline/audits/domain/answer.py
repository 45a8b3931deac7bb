"""What the model must answer about a step, and how its answer is read."""

from collections.abc import Mapping
from typing import Literal, get_args

from automation_pipeline.audits.domain.chat import AnswerSchema
from automation_pipeline.audits.domain.findings import (
    UNKNOWN,
    Citation,
    Conforme,
    ControlPoint,
    Niveau,
    Statut,
    StepFinding,
)
from automation_pipeline.audits.domain.written_json import (
    Count,
    Flag,
    Seconds,
    Text,
    Whole,
    Written,
    WrittenError,
    read_json,
)

Schema = Mapping[str, object]
_Graded = Literal["EXCELLENT", "BON", "ACCEPTABLE", "INSUFFISANT", "REJET"]


class BadAnswerError(WrittenError):
    """The answer breaks the schema."""


def _object(properties: Schema) -> Schema:
    """Every property is required: the strict mode of providers wants it so."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _integer(description: str) -> Schema:
    return {"type": "integer", "description": description}


_FLAG: Schema = {"type": "boolean"}
_MINUTAGES = _list_of(_text("MM:SS"))

_CITATION = _object(
    {
        "texte": _text("Passage copié mot pour mot d'un seul segment"),
        "minutage": _text("Début du passage, MM:SS"),
        "minutage_secondes": {"type": "number", "description": "Début du passage en secondes, au moins 0"},
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
        "variation_phonetique_utilisee": {"type": ["string", "null"], "description": "La variante entendue, ou null"},
    }
)
ANSWER = AnswerSchema(
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
            "erreurs_transcription_tolerees": _integer("Nombre d'erreurs de transcription tolérées, au moins 0"),
        }
    ),
)


class _Citation(Written):
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


class _Point(Written):
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


class _Answer(Written):
    traite: Flag
    conforme: Conforme
    minutages: tuple[Text, ...]
    score: Count
    points_controle: tuple[_Point, ...]
    mots_cles_trouves: tuple[Text, ...]
    commentaire_global: Text
    niveau_conformite: _Graded
    erreurs_transcription_tolerees: Count

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


def read_answer(content: str) -> StepFinding:
    """What the model found, as it says; BadAnswerError when the answer breaks the schema."""
    try:
        return read_json(_Answer, content).found()
    except WrittenError as error:
        raise BadAnswerError(error.problem) from None
