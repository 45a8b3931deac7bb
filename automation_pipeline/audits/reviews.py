"""Reviews: a person overrules the finding of a step or a control point. Step, score and history change
in one transaction."""

from collections.abc import Mapping

from automation_pipeline.audits.events import audit_note
from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.queries.audits import get_changeable_audit, lock_audit
from automation_pipeline.audits.queries.documents import audit_step_document
from automation_pipeline.audits.queries.history import add_review
from automation_pipeline.audits.queries.steps import get_step, save_finding, write_summary
from automation_pipeline.audits.rules import reviews as review
from automation_pipeline.audits.rules.reviews import PointReview, StepReview, review_entry
from automation_pipeline.core.json_model import parse
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.workflow_logs import write_notes


def review_step(
    audit_id: int, position: int, given: Mapping[str, object], *, database: Database
) -> dict[str, object]:
    """Apply a `StepReview` and return the step's document. Raises ConflictError unless the audit is
    completed."""
    change = parse(StepReview, given, review.INVALID_REVIEW)
    location = StepLocation(audit_id, position)
    with database.transaction() as session:
        lock_audit(session, audit_id)
        found = get_changeable_audit(session, audit_id)
        stored, now = get_step(session, location), database_time(session)
        after = review.apply_step_review(stored.finding, stored.weight, change)
        save_finding(session, audit_id, position, after, stored.usage)
        add_review(session, location, review_entry(stored.finding, after, change), now)
        compliance = write_summary(session, audit_id, now)
        message = (
            f"REVIEW: step {position} by {change.reviewer or 'somebody'}: {after.conforme}, {after.score} points; the "
            f"audit is {compliance.niveau}, {compliance.score_percentage} %"
        )
        write_notes(session, audit_note(found.summary, message))
        return audit_step_document(session, location)


def review_control_point(
    audit_id: int, position: int, index: int, given: Mapping[str, object], *, database: Database
) -> dict[str, object]:
    """Apply a `PointReview` and return the step's document. Raises ConflictError unless the audit is
    completed."""
    change = parse(PointReview, given, review.INVALID_REVIEW)
    location = StepLocation(audit_id, position, index)
    with database.transaction() as session:
        lock_audit(session, audit_id)
        found = get_changeable_audit(session, audit_id)
        stored, now = get_step(session, location), database_time(session)
        after = review.apply_control_point_review(stored.finding, stored.weight, index, change)
        save_finding(session, audit_id, position, after, stored.usage)
        add_review(session, location, review_entry(stored.finding, after, change, index), now)
        compliance = write_summary(session, audit_id, now)
        message = (
            f"REVIEW: control point {index} of step {position} by {change.reviewer or 'somebody'}: "
            f"{after.points[index - 1].statut}, the step {after.score} points; the audit is {compliance.niveau}, "
            f"{compliance.score_percentage} %"
        )
        write_notes(session, audit_note(found.summary, message))
        return audit_step_document(session, location)
