"""Reviews and reruns: how they change a stored step, and the history that they leave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from automation_pipeline.audits.models.audits import StepLocation, rerun_id
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


def apply_step_review(finding: StepFinding, weight: int, change: StepReview) -> StepFinding:
    """InvalidInputError for a score above the step's weight."""
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
    """`index` from 1, else NotFoundError. Citations stay, whatever the statut: they are what was
    overruled. A comment alone does not score the step anew: what people said of the whole step
    holds."""
    point = _point(finding, index)
    if change.commentaire is not None:
        point = replace(point, commentaire=change.commentaire)
    if change.statut is None:
        return replace(finding, points=_with(finding, index, point))
    return replace_control_point(finding, weight, index, replace(point, statut=change.statut))


def replace_control_point(
    finding: StepFinding, weight: int, index: int, point: ControlPoint
) -> StepFinding:
    """`index` from 1, else NotFoundError. The step is scored anew from all its points."""
    _point(finding, index)
    return _rescore(finding, _with(finding, index, point), weight)


def _point(finding: StepFinding, index: int) -> ControlPoint:
    if not 1 <= index <= len(finding.points):
        raise NotFoundError(
            f"There is no control point {index}: the step has {len(finding.points)}."
        )
    return finding.points[index - 1]


def _with(finding: StepFinding, index: int, point: ControlPoint) -> tuple[ControlPoint, ...]:
    return (*finding.points[: index - 1], point, *finding.points[index:])


def _rescore(finding: StepFinding, points: Sequence[ControlPoint], weight: int) -> StepFinding:
    result = derive_verdict(points, weight)
    return replace(
        finding,
        points=tuple(points),
        score=result.score,
        conforme=result.conforme,
        niveau_conformite=result.niveau,
        minutages=minutages_of(points),
    )


MAX_INSTRUCTIONS = 5_000


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """A wish to judge again. Repeating one by its `rerun_id` changes nothing."""

    rerun_id: str
    place: StepLocation
    instructions: str | None = None

    @property
    def event_id(self) -> str | None:
        """What the id was made of, if it was made by us."""
        place = self.place
        prefix = rerun_id(place.audit_id, place.position, place.point, "")
        return self.rerun_id.removeprefix(prefix) if self.rerun_id.startswith(prefix) else None


def validate_instructions(given: str | None) -> str | None:
    """None for blank ones; InvalidInputError for those that no model should have to read or no
    database can keep."""
    text = (given or "").strip()
    problem = text_fault(text)
    if len(text) > MAX_INSTRUCTIONS:
        problem = f"must have at most {MAX_INSTRUCTIONS} characters"
    if problem:
        raise InvalidInputError("The rerun cannot be accepted", (("instructions", problem),))
    return text or None


def single_point_step(step: AuditStep, finding: StepFinding, index: int) -> tuple[AuditStep, str]:
    """The step with nothing but this control point, and what was found about that before. `index`
    from 1."""
    point = finding.points[index - 1]
    return replace(step, control_points=(point.point,)), f"{point.statut} : {point.commentaire}"


def verdict_summary(finding: StepFinding, index: int | None) -> Mapping[str, object]:
    """What a trail keeps of a step, or of its control point `index`, before and after."""
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


Document = Mapping[str, object]
STEP_FIELDS = ("traite", "conforme", "score", "niveau_conformite")
POINT_FIELDS = ("statut", "commentaire")


@dataclass(frozen=True)
class StepHistory:
    human_review: list[Document] = field(default_factory=list[Document])
    rerun_history: list[Document] = field(default_factory=list[Document])


@dataclass(frozen=True, kw_only=True)
class ReviewEntry:
    """What a review found and what it left; `index` from 1 and `point`, its text, where it was of a
    control point."""

    previous: Document
    override: Document
    reviewer: str | None
    reason: str | None
    index: int | None = None
    point: str | None = None


def review_entry(
    before: StepFinding,
    after: StepFinding,
    change: StepReview | PointReview,
    index: int | None = None,
) -> ReviewEntry:
    point = None if index is None else (before.points[index - 1], after.points[index - 1])
    old, new = point or (before, after)
    names = POINT_FIELDS if point else STEP_FIELDS
    return ReviewEntry(
        previous=_verdict_fields(old, names),
        override=_verdict_fields(new, names),
        reviewer=change.reviewer,
        reason=change.reason,
        index=index,
        point=point[0].point if point else None,
    )


def _verdict_fields(of: object, names: tuple[str, ...]) -> Document:
    return {name: getattr(of, name) for name in names}
