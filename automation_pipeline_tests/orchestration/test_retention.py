"""Deletion of Dagster runs that ended before an instant, with their events and logs."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from automation_pipeline.orchestration.housekeeping import delete_old_runs

FIGURES = dg.AssetKey("figures")
TOMORROW = datetime.now(UTC) + timedelta(days=1)


@dg.asset
def figures(context: dg.AssetExecutionContext) -> None:
    context.log.info("A line of the step")


@dg.job(tags={"automation/run_id": "1"})
def empty() -> None:
    pass


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def materialise(instance: dg.DagsterInstance) -> str:
    return dg.materialize([figures], instance=instance).run_id


def delete(instance: dg.DagsterInstance, before: datetime, **options: Any) -> int:
    return asyncio.run(delete_old_runs(instance, before, **options))


def test_an_old_run_is_deleted_with_its_events_and_step_logs(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    old = materialise(instance)
    between = datetime.now(UTC)
    young = materialise(instance)
    assert delete(instance, between, is_dry=True) == 1
    assert instance.get_run_by_id(old)
    assert delete(instance, between) == 1
    assert instance.get_run_by_id(old) is None
    assert instance.all_logs(old) == []
    logs = {run: tmp_path / "storage" / run / "compute_logs" for run in (old, young)}
    assert (logs[old].exists(), logs[young].exists()) == (False, True)
    left = instance.fetch_materializations(FIGURES, limit=9).records
    assert [one.event_log_entry.run_id for one in left] == [young]
    assert delete(instance, between) == 0


def test_a_run_that_has_not_ended_is_never_deleted(instance: dg.DagsterInstance) -> None:
    states = [
        dg.DagsterRunStatus.NOT_STARTED,
        dg.DagsterRunStatus.STARTING,
        dg.DagsterRunStatus.STARTED,
        dg.DagsterRunStatus.CANCELING,
    ]
    for state in states:
        instance.add_run(dg.DagsterRun("empty", run_id=state.value, status=state))
    assert delete(instance, TOMORROW, is_dry=True) == 0
    assert delete(instance, TOMORROW) == 0
    assert instance.get_runs_count() == len(states)


def test_deletion_is_limited_and_starts_with_the_oldest_runs(
    instance: dg.DagsterInstance,
) -> None:
    runs = [empty.execute_in_process(instance=instance).run_id for _ in range(3)]
    assert delete(instance, TOMORROW, limit=2) == 2
    assert [run.run_id for run in instance.get_runs()] == runs[2:]
