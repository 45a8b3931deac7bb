"""A step, or one of its control points, judged again: what is asked then, and what of it is told beside the old."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from automation_pipeline.audits.domain.config import AuditStep
from automation_pipeline.audits.domain.findings import StepFinding
from automation_pipeline.audits.domain.place import Place
from automation_pipeline.audits.domain.requests import rerun_id
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import text_fault

LONGEST_INSTRUCTIONS = 5_000


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """A wish to judge again. Repeating one by its `rerun_id` changes nothing."""

    rerun_id: str
    place: Place
    instructions: str | None = None

    @property
    def event_id(self) -> str | None:
        """What the id was made of, if it was made by us."""
        place = self.place
        prefix = rerun_id(place.audit_id, place.position, place.point, "")
        return self.rerun_id.removeprefix(prefix) if self.rerun_id.startswith(prefix) else None


def checked_instructions(given: str | None) -> str | None:
    """None for blank ones; InvalidInputError for those that no model should have to read or no database can keep."""
    text = (given or "").strip()
    problem = text_fault(text)
    if len(text) > LONGEST_INSTRUCTIONS:
        problem = f"must have at most {LONGEST_INSTRUCTIONS} characters"
    if problem:
        raise InvalidInputError("The rerun cannot be accepted", (("instructions", problem),))
    return text or None


def only_point(step: AuditStep, finding: StepFinding, index: int) -> tuple[AuditStep, str]:
    """The step with nothing but this control point, and what was found about that before. `index` from 1."""
    point = finding.points[index - 1]
    return replace(step, control_points=(point.point,)), f"{point.statut} : {point.commentaire}"


def verdict_on(finding: StepFinding, index: int | None) -> Mapping[str, object]:
    """What a trail keeps of a step, or of its control point `index`, before and after."""
    if index is None:
        return {"score": finding.score, "conforme": finding.conforme, "total_citations": finding.citations}
    point = finding.points[index - 1]
    return {
        "statut": point.statut,
        "commentaire": point.commentaire,
        "citations": len(point.citations),
        "step_score": finding.score,
        "step_conforme": finding.conforme,
    }
