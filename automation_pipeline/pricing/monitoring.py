"""Dead letters: report, retry, acknowledge."""

from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError, PermanentError, sentence_of
from automation_pipeline.core.events import Event
from automation_pipeline.pricing.models.history import DeadLetterReport
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import RetriedRuns
from automation_pipeline.pricing.queries.monitoring import (
    acknowledged_among,
    dead_letter_tallies,
    dead_letters,
    dead_letters_by_run,
    mark_acknowledged,
)
from automation_pipeline.pricing.rules.monitoring import dead_letter_report
from automation_pipeline.pricing.runs import retry_run
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue

MAX_ENTRIES = 1000


def report_dead_letters(project_id: str, *, database: Database, clock: Clock) -> DeadLetterReport:
    """The numbers are those of all dead letters, the entries the oldest ones."""
    now = clock.now()
    with database.reading() as session:
        tallies = dead_letter_tallies(session, project_id, now)
        letters = dead_letters(session, project_id, now=now, limit=MAX_ENTRIES)
    return dead_letter_report(project_id, tallies, letters)


def retry_dead_letters(
    project_id: str, *, database: Database, clock: Clock, actor: str, force: bool = False
) -> RetriedRuns:
    """`force` also retries targets that need a fixed cause. A run that cannot be retried now is skipped."""
    report = report_dead_letters(project_id, database=database, clock=clock)
    now = clock.now()
    payload = report.model_dump(mode="json", by_alias=True, exclude={"entries"})
    key, aggregate = f"dlq:{project_id}:{round(now.timestamp() * 1000)}", f"project-{project_id}"
    event = Event(TENANT, key, "automation.dlq.report", "pricing", aggregate, now, payload)
    with database.transaction() as session:
        enqueue(session, [event])
        by_run = dead_letters_by_run(session, project_id, retryable_only=not force, now=now)
    retried: list[int] = []
    skipped: dict[int, str] = {}
    for run_id, targets in by_run.items():
        try:
            retry_run(
                run_id, database=database, clock=clock, actor=actor, target_ids=targets, force=force
            )
        except PermanentError as refusal:
            skipped[run_id] = sentence_of(refusal)
        else:
            retried.append(run_id)
    return RetriedRuns(tuple(retried), skipped)


def acknowledge_dead_letters(
    project_id: str,
    target_ids: Sequence[int] | None,
    *,
    database: Database,
    clock: Clock,
    actor: str,
) -> int:
    """Acknowledge all dead letters of the project, or the given ones, and return how many are new.
    InvalidInputError, without any change, if a given target is not a dead letter of the project.
    Safe to repeat."""
    with database.transaction() as session:
        marked = mark_acknowledged(session, project_id, target_ids, actor, clock.now())
        unknown = set(target_ids or ()) - set(marked)
        unknown -= set(acknowledged_among(session, project_id, unknown))
        if unknown:
            reason = f"is not a dead letter of project {project_id}"
            faults = tuple(("targetIds", f"{target_id} {reason}") for target_id in sorted(unknown))
            raise InvalidInputError("These targets cannot be acknowledged.", faults)
        return len(marked)
