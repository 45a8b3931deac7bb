"""Functions for concurrent processes in tests of audits."""

from automation_pipeline.audits.configs import get_config
from automation_pipeline.audits.models.audits import FicheAuditRequest
from automation_pipeline.audits.queries.audits import start_audits as begin
from automation_pipeline.audits.requests import end_item
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import database_time


def start_audits(
    database_url: str, fiche_id: str, config_id: int, tracking_ids: list[str]
) -> list[int]:
    database = Database(database_url)
    started: list[int] = []
    for tracking_id in tracking_ids:
        request = FicheAuditRequest(
            tracking_id=tracking_id, fiche_id=fiche_id, audit_config_id=config_id
        )
        with database.transaction() as session:
            config = get_config(session, config_id).config
            found = begin(session, [(request, config)], database_time(session))
            started.append(found[tracking_id].summary.audit_id)
    database.dispose()
    return started


def end_items(database_url: str, tracking_ids: list[str]) -> int:
    """Return how many of these ends completed the batch."""
    database, last = Database(database_url), 0
    for tracking_id in tracking_ids:
        with database.transaction() as session:
            batch = end_item(session, tracking_id, None)
            last += batch is not None and batch.completed_at is not None
    database.dispose()
    return last
