"""Creates schedules and runs in the database. A test passes only the fields that matter to it."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta

from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.automation.models.schedules import Schedule
from automation_pipeline.automation.runs import RunLaunch, open_run
from automation_pipeline.automation.schedules import create_schedule
from automation_pipeline.automation.selection import (
    SelectionOptions,
    select_fiches,
)
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.fiches.models.fiches import FicheSource
from automation_pipeline.storage.claims import DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.crm import FakeFicheSource

COOLDOWN = timedelta(minutes=5)


def make_schedule(
    database: Database, clock: Clock, fiche_ids: Iterable[str] = ("1", "2", "3"), **fields: object
) -> Schedule:
    selection = {"mode": "manual", "ficheIds": list(fiche_ids)}
    given = {"name": "Nightly", "scheduleType": "MANUAL", "ficheSelection": selection, **fields}
    return create_schedule(given, database=database, clock=clock)


def make_launch(schedule_id: int, dagster_run_id: str = "dagster-1", **fields: object) -> RunLaunch:
    given = {"dagster_root_run_id": dagster_run_id, "worker": "host:1", **fields}
    return RunLaunch(schedule_id=schedule_id, dagster_run_id=dagster_run_id, **given)  # type: ignore[arg-type]


def make_open_run(
    database: Database, clock: Clock, fiche_ids: Iterable[str] = ("1", "2", "3")
) -> RunAttempt:
    """Open a run, and select its fiches."""
    schedule = make_schedule(database, clock, fiche_ids)
    attempt = open_run(make_launch(schedule.id), database=database, clock=clock)
    run_selection(attempt, database, clock)
    return attempt


def run_selection(
    attempt: RunAttempt,
    database: Database,
    clock: Clock,
    source: FicheSource | None = None,
    *,
    processes: int = 1,
) -> Sequence[int]:
    """Select the fiches of the run; without `source`, from a CRM without sales."""
    selection = select_fiches(
        attempt,
        database=database,
        source=source or FakeFicheSource(),
        clock=clock,
        semaphore=Semaphore(DatabasePermits(database), "crm", 3, "me"),
        options=SelectionOptions(processes=processes, cooldown=COOLDOWN),
    )
    return asyncio.run(selection)
