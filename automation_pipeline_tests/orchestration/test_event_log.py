"""Dagster's own events: those of runs that ended long ago go, on SQLite and PostgreSQL; what was
materialised stays."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from sqlalchemy import func, make_url, select

from automation_pipeline.orchestration.retention import forget_events, forget_runs
from automation_pipeline_tests.postgres import new_database

LONG_AGO = datetime.now(UTC) - timedelta(days=400)
BEFORE = datetime.now(UTC) - timedelta(days=30)
CHECKED = {"ASSET_MATERIALIZATION_PLANNED", "ASSET_MATERIALIZATION", "ASSET_OBSERVATION"} | {
    "ASSET_CHECK_EVALUATION_PLANNED",
    "ASSET_CHECK_EVALUATION",
}


@dg.asset(check_specs=[dg.AssetCheckSpec("well", asset="figures")])
def figures(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    context.log.info("Something is said")
    context.log_event(dg.AssetObservation("figures"))
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True, check_name="well")])


@dg.op
def speak(context: dg.OpExecutionContext) -> None:
    context.log.info("Something is said")


@dg.job(tags={"automation/run_id": "1"})
def plain() -> None:
    speak()


@pytest.fixture
def instance(
    database_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[dg.DagsterInstance]:
    if database_kind == "sqlite":
        yield from _opened(tmp_path, {})
        return
    with new_database(request.getfixturevalue("postgres_server")) as url:
        address = (
            make_url(url)
            .set(drivername="postgresql+psycopg2")
            .render_as_string(hide_password=False)
        )
        yield from _opened(tmp_path, {"storage": {"postgres": {"postgres_url": address}}})


def _opened(home: Path, storage: dict) -> Iterator[dg.DagsterInstance]:
    (home / "dagster.yaml").write_text(yaml.safe_dump({"telemetry": {"enabled": False}, **storage}))
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def materialised(instance: dg.DagsterInstance) -> str:
    return dg.materialize([figures], instance=instance).run_id


def executed(instance: dg.DagsterInstance) -> str:
    return plain.execute_in_process(instance=instance).run_id


def long_ago(instance: dg.DagsterInstance, *run_ids: str, **values: object) -> None:
    at = {"update_timestamp": LONG_AGO.replace(tzinfo=None)}
    with instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
        connection.execute(
            RunsTable.update().where(RunsTable.c.run_id.in_(run_ids)).values(**at, **values)
        )


def kinds(instance: dg.DagsterInstance, run_id: str) -> set[str | None]:
    events = instance.all_logs(run_id)
    return {one.dagster_event.event_type_value if one.dagster_event else None for one in events}


def forget(instance: dg.DagsterInstance, **dry: bool) -> int:
    return asyncio.run(forget_events(instance, BEFORE, **dry))


def test_events_of_old_runs_go_and_what_the_data_team_reads_stays(
    instance: dg.DagsterInstance,
) -> None:
    old, plain_old, young = materialised(instance), executed(instance), materialised(instance)
    long_ago(instance, old, plain_old)
    before = {run_id: len(instance.all_logs(run_id)) for run_id in (old, plain_old, young)}
    counted = forget(instance, is_dry=True)
    assert {run_id: len(instance.all_logs(run_id)) for run_id in before} == before
    gone = forget(instance)
    assert (kinds(instance, old), kinds(instance, plain_old)) == (CHECKED, set())
    assert len(instance.all_logs(young)) == before[young]
    assert gone == counted == before[old] + before[plain_old] - len(instance.all_logs(old))
    assert forget(instance) == 0
    assert instance.get_run_by_id(old)


def test_assets_are_as_they_were(instance: dg.DagsterInstance) -> None:
    key = dg.AssetKey("figures")
    run_id = materialised(instance)
    long_ago(instance, run_id)
    materialised(instance)
    counted = [
        len(instance.fetch_materializations(key, limit=9).records),
        len(instance.fetch_observations(key, 9).records),
    ]
    forget(instance)
    asyncio.run(forget_runs(instance, BEFORE))
    after = [
        len(instance.fetch_materializations(key, limit=9).records),
        len(instance.fetch_observations(key, 9).records),
    ]
    assert after == counted == [2, 2]
    [evaluated] = instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(key, "well"), limit=1, cursor=None
    )
    assert evaluated.event is not None


@pytest.mark.parametrize("status", ["STARTED", "QUEUED", "CANCELING"])
def test_nothing_of_a_run_that_has_not_ended_goes_however_old(
    instance: dg.DagsterInstance, status: str
) -> None:
    run_id = executed(instance)
    long_ago(instance, run_id, status=status)
    before = len(instance.all_logs(run_id))
    assert forget(instance) == 0
    assert asyncio.run(forget_runs(instance, BEFORE)) == 0
    assert len(instance.all_logs(run_id)) == before


def test_sensors_go_on_from_where_they_were(instance: dg.DagsterInstance) -> None:
    """They remember the number of the last event: no new one may be below it."""
    old = executed(instance)
    long_ago(instance, old)
    kind = dg.DagsterEventType.RUN_SUCCESS
    cursor = instance.fetch_run_status_changes(kind, limit=9).cursor
    forget(instance)
    young = executed(instance)
    news = instance.fetch_run_status_changes(kind, cursor=cursor, limit=9, ascending=True)
    assert [one.event_log_entry.run_id for one in news.records] == [young]


def test_the_lines_of_old_steps_go_with_their_events(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    run_id = executed(instance)
    lines = tmp_path / "storage" / run_id / "compute_logs"
    assert list(lines.iterdir())
    long_ago(instance, run_id)
    forget(instance)
    assert not lines.exists()


def test_a_sqlite_file_shrinks_and_goes_with_the_record_of_its_run(tmp_path: Path) -> None:
    for instance in _opened(tmp_path, {}):
        run_id = executed(instance)
        file = tmp_path / "history" / "runs" / f"{run_id}.db"
        long_ago(instance, run_id)
        forget(instance)
        assert file.stat().st_size < 200_000
        asyncio.run(forget_runs(instance, BEFORE))
        assert not file.exists()
        assert instance.get_run_by_id(run_id) is None


def test_a_record_goes_with_its_tags_and_in_pages(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("automation_pipeline.orchestration.retention.RUNS_AT_ONCE", 2)
    monkeypatch.setattr("automation_pipeline.orchestration.retention.RUNS_AT_ONCE", 2)
    monkeypatch.setattr("automation_pipeline.orchestration.retention.EVENTS_AT_ONCE", 5)
    old = [executed(instance) for _ in range(5)]
    young = executed(instance)
    long_ago(instance, *old)
    assert asyncio.run(forget_runs(instance, BEFORE, is_dry=True)) == 5
    forget(instance)
    assert [kinds(instance, run_id) for run_id in old] == [set()] * 5
    assert asyncio.run(forget_runs(instance, BEFORE)) == 5
    assert {run.run_id for run in instance.get_runs()} == {young}
    with instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
        tagged = select(func.count(func.distinct(RunTagsTable.c.run_id)))
        assert connection.execute(tagged).scalar() == 1
