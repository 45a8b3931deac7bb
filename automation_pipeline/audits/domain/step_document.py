"""A stored step as people read it: the form that it has in the result document."""

from collections.abc import Mapping
from dataclasses import asdict

from automation_pipeline.audits.domain.findings import ControlPoint
from automation_pipeline.audits.domain.step_result import StoredStep
from automation_pipeline.audits.domain.trail import Trail

Document = Mapping[str, object]


def step_document(step: StoredStep, trail: Trail) -> dict[str, object]:
    """`error` is why the model could not judge the step, if so."""
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
        "error": finding.error,
        "points_controle": [point_document(point) for point in finding.points],
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
        "human_review": trail.human_review,
        "rerun_history": trail.rerun_history,
    }


def step_summary(step: StoredStep) -> dict[str, object]:
    """The step alone, as its row: without control points, quotations and trails."""
    finding = step.finding
    return {
        "stepPosition": step.position,
        "stepName": step.name,
        "severityLevel": step.severity,
        "isCritical": step.is_critical,
        "weight": step.weight,
        "traite": finding.traite,
        "conforme": finding.conforme.value,
        "score": finding.score,
        "niveauConformite": finding.niveau_conformite.value,
        "commentaireGlobal": finding.commentaire_global,
        "motsClesTrouves": list(finding.mots_cles_trouves),
        "minutages": list(finding.minutages),
        "erreursTranscriptionTolerees": finding.erreurs_transcription_tolerees,
        "totalCitations": finding.citations,
        "totalTokens": step.usage.total_tokens,
        "error": finding.error,
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
