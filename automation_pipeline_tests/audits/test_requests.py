"""Requests of audits, batches and reruns."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from automation_pipeline.audits.audits import fail_audit, sweep_audits
from automation_pipeline.audits.judging import audit_key
from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.requests import (
    AuditRequestOptions,
    FiledAudits,
    RequestedRerun,
    request_audits,
    request_rerun,
)
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.storage.claims import DatabaseClaims
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow, mark_refused
from automation_pipeline_tests.audits.harness import AuditHarness, stored_batch
from automation_pipeline_tests.audits.reviewers import set_state
from automation_pipeline_tests.factories import make_open_run, make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel

FICHES = ("1900417", "1900418", "1900419")


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    return AuditHarness(database, clock)


def file_audits(
    harness: AuditHarness, config: int, *fiches: str, batch: bool = True
) -> FiledAudits:
    options = AuditRequestOptions(audit_config_id=config, batch=batch)
    return request_audits(fiches or FICHES, options, database=harness.database, clock=harness.clock)


def requests(harness: AuditHarness) -> dict[str, RunRequestRow]:
    with harness.database.reading() as session:
        return {
            row.request_key: row
            for row in session.scalars(select(RunRequestRow).order_by(RunRequestRow.id))
        }


def test_a_single_audit_creates_one_run_request(harness: AuditHarness) -> None:
    config = harness.configure()
    filed = file_audits(harness, config, "1900417", batch=False)
    milliseconds = round(harness.clock.now().timestamp() * 1000)
    assert [one.tracking_id for one in filed.audits] == [f"audit-1900417-{config}-{milliseconds}"]
    [row] = requests(harness).values()
    assert (row.job, row.config) == (
        "audit_fiche",
        {
            "tracking_id": row.request_key, "fiche_id": "1900417", "audit_config_id": config, "use_rlm": False,
            "trigger_source": "api",
        },
    )  # fmt: skip
    assert row.tags == {
        "automation/fiche_id": "1900417", "automation/audit_config_id": str(config),
        "automation/trace_id": row.request_key, "dagster/priority": "10",
    }  # fmt: skip


def test_a_repeated_fiche_counts_once_in_a_batch(harness: AuditHarness) -> None:
    filed = file_audits(harness, harness.configure(), "1900417", "1900417", "1900418")
    assert stored_batch(harness.database, filed.batch_id).total == 2
    rows = requests(harness)
    assert list(rows) == [one.tracking_id for one in filed.audits]
    assert [
        (row.config["fiche_id"], row.config["trigger_source"], row.tags["dagster/priority"])
        for row in rows.values()
    ] == [("1900417", "batch", "0"), ("1900418", "batch", "0")]


def test_no_request_is_stored_for_an_unknown_configuration(harness: AuditHarness) -> None:
    with pytest.raises(NotFoundError):
        file_audits(harness, 77)
    assert requests(harness) == {}


def test_a_batch_counts_ended_audits_and_completes_once(harness: AuditHarness) -> None:
    config = harness.configure(steps=1)
    filed = file_audits(harness, config)
    for one in filed.audits:
        harness.sell(one.fiche_id)
        harness.audit(one.fiche_id, config, one.tracking_id)
        harness.audit(one.fiche_id, config, one.tracking_id)
    ended = stored_batch(harness.database, filed.batch_id)
    assert (ended.succeeded, ended.failed, ended.is_complete) == (3, 0, True)
    assert [event["completed"] for event in harness.events("batch.progress")] == [1, 2, 3]
    [done] = harness.events("batch.completed")
    assert (done["batch_id"], done["total"], done["operation_type"]) == (filed.batch_id, 3, "audit")


def test_a_batch_item_that_crashes_before_its_start_is_ended(harness: AuditHarness) -> None:
    config = harness.configure(steps=1)
    filed = file_audits(harness, config)
    crashed, *others = filed.audits
    with harness.database.transaction() as session:
        fail_audit(session, crashed.tracking_id, "The run worker was killed", "run")
    for one in others:
        harness.sell(one.fiche_id)
        harness.audit(one.fiche_id, config, one.tracking_id)
    ended = stored_batch(harness.database, filed.batch_id)
    assert (ended.succeeded, ended.failed, ended.is_complete) == (2, 1, True)
    assert ended.failures == [(crashed.fiche_id, "The run worker was killed")]
    assert len(harness.events("batch.completed")) == 1


def test_the_sweep_counts_items_whose_request_was_refused(harness: AuditHarness) -> None:
    filed = file_audits(harness, harness.configure(steps=1))
    with harness.database.transaction() as session:
        for one in filed.audits:
            mark_refused(session, one.tracking_id, "The job could not be launched")
    claims = DatabaseClaims(harness.database)
    assert set(sweep_audits(1800, database=harness.database, claims=claims)) == {
        one.tracking_id for one in filed.audits
    }
    assert stored_batch(harness.database, filed.batch_id).is_complete
    assert sweep_audits(1800, database=harness.database, claims=claims) == []


def abandon_audit(harness: AuditHarness) -> None:
    """Leave an audit whose worker crashed an hour ago."""
    harness.sell("1900417")

    async def crash(_: object) -> None:
        raise RuntimeError("killed")

    harness.model = FakeLanguageModel(during_call=crash)
    with pytest.raises(RuntimeError):
        harness.audit("1900417", harness.configure(steps=1))
    with harness.database.transaction() as session:
        row = session.scalars(select(AuditRow)).one()
        long_ago = row.touched_at - timedelta(hours=1)
        session.execute(update(AuditRow).values(touched_at=long_ago))


@pytest.mark.parametrize(
    ("seconds", "duration"),
    [(1800, "30 minutes"), (120, "2 minutes"), (119, "119 seconds"), (30.4, "30 seconds")],
)
def test_the_sweep_ends_abandoned_audits(
    harness: AuditHarness, seconds: float, duration: str
) -> None:
    abandon_audit(harness)
    claims = DatabaseClaims(harness.database)
    assert sweep_audits(seconds, database=harness.database, claims=claims) == ["audit-1"]
    row = harness.row()
    assert (row.status, row.error_message) == (
        "failed",
        f"No worker has worked on this audit for {duration}",
    )
    assert [event["failed_phase"] for event in harness.events("audit.failed")] == ["sweep"]


def test_the_sweep_keeps_claimed_audits(harness: AuditHarness) -> None:
    abandon_audit(harness)
    claims = DatabaseClaims(harness.database)
    claim = claims.take(audit_key(harness.row().id), "another worker", 60)
    assert claim is not None
    assert sweep_audits(1800, database=harness.database, claims=claims) == []
    assert harness.row().status == "running"


def test_an_audit_may_belong_only_to_an_existing_automation(
    harness: AuditHarness, clock: FakeClock
) -> None:
    run_id, config = make_open_run(harness.database, clock).run_id, harness.configure()
    options = AuditRequestOptions(
        audit_config_id=config, schedule_id=1, run_id=run_id, user_id="anna"
    )
    request_audits(["1900417"], options, database=harness.database, clock=clock)
    [row] = requests(harness).values()
    expected = {"automation_schedule_id": 1, "automation_run_id": run_id, "user_id": "anna"}
    assert expected.items() <= row.config.items()
    with pytest.raises(InvalidInputError) as refused:
        request_audits(
            ["2"],
            replace(options, run_id=77, schedule_id=78),
            database=harness.database,
            clock=clock,
        )
    assert refused.value.fields == (
        ("automation_schedule_id", "does not exist"),
        ("automation_run_id", "does not exist"),
    )
    elsewhere = make_schedule(harness.database, clock).id
    with pytest.raises(InvalidInputError) as refused:
        request_audits(
            ["2"], replace(options, schedule_id=elsewhere), database=harness.database, clock=clock
        )
    assert refused.value.fields == (("automation_run_id", "belongs to another schedule"),)
    assert len(requests(harness)) == 1


@pytest.fixture
def rerun_harness(database: Database, clock: FakeClock) -> AuditHarness:
    rerun_harness = AuditHarness(database, clock)
    rerun_harness.sell("1900417")
    rerun_harness.audit("1900417", rerun_harness.configure(steps=2))
    return rerun_harness


def request(
    rerun_harness: AuditHarness, location: StepLocation, instructions: str | None = None
) -> RequestedRerun:
    return request_rerun(
        location,
        instructions=instructions,
        database=rerun_harness.database,
        clock=rerun_harness.clock,
    )


def rerun_requests(rerun_harness: AuditHarness) -> list[RunRequestRow]:
    with rerun_harness.database.reading() as session:
        return list(session.scalars(select(RunRequestRow).order_by(RunRequestRow.id)))


def test_each_rerun_is_a_new_request(rerun_harness: AuditHarness) -> None:
    one = request(rerun_harness, StepLocation(1, 2), " Listen. ")
    two = request(rerun_harness, StepLocation(1, 2, 1))
    assert one.rerun_id == f"rerun-1-2-{one.event_id}"
    assert two.rerun_id == f"rerun-1-2-cp-1-{two.event_id}"
    first, second = rerun_requests(rerun_harness)
    assert (first.request_key, first.job) == (one.rerun_id, "audit_rerun")
    assert first.config == {
        "audit_id": 1,
        "step_position": 2,
        "rerun_id": one.rerun_id,
        "custom_prompt": "Listen.",
    }
    assert second.config == {
        "audit_id": 1,
        "step_position": 2,
        "rerun_id": two.rerun_id,
        "control_point_index": 1,
    }
    assert first.tags == {
        "automation/fiche_id": "1900417", "automation/audit_id": "1", "automation/trace_id": one.rerun_id,
        "dagster/priority": "10",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("location", "sentence"),
    [
        (StepLocation(501, 1), "Audit not found"),
        (StepLocation(1, 3), "Audit step with ID '1:3' not found"),
        (StepLocation(1, 2, 3), "Audit control point with ID '1:2:3' not found"),
        (StepLocation(1, 2, 0), "Audit control point with ID '1:2:0' not found"),
    ],
)
def test_an_unknown_step_or_point_cannot_be_rerun(
    rerun_harness: AuditHarness, location: StepLocation, sentence: str
) -> None:
    with pytest.raises(NotFoundError, match=sentence):
        request(rerun_harness, location)
    assert rerun_requests(rerun_harness) == []


@pytest.mark.parametrize("state", ["running", "failed", "deleted"])
def test_only_a_completed_audit_can_be_rerun(rerun_harness: AuditHarness, state: str) -> None:
    set_state(rerun_harness.database, 1, state)
    with pytest.raises(ConflictError):
        request(rerun_harness, StepLocation(1, 1))
    assert rerun_requests(rerun_harness) == []


def test_too_long_instructions_are_refused(rerun_harness: AuditHarness) -> None:
    assert request(rerun_harness, StepLocation(1, 1), "x" * 5000)
    with pytest.raises(InvalidInputError):
        request(rerun_harness, StepLocation(1, 1), "x" * 5001)
