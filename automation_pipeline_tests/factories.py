"""Stored things for tests, each with only what the test cares about said aloud."""

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


def a_schedule(
    database: Database, clock: Clock, fiche_ids: Iterable[str] = ("1", "2", "3"), **fields: object
) -> Schedule:
    selection = {"mode": "manual", "ficheIds": list(fiche_ids)}
    given = {"name": "Nightly", "scheduleType": "MANUAL", "ficheSelection": selection, **fields}
    return create_schedule(given, database=database, clock=clock)


def an_opening(schedule_id: int, dagster_run_id: str = "dagster-1", **fields: object) -> RunLaunch:
    given = {"dagster_root_run_id": dagster_run_id, "worker": "host:1", **fields}
    return RunLaunch(schedule_id=schedule_id, dagster_run_id=dagster_run_id, **given)  # type: ignore[arg-type]


def an_open_run(
    database: Database, clock: Clock, fiche_ids: Iterable[str] = ("1", "2", "3")
) -> RunAttempt:
    """A run whose first attempt has selected its fiches."""
    schedule = a_schedule(database, clock, fiche_ids)
    ticket = open_run(an_opening(schedule.id), database=database, clock=clock)
    selected(ticket, database, clock)
    return ticket


def selected(
    ticket: RunAttempt,
    database: Database,
    clock: Clock,
    source: FicheSource | None = None,
    *,
    processes: int = 1,
) -> Sequence[int]:
    """The selection, made by a CRM that knows of no sales unless one is given."""
    work = select_fiches(
        ticket,
        database=database,
        source=source or FakeFicheSource(),
        clock=clock,
        semaphore=Semaphore(DatabasePermits(database), "crm", 3, "me"),
        options=SelectionOptions(processes=processes, cooldown=COOLDOWN),
    )
    return asyncio.run(work)
