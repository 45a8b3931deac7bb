"""What becomes of a stored step when a person overrules it, or one of its control points is judged again. Unlike gating
this may raise a score."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from automation_pipeline.audits.domain.derivation import derived, minutages_of
from automation_pipeline.audits.domain.findings import Conforme, ControlPoint, Niveau, Statut, StepFinding
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import JsonModel

COMPLAINT = "The review cannot be accepted"


def _decided(niveau: Niveau | None) -> Niveau | None:
    if niveau is Niveau.PENDING:
        raise ValueError("cannot be PENDING after a review")
    return niveau


class _Review(JsonModel):
    reviewer: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    reason: Annotated[str | None, Field(min_length=1, max_length=5000)] = None


class StepReview(_Review):
    """What is not given stays as it was."""

    conforme: Conforme
    traite: bool | None = None
    score: Annotated[int | None, Field(ge=0)] = None
    niveau_conformite: Annotated[Niveau | None, AfterValidator(_decided)] = None


class PointReview(_Review):
    """What is not given stays as it was."""

    statut: Statut | None = None
    commentaire: Annotated[str | None, Field(max_length=20_000)] = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.statut is None and self.commentaire is None:
            raise ValueError("A review of a control point gives a statut or a commentaire.")
        return self


def review_step(finding: StepFinding, weight: int, change: StepReview) -> StepFinding:
    """InvalidInputError for a score above the step's weight."""
    if change.score is not None and change.score > weight:
        complaint = f"must not be above the weight of the step, {weight}"
        raise InvalidInputError(COMPLAINT, (("score", complaint),))
    return replace(
        finding,
        conforme=change.conforme,
        traite=finding.traite if change.traite is None else change.traite,
        score=finding.score if change.score is None else change.score,
        niveau_conformite=change.niveau_conformite or finding.niveau_conformite,
    )


def review_control_point(finding: StepFinding, weight: int, index: int, change: PointReview) -> StepFinding:
    """`index` from 1, else NotFoundError. Citations stay, whatever the statut: they are what was overruled. A comment
    alone does not score the step anew: what people said of the whole step holds."""
    point = _point(finding, index)
    if change.commentaire is not None:
        point = replace(point, commentaire=change.commentaire)
    if change.statut is None:
        return replace(finding, points=_with(finding, index, point))
    return replace_control_point(finding, weight, index, replace(point, statut=change.statut))


def replace_control_point(finding: StepFinding, weight: int, index: int, point: ControlPoint) -> StepFinding:
    """`index` from 1, else NotFoundError. The step is scored anew from all its points."""
    _point(finding, index)
    return _rescored(finding, _with(finding, index, point), weight)


def _point(finding: StepFinding, index: int) -> ControlPoint:
    if not 1 <= index <= len(finding.points):
        raise NotFoundError(f"There is no control point {index}: the step has {len(finding.points)}.")
    return finding.points[index - 1]


def _with(finding: StepFinding, index: int, point: ControlPoint) -> tuple[ControlPoint, ...]:
    return (*finding.points[: index - 1], point, *finding.points[index:])


def _rescored(finding: StepFinding, points: Sequence[ControlPoint], weight: int) -> StepFinding:
    result = derived(points, weight)
    return replace(
        finding,
        points=tuple(points),
        score=result.score,
        conforme=result.conforme,
        niveau_conformite=result.niveau,
        minutages=minutages_of(points),
    )
