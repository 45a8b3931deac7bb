"""A person overrules a step: the step, the audit's score and the trail change together or not at all."""

from collections.abc import Mapping

from automation_pipeline.audits.domain import review
from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.domain.place import Place
from automation_pipeline.audits.domain.review import StepReview
from automation_pipeline.audits.domain.trail import review_entry
from automation_pipeline.audits.store.audits import changeable_audit, lock_audit
from automation_pipeline.audits.store.reading import audit_step_document
from automation_pipeline.audits.store.steps import get_step, save_finding
from automation_pipeline.audits.store.summaries import write_summary
from automation_pipeline.audits.store.trails import add_review
from automation_pipeline.core.json_model import parse
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.workflow_logs import write_notes


def review_step(audit_id: int, position: int, given: Mapping[str, object], *, database: Database) -> dict[str, object]:
    """The step's document then. ConflictError unless the audit is completed. `given` is what `StepReview` reads."""
    change, place = parse(StepReview, given, review.COMPLAINT), Place(audit_id, position)
    with database.transaction() as session:
        lock_audit(session, audit_id)
        found, stored, now = changeable_audit(session, audit_id), get_step(session, place), database_time(session)
        after = review.review_step(stored.finding, stored.weight, change)
        save_finding(session, audit_id, position, after, stored.usage)
        add_review(session, place, review_entry(stored.finding, after, change), now)
        compliance = write_summary(session, audit_id, now)
        words = (
            f"REVIEW: step {position} by {change.reviewer or 'somebody'}: {after.conforme}, {after.score} points; the "
            f"audit is {compliance.niveau}, {compliance.score_percentage} %"
        )
        write_notes(session, audit_note(found.standing, words))
        return audit_step_document(session, place)
