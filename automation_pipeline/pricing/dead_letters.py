"""Dead letters: report, retry, acknowledge."""

from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError, PermanentError, sentence_of
from automation_pipeline.core.events import Event
from automation_pipeline.pricing.models.history import DeadLetterReport
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import RetriedRuns
from automation_pipeline.pricing.queries.dead_letters import (
    acknowledged_among,
    dead_letters,
    letters_by_run,
    mark_acknowledged,
    tallies_of,
)
from automation_pipeline.pricing.rules.monitoring import dead_letter_report
from automation_pipeline.pricing.runs import retry_run
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue

MAX_ENTRIES = 1000


def report_dead_letters(
    project_id: str, *, database: Database, clock: Clock, is_told: bool = False
) -> DeadLetterReport:
    """The oldest are listed, all are counted. `is_told`: the outside hears of it too, without the
    list."""
    now = clock.now()
    with database.reading() as session:
        tallies = tallies_of(session, project_id, now=now)
        letters = dead_letters(session, project_id, now=now, limit=MAX_ENTRIES)
    told = dead_letter_report(project_id, tallies, letters)
    if is_told:
        key = f"dlq:{project_id}:{round(now.timestamp() * 1000)}"
        payload = told.model_dump(mode="json", by_alias=True, exclude={"entries"})
        name, aggregate = "automation.dlq.report", f"project-{project_id}"
        with database.transaction() as session:
            enqueue(session, [Event(TENANT, key, name, "pricing", aggregate, now, payload)])
    return told


def retry_dead_letters(
    project_id: str, *, database: Database, clock: Clock, actor: str, force: bool = False
) -> RetriedRuns:
    """With `force` the hopeless too, whose cause was removed. A run that cannot be retried now is
    skipped, and said."""
    report_dead_letters(project_id, database=database, clock=clock, is_told=True)
    with database.reading() as session:
        by_run = letters_by_run(session, project_id, retryable_only=not force, now=clock.now())
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
    """How many more. All of the project's; or those given, and none of them if one is no dead
    letter of the project. Safe to repeat."""
    with database.transaction() as session:
        marked = mark_acknowledged(session, project_id, target_ids, actor, clock.now())
        strangers = set(target_ids or ()) - set(marked)
        strangers -= set(acknowledged_among(session, project_id, strangers))
        if strangers:
            words = f"is not a dead letter of project {project_id}"
            faults = tuple(("targetIds", f"{target_id} {words}") for target_id in sorted(strangers))
            raise InvalidInputError("These targets cannot be acknowledged.", faults)
        return len(marked)
