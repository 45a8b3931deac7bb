"""The purge of old rows: it works in batches, and keeps rows that are still needed."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import pytest
from sqlalchemy import inspect, select

from automation_pipeline import retention
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.migrations.tables import METADATA
from automation_pipeline.retention import Kind, purge_all, request_housekeeping
from automation_pipeline.storage.database import Database, DatabaseBusyError
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.storage.run_requests import RunRequestRow, offer_waiting
from automation_pipeline.storage.statements import database_time
from automation_pipeline.storage.types import Table
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.processes import run_in_processes
from automation_pipeline_tests.retention.old_rows import NOW, OLD, YOUNG, add_row, fill

KEPT_FOR_EVER = {name: 0 for name in Settings.model_fields if name.endswith("_keep_days")}


def services_of(database: Database, **settings: object) -> Services:
    services = Services(Settings(**settings), FakeClock(NOW))  # type: ignore[arg-type]
    services.__dict__["database"] = database
    return services


def purge_database(
    database: Database, *, is_dry: bool = False, batch: int = 1000, **settings: object
) -> Mapping[str, int]:
    return asyncio.run(purge_all(services_of(database, **settings), is_dry=is_dry, batch=batch))


def fill_database(database: Database) -> dict[str, set[object]]:
    with database.transaction() as session:
        return fill(session)


def stored_keys(database: Database) -> dict[str, set[object]]:
    tables = {mapper.class_.__tablename__: mapper.class_ for mapper in Table.registry.mappers}
    with database.reading() as session:
        keys = {name: inspect(table).primary_key[0] for name, table in tables.items()}
        return {name: set(session.scalars(select(key))) for name, key in keys.items()}


@pytest.mark.both_databases
def test_old_rows_are_deleted_and_needed_rows_stay(database: Database) -> None:
    stay = fill_database(database)
    before = stored_keys(database)
    deleted = purge_database(database)
    after = stored_keys(database)
    assert {table: after[table] for table in stay} == stay
    assert {name: keys for name, keys in after.items() if name not in stay} == {
        name: keys for name, keys in before.items() if name not in stay
    }
    # Deliveries are deleted with their jobs, and not counted.
    counted = set(before) - {"webhook_deliveries"}
    assert sum(deleted.values()) == sum(len(before[one] - after[one]) for one in counted)
    assert sum(purge_database(database).values()) == 0


def test_a_dry_run_counts_the_rows_that_the_next_run_deletes(database: Database) -> None:
    fill_database(database)
    before = stored_keys(database)
    counted = purge_database(database, is_dry=True)
    assert stored_keys(database) == before
    assert counted == purge_database(database)


def test_zero_days_keep_rows_for_ever(database: Database) -> None:
    fill_database(database)
    before = stored_keys(database)
    assert set(purge_database(database, **KEPT_FOR_EVER).values()) == {0}
    assert stored_keys(database) == before


def test_batches_continue_until_no_row_is_left(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def record_pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", record_pause)
    with database.transaction() as session:
        for _ in range(7):
            add_row(session, WorkflowLogRow, created_at=OLD)
        add_row(session, WorkflowLogRow, created_at=YOUNG)
    assert purge_database(database, batch=3, is_dry=True)["workflow_logs"] == 7
    assert pauses == []
    assert purge_database(database, batch=3)["workflow_logs"] == 7
    assert pauses == [0.05, 0.05], "other writers get their turn between two batches"


def test_the_newest_row_stays_so_that_its_id_is_not_reused(
    database: Database,
) -> None:
    with database.transaction() as session:
        ids = [add_row(session, WorkflowLogRow, created_at=OLD).id for _ in range(3)]
    assert purge_database(database)["workflow_logs"] == 2
    assert stored_keys(database)["workflow_logs"] == {ids[-1]}


def test_a_clock_that_is_ahead_makes_nothing_old(database: Database) -> None:
    services = services_of(database)
    with database.transaction() as session:
        for _ in range(2):
            add_row(session, WorkflowLogRow, created_at=database_time(session))
    services.clock.advance(timedelta(days=365 * 50))
    assert asyncio.run(purge_all(services, is_dry=False))["workflow_logs"] == 0


def test_the_error_of_one_kind_is_raised_after_the_others_are_done(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_before: object) -> list:
        raise DatabaseBusyError("The database is too busy.")

    fill_database(database)
    first = {
        "outbox_keep_days": (
            Kind("busy", WorkflowLogRow, busy),
            *retention.KINDS["outbox_keep_days"],
        )
    }
    monkeypatch.setattr(retention, "KINDS", retention.KINDS | first)
    with pytest.raises(DatabaseBusyError):
        purge_database(database)
    monkeypatch.undo()
    assert sum(purge_database(database).values()) == 0


def purge_in_process(url: str) -> None:
    database = Database(url)
    purge_database(database, batch=20)
    database.dispose()


def test_two_concurrent_purges_delete_each_row_once(database: Database) -> None:
    stay = fill_database(database)
    with database.transaction() as session:
        for _ in range(200):
            add_row(session, WorkflowLogRow, created_at=OLD)
        stay["workflow_logs"].add(add_row(session, WorkflowLogRow, created_at=YOUNG).id)
    url = database.url.render_as_string(hide_password=False)
    run_in_processes(purge_in_process, (url,), (url,))
    purge_database(database)
    after = stored_keys(database)
    assert {table: after[table] for table in stay} == stay


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_a_row_that_another_transaction_holds_waits_for_the_next_purge(database: Database) -> None:
    with database.transaction() as session:
        ids = [add_row(session, WorkflowLogRow, created_at=OLD).id for _ in range(3)]
    held = select(WorkflowLogRow.id).where(WorkflowLogRow.id == ids[0]).with_for_update()
    with database.transaction() as session:
        session.execute(held)
        assert purge_database(database)["workflow_logs"] == 1
    assert stored_keys(database)["workflow_logs"] == {ids[0], ids[2]}


def test_a_deleted_request_is_not_processed_again(database: Database) -> None:
    fill_database(database)
    with database.reading() as session:
        waiting = set(
            session.scalars(
                select(RunRequestRow.request_key).where(RunRequestRow.state == "waiting")
            )
        )
    purge_database(database)
    with database.transaction() as session:
        assert {request.key for request in offer_waiting(session, limit=100)} == waiting


def test_a_table_that_does_not_exist_yet_has_no_old_rows(database: Database) -> None:
    fill_database(database)
    with database.transaction() as session:
        session.connection().exec_driver_sql("DROP TABLE step_beats")
    assert purge_database(database)["step_beats"] == 0
    assert "step_beats" in METADATA.tables


def test_a_request_starts_a_purge_in_dagster(database: Database) -> None:
    key = request_housekeeping(services_of(database))
    with database.transaction() as session:
        [request] = offer_waiting(session, limit=10)
    assert key == f"housekeeping-{NOW.timestamp() * 1000:.0f}"
    assert (request.key, request.job, request.config) == (key, "housekeeping", {})
