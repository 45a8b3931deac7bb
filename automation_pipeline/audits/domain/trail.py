"""The trails of a step: what people and reruns made of it, oldest first, in the words of the result document."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from automation_pipeline.audits.domain.findings import StepFinding
from automation_pipeline.audits.domain.review import PointReview, StepReview

Document = Mapping[str, object]
STEP_FIELDS = ("traite", "conforme", "score", "niveau_conformite")
POINT_FIELDS = ("statut", "commentaire")


@dataclass(frozen=True)
class Trail:
    human_review: list[Document] = field(default_factory=list[Document])
    rerun_history: list[Document] = field(default_factory=list[Document])


@dataclass(frozen=True, kw_only=True)
class ReviewEntry:
    """What a review found and what it left; `index` from 1 and `point`, its text, where it was of a control point."""

    previous: Document
    override: Document
    reviewer: str | None
    reason: str | None
    index: int | None = None
    point: str | None = None


def review_entry(
    before: StepFinding, after: StepFinding, change: StepReview | PointReview, index: int | None = None
) -> ReviewEntry:
    point = None if index is None else (before.points[index - 1], after.points[index - 1])
    old, new = point or (before, after)
    names = POINT_FIELDS if point else STEP_FIELDS
    return ReviewEntry(
        previous=_said(old, names),
        override=_said(new, names),
        reviewer=change.reviewer,
        reason=change.reason,
        index=index,
        point=point[0].point if point else None,
    )


def _said(of: object, names: tuple[str, ...]) -> Document:
    return {name: getattr(of, name) for name in names}
