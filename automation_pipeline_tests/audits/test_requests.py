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
from automation_pipeline_tests.audits.bench import Bench, stored_batch
from automation_pipeline_tests.audits.reviewers import put
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_open_run
from automation_pipeline_tests.fakes.llm import FakeLanguageModel

FICHES = ("1900417", "1900418", "1900419")


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


def file_audits(bench: Bench, config: int, *fiches: str, batch: bool = True) -> FiledAudits:
    asking = AuditRequestOptions(audit_config_id=config, batch=batch)
    return request_audits(fiches or FICHES, asking, database=bench.database, clock=bench.clock)


def requests(bench: Bench) -> dict[str, RunRequestRow]:
    with bench.database.reading() as session:
        return {
            row.request_key: row
            for row in session.scalars(select(RunRequestRow).order_by(RunRequestRow.id))
        }


def test_a_single_audit_creates_one_run_request(bench: Bench) -> None:
    config = bench.configure()
    filed = file_audits(bench, config, "1900417", batch=False)
    milliseconds = round(bench.clock.now().timestamp() * 1000)
    assert [one.tracking_id for one in filed.audits] == [f"audit-1900417-{config}-{milliseconds}"]
    [row] = requests(bench).values()
    assert (row.job, row.config["audit_config_id"], row.config["trigger_source"]) == (
        "audit_fiche",
        config,
        "api",
    )


def test_a_repeated_fiche_counts_once_in_a_batch(bench: Bench) -> None:
    filed = file_audits(bench, bench.configure(), "1900417", "1900417", "1900418")
    assert stored_batch(bench.database, filed.batch_id).total == 2
    assert list(requests(bench)) == [one.tracking_id for one in filed.audits]


def test_no_request_is_stored_for_an_unknown_configuration(bench: Bench) -> None:
    with pytest.raises(NotFoundError):
        file_audits(bench, 77)
    assert requests(bench) == {}


def test_a_batch_counts_ended_audits_and_completes_once(bench: Bench) -> None:
    config = bench.configure(steps=1)
    filed = file_audits(bench, config)
    for one in filed.audits:
        bench.sell(one.fiche_id)
        bench.audit(one.fiche_id, config, one.tracking_id)
        bench.audit(one.fiche_id, config, one.tracking_id)
    ended = stored_batch(bench.database, filed.batch_id)
    assert (ended.succeeded, ended.failed, ended.is_complete) == (3, 0, True)
    assert [event["completed"] for event in bench.events("batch.progress")] == [1, 2, 3]
    [done] = bench.events("batch.completed")
    assert (done["batch_id"], done["total"], done["operation_type"]) == (filed.batch_id, 3, "audit")


def test_a_batch_item_that_crashes_before_its_start_is_ended(bench: Bench) -> None:
    config = bench.configure(steps=1)
    filed = file_audits(bench, config)
    crashed, *others = filed.audits
    with bench.database.transaction() as session:
        fail_audit(session, crashed.tracking_id, "The run worker was killed", "run")
    for one in others:
        bench.sell(one.fiche_id)
        bench.audit(one.fiche_id, config, one.tracking_id)
    ended = stored_batch(bench.database, filed.batch_id)
    assert (ended.succeeded, ended.failed, ended.is_complete) == (2, 1, True)
    assert ended.failures == [(crashed.fiche_id, "The run worker was killed")]
    assert len(bench.events("batch.completed")) == 1


def test_the_sweep_counts_items_whose_request_was_refused(bench: Bench) -> None:
    filed = file_audits(bench, bench.configure(steps=1))
    with bench.database.transaction() as session:
        for one in filed.audits:
            mark_refused(session, one.tracking_id, "The job could not be launched")
    leases = DatabaseClaims(bench.database)
    assert set(sweep_audits(1800, database=bench.database, claims=leases)) == {
        one.tracking_id for one in filed.audits
    }
    assert stored_batch(bench.database, filed.batch_id).is_complete
    assert sweep_audits(1800, database=bench.database, claims=leases) == []


def abandoned(bench: Bench) -> None:
    """Make the audit look as if its worker died long ago."""
    bench.sell("1900417")

    async def die(_: object) -> None:
        raise RuntimeError("killed")

    bench.model = FakeLanguageModel(during_call=die)
    with pytest.raises(RuntimeError):
        bench.audit("1900417", bench.configure(steps=1))
    with bench.database.transaction() as session:
        row = session.scalars(select(AuditRow)).one()
        long_ago = row.touched_at - timedelta(hours=1)
        session.execute(update(AuditRow).values(touched_at=long_ago))


