"""A project's dead letters, counted, with what is to be done about them. They stay where they are."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.events import Event
from automation_pipeline.pricing.domain.dead_letters import DeadLetterReport, drained
from automation_pipeline.pricing.domain.pricing_rule import TENANT
from automation_pipeline.pricing.store.dead_letters import dead_letters, tallies_of
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue

MOST_ENTRIES = 1000


def report_dead_letters(
    project_id: str, *, database: Database, clock: Clock, is_told: bool = False
) -> DeadLetterReport:
    """The oldest are listed, all are counted. `is_told`: the outside hears of it too, without the list."""
    now = clock.now()
    with database.reading() as session:
        tallies = tallies_of(session, project_id, now=now)
        letters = dead_letters(session, project_id, now=now, limit=MOST_ENTRIES)
    told = drained(project_id, tallies, letters)
    if is_told:
        key = f"dlq:{project_id}:{round(now.timestamp() * 1000)}"
        payload = told.model_dump(mode="json", by_alias=True, exclude={"entries"})
        name, aggregate = "automation.dlq.report", f"project-{project_id}"
        with database.transaction() as session:
            enqueue(session, [Event(TENANT, key, name, "pricing", aggregate, now, payload)])
    return told
