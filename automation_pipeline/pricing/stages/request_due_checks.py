"""Ask for the reconciliations whose time has come."""

from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.store.checks import ask_for_due_checks
from automation_pipeline.storage.database import Database


def request_due_checks(*, database: Database, clock: Clock) -> Sequence[str]:
    """Keys of the requests. Safe beside another copy of itself."""
    with database.transaction() as session:
        return ask_for_due_checks(session, clock.now())
