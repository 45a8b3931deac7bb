"""Backfills file each day once, within bounds; a preview says what a run would do, and writes
nothing."""

from datetime import date, timedelta

import pytest
from sqlalchemy import func, select

from automation_pipeline.automation.queries.runs import selection_of
from automation_pipeline.automation.schedules import (
    MAX_BACKFILL_DAYS,
    backfill_schedule,
    pause_schedule,
)
from automation_pipeline.automation.selection import preview_schedule
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    TransientError,
)
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.claims import DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.automation.bench import Bench
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule
from automation_pipeline_tests.fakes.crm import summary
from automation_pipeline_tests.waiting import run

SALES = {"mode": "date_range", "dateRange": "yesterday", "groupes": ["TEAM R1"], "maxFiches": 9}
TODAY = date(2026, 5, 4)
FIRST, LAST = TODAY - timedelta(days=2), TODAY


def test_a_backfill_files_one_run_per_day_and_each_day_once(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock, ficheSelection=SALES)
    collaborators = {"database": database, "clock": clock}
    dry = backfill_schedule(schedule.id, FIRST, LAST, **collaborators, dry_run=True)
    assert [(day.filed, day.run_id) for day in dry.days] == [(True, None)] * 3
    first = backfill_schedule(schedule.id, FIRST, FIRST, **collaborators)
    whole = backfill_schedule(schedule.id, FIRST, LAST, **collaborators)
    assert [day.filed for day in whole.days] == [False, True, True]
    assert whole.days[0].run_id == first.days[0].run_id
    with database.reading() as session:
        rows = session.scalars(select(RunRow).order_by(RunRow.request_key)).all()
        requests = session.scalars(
            select(RunRequestRow.request_key).order_by(RunRequestRow.request_key)
        ).all()
        chosen = [selection_of(session, row) for row in rows]
    keys = [f"automation-backfill-{schedule.id}-2026-05-0{day}" for day in (2, 3, 4)]
    assert ([row.request_key for row in rows], list(requests)) == (keys, keys)
    assert {row.trigger for row in rows} == {"backfill"}
    assert [(one.custom_start_date, one.custom_end_date) for one in chosen] == [
        (f"0{day}/05/2026", f"0{day}/05/2026") for day in (2, 3, 4)
    ]
    assert {(one.groupes, one.max_fiches, one.date_range) for one in chosen} == {
        (("TEAM R1",), 9, "custom")
    }


def test_a_backfill_leaves_excluded_days_out(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock, ficheSelection=SALES, excludedOn=["2026-05-03"])
    made = backfill_schedule(schedule.id, FIRST, LAST, database=database, clock=clock)
    assert [(day.filed, day.excluded, day.run_id is None) for day in made.days] == [
        (True, False, False),
        (False, True, True),
        (True, False, False),
    ]


def test_a_backfill_has_bounds(database: Database, clock: StandingClock) -> None:
    by_days, by_ids = a_schedule(database, clock, ficheSelection=SALES), a_schedule(database, clock)
    paused = a_schedule(database, clock, ficheSelection=SALES)
    pause_schedule(paused.id, database=database, clock=clock)
    cases: list[tuple[int, date, date, type[AutomationError], str]] = [
        (by_days.id, LAST, FIRST, InvalidInputError, "must not lie before from"),
        (
            by_days.id,
            FIRST,
            TODAY + timedelta(days=1),
            InvalidInputError,
            "must not lie after today",
        ),
        (
            by_days.id,
            TODAY - timedelta(days=MAX_BACKFILL_DAYS),
            TODAY,
            InvalidInputError,
            "at most 91 days after from",
        ),
        (by_ids.id, FIRST, LAST, ConflictError, "it has no days to backfill"),
        (paused.id, FIRST, LAST, ConflictError, "is not active"),
    ]
    for schedule_id, first, last, error, words in cases:
        with pytest.raises(error) as refused:
            backfill_schedule(schedule_id, first, last, database=database, clock=clock)
        assert words in f"{refused.value} {getattr(refused.value, 'fields', '')}"
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(RunRow)) == 0


def test_a_preview_names_what_is_kept_dropped_and_later_ignored_and_writes_nothing(
    database: Database, clock: StandingClock
) -> None:
    bench = Bench(database, clock)
    bench.sell("known", *bench.calls("known", 3), said=None)
    yesterday, before = TODAY - timedelta(days=1), TODAY - timedelta(days=2)
    bench.crm.sell(yesterday, summary("known"), summary("new"), summary("over"))
    bench.crm.fail_always(before.isoformat(), TransientError("The CRM did not answer in time."))
    selection = {
        "mode": "date_range",
        "dateRange": "custom",
        "customStartDate": before.isoformat(),
        "customEndDate": yesterday.isoformat(),
        "maxFiches": 2,
        "maxRecordingsPerFiche": 2,
    }
    config, schedule = bench.automatic(), a_schedule(database, clock, ficheSelection=selection)

    def counts() -> list[int | None]:
        with database.reading() as session:
            tables = (RunRow, RunRequestRow, OutboxRow, FicheCacheRow)
            return [session.scalar(select(func.count()).select_from(table)) for table in tables]

    stored = counts()
    shown = run(
        preview_schedule(
            schedule.id,
            database=database,
            source=bench.crm,
            clock=clock,
            semaphore=Semaphore(DatabasePermits(database), "crm", 3, "me"),
        )
    )
    assert counts() == stored
    assert (shown.candidates, shown.selected, shown.fiches) == (3, 2, ("known", "new"))
    assert [(one.fiche_id, one.reason) for one in shown.dropped] == [("over", "over_max_fiches")]
    assert [(one.fiche_id, one.reason, one.why) for one in shown.ignored] == [
        ("known", "too_many_recordings", "Too many recordings (3 > 2)")
    ]
    assert [one.date for one in shown.unread_days] == [before.isoformat()]
    assert (shown.audit_configs, shown.empty_reason) == ((config,), None)
