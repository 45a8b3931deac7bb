"""Reviews: a person overrules a step or a control point; step, score and history change in one
transaction."""

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
    """The step's document then. ConflictError unless the audit is completed. `given` is what
    `StepReview` reads."""
    change, place = (
        parse(StepReview, given, review.INVALID_REVIEW),
        StepLocation(audit_id, position),
    )
    with database.transaction() as session:
        lock_audit(session, audit_id)
        found, stored, now = (
            get_changeable_audit(session, audit_id),
            get_step(session, place),
            database_time(session),
        )
        after = review.apply_step_review(stored.finding, stored.weight, change)
        save_finding(session, audit_id, position, after, stored.usage)
        add_review(session, place, review_entry(stored.finding, after, change), now)
        compliance = write_summary(session, audit_id, now)
        message = (
            f"REVIEW: step {position} by {change.reviewer or 'somebody'}: {after.conforme}, {after.score} points; the "
            f"audit is {compliance.niveau}, {compliance.score_percentage} %"
        )
        write_notes(session, audit_note(found.summary, message))
        return audit_step_document(session, place)


def review_control_point(
    audit_id: int, position: int, index: int, given: Mapping[str, object], *, database: Database
) -> dict[str, object]:
    """The step's document then. ConflictError unless the audit is completed. `given` is what
    `PointReview` reads."""
    change, place = (
        parse(PointReview, given, review.INVALID_REVIEW),
        StepLocation(audit_id, position, index),
    )
    with database.transaction() as session:
        lock_audit(session, audit_id)
        found, stored, now = (
            get_changeable_audit(session, audit_id),
            get_step(session, place),
            database_time(session),
        )
        after = review.apply_control_point_review(stored.finding, stored.weight, index, change)
        save_finding(session, audit_id, position, after, stored.usage)
        add_review(session, place, review_entry(stored.finding, after, change, index), now)
        compliance = write_summary(session, audit_id, now)
        message = (
            f"REVIEW: control point {index} of step {position} by {change.reviewer or 'somebody'}: "
            f"{after.points[index - 1].statut}, the step {after.score} points; the audit is {compliance.niveau}, "
            f"{compliance.score_percentage} %"
        )
        write_notes(session, audit_note(found.summary, message))
        return audit_step_document(session, place)