@pytest.mark.parametrize(
    ("seconds", "lasting"),
    [(1800, "30 minutes"), (120, "2 minutes"), (119, "119 seconds"), (30.4, "30 seconds")],
)
def test_the_sweep_ends_abandoned_audits(bench: Bench, seconds: float, lasting: str) -> None:
    abandoned(bench)
    leases = DatabaseClaims(bench.database)
    assert sweep_audits(seconds, database=bench.database, claims=leases) == ["audit-1"]
    row = bench.row()
    assert (row.status, row.error_message) == (
        "failed",
        f"No worker has worked on this audit for {lasting}",
    )
    assert [event["failed_phase"] for event in bench.events("audit.failed")] == ["sweep"]


def test_the_sweep_keeps_claimed_audits(bench: Bench) -> None:
    abandoned(bench)
    leases = DatabaseClaims(bench.database)
    lease = leases.take(audit_key(bench.row().id), "another worker", 60)
    assert lease is not None
    assert sweep_audits(1800, database=bench.database, claims=leases) == []
    assert bench.row().status == "running"


def test_an_audit_may_belong_only_to_an_existing_automation(
    bench: Bench, clock: StandingClock
) -> None:
    run_id, config = an_open_run(bench.database, clock).run_id, bench.configure()
    asking = AuditRequestOptions(
        audit_config_id=config, schedule_id=1, run_id=run_id, user_id="anna"
    )
    request_audits(["1900417"], asking, database=bench.database, clock=clock)
    [row] = requests(bench).values()
    belongs = {"automation_schedule_id": 1, "automation_run_id": run_id, "user_id": "anna"}
    assert belongs.items() <= row.config.items()
    with pytest.raises(InvalidInputError) as refused:
        request_audits(
            ["2"], replace(asking, run_id=77, schedule_id=78), database=bench.database, clock=clock
        )
    assert refused.value.fields == (
        ("automation_schedule_id", "does not exist"),
        ("automation_run_id", "does not exist"),
    )
    elsewhere = a_schedule(bench.database, clock).id
    with pytest.raises(InvalidInputError) as refused:
        request_audits(
            ["2"], replace(asking, schedule_id=elsewhere), database=bench.database, clock=clock
        )
    assert refused.value.fields == (("automation_run_id", "belongs to another schedule"),)
    assert len(requests(bench)) == 1


@pytest.fixture
def rerun_bench(database: Database, clock: StandingClock) -> Bench:
    rerun_bench = Bench(database, clock)
    rerun_bench.sell("1900417")
    rerun_bench.audit("1900417", rerun_bench.configure(steps=2))
    return rerun_bench


def request(
    rerun_bench: Bench, place: StepLocation, instructions: str | None = None
) -> RequestedRerun:
    return request_rerun(
        place, instructions=instructions, database=rerun_bench.database, clock=rerun_bench.clock
    )


def rerun_requests(rerun_bench: Bench) -> list[RunRequestRow]:
    with rerun_bench.database.reading() as session:
        return list(session.scalars(select(RunRequestRow).order_by(RunRequestRow.id)))


def test_each_rerun_is_a_new_request(rerun_bench: Bench) -> None:
    one = request(rerun_bench, StepLocation(1, 2), " Listen. ")
    two = request(rerun_bench, StepLocation(1, 2, 1))
    assert one.rerun_id == f"rerun-1-2-{one.event_id}"
    assert two.rerun_id == f"rerun-1-2-cp-1-{two.event_id}"
    first, second = rerun_requests(rerun_bench)
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
    assert (first.tags["automation/fiche_id"], first.tags["automation/trace_id"]) == (
        "1900417",
        one.rerun_id,
    )


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (StepLocation(501, 1), "Audit not found"),
        (StepLocation(1, 3), "Audit step with ID '1:3' not found"),
        (StepLocation(1, 2, 3), "Audit control point with ID '1:2:3' not found"),
        (StepLocation(1, 2, 0), "Audit control point with ID '1:2:0' not found"),
    ],
)
def test_an_unknown_step_or_point_cannot_be_rerun(
    rerun_bench: Bench, place: StepLocation, sentence: str
) -> None:
    with pytest.raises(NotFoundError, match=sentence):
        request(rerun_bench, place)
    assert rerun_requests(rerun_bench) == []


@pytest.mark.parametrize("state", ["running", "failed", "deleted"])
def test_only_a_completed_audit_can_be_rerun(rerun_bench: Bench, state: str) -> None:
    put(rerun_bench.database, 1, state)
    with pytest.raises(ConflictError):
        request(rerun_bench, StepLocation(1, 1))
    assert rerun_requests(rerun_bench) == []


def test_too_long_instructions_are_refused(rerun_bench: Bench) -> None:
    assert request(rerun_bench, StepLocation(1, 1), "x" * 5000)
    with pytest.raises(InvalidInputError):
        request(rerun_bench, StepLocation(1, 1), "x" * 5001)
