"""Audits and fetch jobs whose Dagster run has ended."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from sqlalchemy import select, update

from automation_pipeline.audits.judging import audit_key
from automation_pipeline.audits.requests import (
    AuditRequestOptions,
    FiledAudits,
    request_audits,
)
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.job_registry import REQUEST_TAG, TERMINATED, close_terminated
from automation_pipeline.orchestration.watchdog import (
    LOST_AUDIT,
    RUN_HAS_ENDED,
    end_lost_audits,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow, mark_taken, refusals
from automation_pipeline_tests.audits.harness import AuditHarness, stored_batch
from automation_pipeline_tests.automation.reports import open_a_run
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel

S = DagsterRunStatus


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def harness(database: Database) -> AuditHarness:
    """The clock starts at the current time, like Dagster's."""
    return AuditHarness(database, FakeClock(datetime.now(UTC)))


@pytest.fixture
def services(harness: AuditHarness) -> Services:
    built = Services(Settings(), harness.clock)
    vars(built)["database"] = harness.database
    return built


def requested_batch(harness: AuditHarness, *fiches: str, minutes_ago: float = 31) -> FiledAudits:
    """Request a batch of audits, each taken by a run named after its fiche."""
    options = AuditRequestOptions(audit_config_id=harness.configure(steps=1), batch=True)
    filed = request_audits(fiches, options, database=harness.database, clock=harness.clock)
    with harness.database.transaction() as session:
        for one in filed.audits:
            mark_taken(session, one.tracking_id, f"run-{one.fiche_id}")
        at = datetime.now(UTC) - timedelta(minutes=minutes_ago)
        session.execute(update(RunRequestRow).values(created_at=at))
    return filed


def make_run(
    instance: DagsterInstance, name: str, key: str, status: DagsterRunStatus, **tags: str
) -> DagsterRun:
    job, _, fiche = key.partition("-audit-")
    config = {
        "ops": {"audit": {"config": {"tracking_id": key, "fiche_id": fiche, "audit_config_id": 1}}}
    }
    run = DagsterRun(
        "audit_fiche",
        run_id=name,
        status=status,
        run_config=config,
        tags={REQUEST_TAG: key, **tags},
    )
    assert job
    return instance.add_run(run)


def request_states(harness: AuditHarness) -> list[str]:
    with harness.database.reading() as session:
        return list(session.scalars(select(RunRequestRow.state).order_by(RunRequestRow.id)))


def test_a_terminated_run_leaves_no_batch_waiting(
    harness: AuditHarness, services: Services, instance: DagsterInstance
) -> None:
    filed = requested_batch(harness, "7")
    [one] = filed.audits
    run = make_run(instance, "run-7", one.tracking_id, S.CANCELED)
    assert close_terminated(run, services)
    assert close_terminated(run, services)
    ended = stored_batch(harness.database, filed.batch_id)
    assert (ended.failures, ended.is_complete) == ([("7", TERMINATED)], True)
    with harness.database.reading() as session:
        assert refusals(session, [one.tracking_id]) == {one.tracking_id: TERMINATED}
    assert len(harness.events("batch.completed")) == 1


def test_terminating_a_run_without_a_request_closes_nothing(services: Services) -> None:
    assert not close_terminated(DagsterRun("audit_rerun", run_id="r"), services)


@pytest.mark.parametrize(
    ("status", "is_lost"),
    [
        (S.CANCELED, True),
        (S.SUCCESS, True),
        (S.FAILURE, True),
        (S.NOT_STARTED, False),
        (S.STARTED, False),
        (S.CANCELING, False),
    ],
)
def test_an_audit_whose_run_has_ended_is_counted_as_failed(
    harness: AuditHarness, services: Services, instance: DagsterInstance,
    status: DagsterRunStatus, is_lost: bool,
) -> None:  # fmt: skip
    filed = requested_batch(harness, "7")
    make_run(instance, "run-7", filed.audits[0].tracking_id, status)
    lost = end_lost_audits(instance, services)
    assert lost == ([filed.audits[0].tracking_id] if is_lost else [])
    ended = stored_batch(harness.database, filed.batch_id)
    assert (ended.failures, ended.is_complete) == (
        [("7", LOST_AUDIT)] if is_lost else [],
        is_lost,
    )
    assert request_states(harness) == ["refused" if is_lost else "taken"]
    assert end_lost_audits(instance, services) == []


def test_only_the_newest_run_of_a_request_counts(
    harness: AuditHarness, services: Services, instance: DagsterInstance
) -> None:
    filed = requested_batch(harness, "7", "8", "9")
    keys = [one.tracking_id for one in filed.audits]
    make_run(instance, "first-7", keys[0], S.FAILURE)
    make_run(instance, "first-8", keys[1], S.FAILURE)
    make_run(instance, "second-7", keys[0], S.CANCELED)
    make_run(instance, "second-8", keys[1], S.STARTED)
    # Dagster has no run of the last one.
    assert end_lost_audits(instance, services) == [
        keys[0],
        keys[2],
    ]


async def crash(_: object) -> None:
    raise RuntimeError("killed")


def touch_audits(harness: AuditHarness, ago: timedelta) -> None:
    with harness.database.transaction() as session:
        session.execute(update(AuditRow).values(touched_at=datetime.now(UTC) - ago))


@pytest.mark.parametrize("status", ["running", "cancelled"])
def test_an_audit_ends_with_its_automation_run(
    harness: AuditHarness, services: Services, instance: DagsterInstance, status: str
) -> None:
    """Audits of a cancelled run stayed `running` for half an hour."""
    run_id = open_a_run(harness, ("7",))
    harness.sell("7")
    harness.model = FakeLanguageModel(during_call=crash)
    with pytest.raises(RuntimeError):
        harness.audit("7", harness.configure(steps=1), "audit-of-run", run_id=run_id)
    has_ended = status == "cancelled"
    with harness.database.transaction() as session:
        run = session.get_one(RunRow, run_id)
        run.status, run.completed_at = status, harness.clock.now() if has_ended else None
    touch_audits(harness, timedelta(seconds=70))
    claim = services.claims.take(audit_key(harness.row("audit-of-run").id), "its worker", 60)
    assert claim is not None
    assert end_lost_audits(instance, services) == []
    services.claims.release(claim)
    touch_audits(harness, timedelta(seconds=50))
    assert end_lost_audits(instance, services) == [], "a worker may be about to claim it"
    touch_audits(harness, timedelta(seconds=70))
    assert end_lost_audits(instance, services) == ["audit-of-run"] * has_ended
    row = harness.row("audit-of-run")
    assert (row.status, row.error_message) == (
        ("failed", RUN_HAS_ENDED) if has_ended else ("running", None)
    )
    assert end_lost_audits(instance, services) == []


def reset_to_waiting(harness: AuditHarness) -> None:
    with harness.database.transaction() as session:
        session.execute(update(RunRequestRow).values(state="waiting"))


def test_recent_waiting_or_started_audits_are_not_lost(
    harness: AuditHarness, services: Services, instance: DagsterInstance
) -> None:
    requested_batch(harness, "7", minutes_ago=29)
    assert end_lost_audits(instance, services) == []
    reset_to_waiting(harness)
    requested_batch(harness, "8")
    harness.sell("9")
    filed = requested_batch(harness, "9")
    waiting: list[Any] = [one.tracking_id for one in filed.audits]
    with harness.database.transaction() as session:
        session.execute(
            update(RunRequestRow)
            .where(RunRequestRow.request_key.not_in(waiting))
            .values(state="waiting")
        )
    harness.audit("9", 1, waiting[0])
    assert end_lost_audits(instance, services) == []
