"""Reviews and reruns: how they change a stored step, and the verdicts that their history keeps."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from automation_pipeline.audits.models.configs import AuditStep
from automation_pipeline.audits.models.findings import (
    Conforme,
    ControlPoint,
    Niveau,
    Statut,
    StepFinding,
)
from automation_pipeline.audits.rules.verdicts import derive_verdict, minutages_of
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import JsonModel, text_fault

INVALID_REVIEW = "The review cannot be accepted"
MAX_INSTRUCTIONS = 5_000


def _not_pending(niveau: Niveau | None) -> Niveau | None:
    if niveau is Niveau.PENDING:
        raise ValueError("cannot be PENDING after a review")
    return niveau


class _Review(JsonModel):
    reviewer: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    reason: Annotated[str | None, Field(min_length=1, max_length=5000)] = None


class StepReview(_Review):
    """Omitted fields stay unchanged."""

    conforme: Conforme
    traite: bool | None = None
    score: Annotated[int | None, Field(ge=0)] = None
    niveau_conformite: Annotated[Niveau | None, AfterValidator(_not_pending)] = None


class PointReview(_Review):
    """Omitted fields stay unchanged."""

    statut: Statut | None = None
    commentaire: Annotated[str | None, Field(max_length=20_000)] = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.statut is None and self.commentaire is None:
            raise ValueError("A review of a control point gives a statut or a commentaire.")
        return self


def apply_step_review(finding: StepFinding, weight: int, change: StepReview) -> StepFinding:
    """Raises InvalidInputError for a score above the step's weight."""
    if change.score is not None and change.score > weight:
        complaint = f"must not be above the weight of the step, {weight}"
        raise InvalidInputError(INVALID_REVIEW, (("score", complaint),))
    return replace(
        finding,
        conforme=change.conforme,
        traite=finding.traite if change.traite is None else change.traite,
        score=finding.score if change.score is None else change.score,
        niveau_conformite=change.niveau_conformite or finding.niveau_conformite,
    )


def apply_control_point_review(
    finding: StepFinding, weight: int, index: int, change: PointReview
) -> StepFinding:
    """Change the control point `index`, from 1, and keep its citations. A new statut scores the step again; a
    comment alone does not, so that a review of the whole step holds. Raises NotFoundError."""
    point = _point(finding, index)
    if change.commentaire is not None:
        point = replace(point, commentaire=change.commentaire)
    if change.statut is None:
        return replace(finding, points=_with(finding, index, point))
    return replace_control_point(finding, weight, index, replace(point, statut=change.statut))


def replace_control_point(
    finding: StepFinding, weight: int, index: int, point: ControlPoint
) -> StepFinding:
    """Replace the control point `index`, from 1, and score the step again from all its points. Raises
    NotFoundError."""
    _point(finding, index)
    points = _with(finding, index, point)
    verdict = derive_verdict(points, weight)
    return replace(
        finding,
        points=points,
        score=verdict.score,
        conforme=verdict.conforme,
        niveau_conformite=verdict.niveau,
        minutages=minutages_of(points),
    )


def _point(finding: StepFinding, index: int) -> ControlPoint:
    if not 1 <= index <= len(finding.points):
        raise NotFoundError(
            f"There is no control point {index}: the step has {len(finding.points)}."
        )
    return finding.points[index - 1]


def _with(finding: StepFinding, index: int, point: ControlPoint) -> tuple[ControlPoint, ...]:
    return (*finding.points[: index - 1], point, *finding.points[index:])


def validate_instructions(given: str | None) -> str | None:
    """Strip the instructions; None for blank ones. Raises InvalidInputError for texts that are too long or
    that no database can store."""
    text = (given or "").strip()
    problem = text_fault(text)
    if len(text) > MAX_INSTRUCTIONS:
        problem = f"must have at most {MAX_INSTRUCTIONS} characters"
    if problem:
        raise InvalidInputError("The rerun cannot be accepted", (("instructions", problem),))
    return text or None


def single_point_step(step: AuditStep, finding: StepFinding, index: int) -> tuple[AuditStep, str]:
    """The step with the control point `index`, from 1, alone, and the previous verdict on it."""
    point = finding.points[index - 1]
    return replace(step, control_points=(point.point,)), f"{point.statut} : {point.commentaire}"


def verdict_summary(finding: StepFinding, index: int | None) -> Mapping[str, object]:
    """What the history keeps of the step, or of its control point `index`."""
    if index is None:
        return {
            "score": finding.score,
            "conforme": finding.conforme,
            "total_citations": finding.citations,
        }
    point = finding.points[index - 1]
    return {
        "statut": point.statut,
        "commentaire": point.commentaire,
        "citations": len(point.citations),
        "step_score": finding.score,
        "step_conforme": finding.conforme,
    }
