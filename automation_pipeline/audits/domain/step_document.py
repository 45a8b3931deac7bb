"""A stored step as people read it: the form that it has in the result document."""

from collections.abc import Mapping
from dataclasses import asdict

from pydantic.alias_generators import to_camel

from automation_pipeline.audits.domain.findings import ControlPoint
from automation_pipeline.audits.domain.step_result import MissingStep, StoredStep
from automation_pipeline.audits.domain.trail import Trail

Document = Mapping[str, object]

# What an unjudged step lacks, as documents name it.
_NO_VERDICT: Document = {
    "traite": False,
    "conforme": None,
    "score": None,
    "niveau_conformite": None,
    "commentaire_global": "",
    "minutages": [],
    "mots_cles_trouves": [],
    "erreurs_transcription_tolerees": 0,
}


def step_document(step: StoredStep, trail: Trail) -> dict[str, object]:
    finding = step.finding
    return {
        "traite": finding.traite,
        "conforme": finding.conforme.value,
        "score": finding.score,
        "niveau_conformite": finding.niveau_conformite.value,
        "commentaire_global": finding.commentaire_global,
        "minutages": list(finding.minutages),
        "mots_cles_trouves": list(finding.mots_cles_trouves),
        "erreurs_transcription_tolerees": finding.erreurs_transcription_tolerees,
        "error": None,
        "points_controle": [point_document(point) for point in finding.points],
        **_about(step),
        "human_review": trail.human_review,
        "rerun_history": trail.rerun_history,
    }


def missing_step_document(step: MissingStep) -> dict[str, object]:
    """In the same form: `error` is why the model could not judge the step, and there is no verdict."""
    nothing: Document = {"points_controle": [], "human_review": [], "rerun_history": []}
    return {**_NO_VERDICT, "error": step.error, **_about(step), **nothing}


def missing_step_summary(step: MissingStep) -> dict[str, object]:
    no_verdict = {to_camel(name): value for name, value in _NO_VERDICT.items()}
    return {**_row(step), **no_verdict, "totalCitations": 0, "error": step.error}


def _about(step: StoredStep | MissingStep) -> dict[str, object]:
    return {
        "step_metadata": {
            "position": step.position,
            "name": step.name,
            "severity": step.severity,
            "is_critical": step.is_critical,
            "weight": step.weight,
        },
        "usage": {
            "prompt_tokens": step.usage.prompt_tokens,
            "completion_tokens": step.usage.completion_tokens,
            "total_tokens": step.usage.total_tokens,
        },
    }


def _row(step: StoredStep | MissingStep) -> dict[str, object]:
    return {
        "stepPosition": step.position,
        "stepName": step.name,
        "severityLevel": step.severity,
        "isCritical": step.is_critical,
        "weight": step.weight,
        "totalTokens": step.usage.total_tokens,
    }


def step_summary(step: StoredStep) -> dict[str, object]:
    """The step alone, as its row: without control points, quotations and trails."""
    finding = step.finding
    return {
        **_row(step),
        "traite": finding.traite,
        "conforme": finding.conforme.value,
        "score": finding.score,
        "niveauConformite": finding.niveau_conformite.value,
        "commentaireGlobal": finding.commentaire_global,
        "motsClesTrouves": list(finding.mots_cles_trouves),
        "minutages": list(finding.minutages),
        "erreursTranscriptionTolerees": finding.erreurs_transcription_tolerees,
        "totalCitations": finding.citations,
        "error": None,
    }


def point_document(point: ControlPoint) -> Document:
    return {
        "point": point.point,
        "statut": point.statut.value,
        "commentaire": point.commentaire,
        "minutages": list(point.minutages),
        "erreur_transcription_notee": point.erreur_transcription_notee,
        "variation_phonetique_utilisee": point.variation_phonetique_utilisee,
        "citations": [asdict(citation) for citation in point.citations],
    }
