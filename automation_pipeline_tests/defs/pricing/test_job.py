"""The job `rule_run`: launched by a request or from the launchpad; its results and errors."""

from datetime import UTC, datetime

import dagster as dg
import pytest
from sqlalchemy import select

from automation_pipeline import bootstrap
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.defs.housekeeping import run_failures, terminated_runs
from automation_pipeline.defs.pricing import rule_run
from automation_pipeline.orchestration.job_registry import REQUEST_TAG, TERMINATED
from automation_pipeline.orchestration.pricing import RUN_ID_TAG, cancel_run_of, run_id_of
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import all_metrics
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.defs.pricing.shop_services import (
    RESOURCES,
    execute,
    harness_with_services,
    launch,
    metadata_of,
    refusal,
)
from automation_pipeline_tests.fakes.shop import PAGES, product_variants
from automation_pipeline_tests.pricing.harness import PricingHarness

OP = "work_rule_run"


@pytest.fixture
def harness(database: Database, monkeypatch: pytest.MonkeyPatch) -> PricingHarness:
    return harness_with_services(database, monkeypatch)


def request_states(harness: PricingHarness) -> list[str]:
    with harness.database.reading() as session:
        return list(session.scalars(select(RunRequestRow.state).order_by(RunRequestRow.id)))


def test_a_requested_run_applies_prices(harness: PricingHarness) -> None:
    run_id = harness.request_run(harness.rule())
    result = launch(harness, rule_run)
    assert result.success
    assert harness.shop.amounts() == {"101": 900, "201": 900, "301": 900}
    assert (harness.run(run_id).status, request_states(harness)[0]) == ("APPLIED", "taken")
    page = metadata_of(result)
    assert (page["run"], page["status"], page["applied"], page["success_rate"]) == (
        str(run_id),
        "APPLIED",
        3,
        1.0,
    )
    assert page["rule"] == "A tenth off (version 1)"
    assert "| SKU-1-1 | 10.00 EUR | 9.00 EUR | APPLIED |" in str(page["targets"])
    assert "resume_at" not in page


def test_the_target_table_has_at_most_twenty_rows(harness: PricingHarness) -> None:
    harness.shop.add(*product_variants(25))
    harness.request_run(harness.rule())
    assert str(metadata_of(launch(harness, rule_run))["targets"]).count("\n") == 21


def test_the_step_of_a_failed_run_fails(harness: PricingHarness) -> None:
    for product in ("1", "2", "3"):
        harness.shop.fail_always(product, FailureSignal(status=404))
    harness.request_run(harness.rule())
    result = launch(harness, rule_run)
    assert not result.success
    [failed] = [
        event.step_failure_data.user_failure_data
        for event in result.all_events
        if event.is_step_failure
    ]
    assert failed
    page = {name: value.value for name, value in failed.metadata.items()}
    assert (page["status"], page["failed"], page["success_rate"]) == ("FAILED", 3, 0.0)
    run = harness.run(1)
    assert failed.description == (
        run.error_message or "Run 1 has failed: none of its prices was applied."
    )


def test_a_run_waiting_for_its_next_attempt_shows_the_time(harness: PricingHarness) -> None:
    harness.shop.fail_once("2", FailureSignal(status=500))
    harness.request_run(harness.rule())
    page = metadata_of(launch(harness, rule_run))
    assert (page["status"], page["applied"]) == ("APPLYING", 2)
    assert page["resume_at"]


@every_case("status", [401, 500])
def test_a_run_with_an_unreadable_catalogue_stores_the_reason_and_is_retried(
    harness: PricingHarness, status: int
) -> None:
    harness.shop.fail_always(PAGES, FailureSignal(status=status))
    run_id = harness.request_run(harness.rule())
    result = execute(rule_run, OP, run_id=run_id)
    assert not result.success
    run = harness.run(run_id)
    assert (run.status, run.wish) == ("PREVIEW", "apply")
    assert run.error_message == "The shop fails as the test specifies (page)."
    assert run.resume_at
    assert 290 < (run.resume_at - datetime.now(UTC)).total_seconds() <= 300
    harness.shop.stop_failing(PAGES)
    assert execute(rule_run, OP, run_id=run_id).success
    applied = harness.run(run_id)
    assert (applied.status, applied.error_message, applied.resume_at) == ("APPLIED", None, None)
    harness.shop.add(*product_variants(3))


def test_the_launchpad_creates_and_executes_a_run_of_a_rule(harness: PricingHarness) -> None:
    rule = harness.rule()
    page = metadata_of(execute(rule_run, OP, rule_id=rule.id))
    run = harness.run(int(str(page["run"])))
    assert (page["status"], run.trigger, run.created_by) == ("APPLIED", "launchpad", "launchpad")
    assert set(request_states(harness)[:1]) == {"taken"}


def test_a_retried_launch_reuses_its_run(harness: PricingHarness) -> None:
    rule = harness.rule()
    created = metadata_of(execute(rule_run, OP, rule_id=rule.id))["run"]
    again = execute(rule_run, OP, {RUN_ID_TAG: str(created)}, rule_id=rule.id)
    assert metadata_of(again)["run"] == created
    assert len(harness.shop.written) == 3


def test_a_preview_does_not_write_to_the_shop(harness: PricingHarness) -> None:
    rule = harness.rule()
    page = metadata_of(execute(rule_run, OP, rule_id=rule.id, preview_only=True))
    assert (page["status"], page["preview"]) == ("PREVIEW", 3)
    assert "9.00 EUR | PREVIEW" in str(page["targets"])
    assert (harness.shop.written, harness.shop.call_count("write")) == ([], 0)


def test_a_preview_of_an_existing_run_only_plans_it(harness: PricingHarness) -> None:
    run_id = harness.request_run(harness.rule())
    page = metadata_of(execute(rule_run, OP, run_id=run_id, preview_only=True))
    assert (page["status"], page["preview"], harness.shop.written) == ("PREVIEW", 3, [])


def test_a_launch_during_the_cooldown_is_rejected_unless_forced(harness: PricingHarness) -> None:
    rule = harness.rule(cooldownMinutes=60)
    assert execute(rule_run, OP, rule_id=rule.id).success
    assert "rests until" in refusal(execute(rule_run, OP, rule_id=rule.id))
    assert execute(rule_run, OP, rule_id=rule.id, force=True).success


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "Give either run_id"),
        ({"run_id": 1, "rule_id": 1}, "Give either run_id"),
        ({"run_id": 1, "force": True}, "force needs rule_id"),
        ({"rule_id": 1, "force": True, "preview_only": True}, "force needs rule_id"),
        ({"run_id": 0}, "Invalid config: run_id: must be from 1 to "),
        ({"run_id": 0, "rule_id": 1}, "Invalid config: run_id: must be from 1 to "),
        ({"rule_id": 2**63}, "Invalid config: rule_id: must be from 1 to "),
        ({"run_id": 99}, "Rule run 99 not found"),
        ({"rule_id": 99}, "Pricing rule 99 not found"),
    ],
)
def test_an_invalid_run_config_is_rejected_with_one_sentence(
    harness: PricingHarness, config: dict[str, object], message: str
) -> None:
    assert refusal(execute(rule_run, OP, **config)).startswith(message)


def test_an_illegal_transition_is_counted(
    harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def illegal(*_args: object, **_kwargs: object) -> None:
        raise IllegalMoveError("rule run", "APPLIED", "APPLYING")

    monkeypatch.setattr("automation_pipeline.orchestration.pricing.work_run", illegal)
    assert "cannot move from APPLIED to APPLYING" in refusal(execute(rule_run, OP, run_id=1))
    with harness.database.reading() as session:
        counted = {(one.name, one.labels): one.value for one in all_metrics(session)}
    assert counted["rules_illegal_moves_total", 'machine="rule run"'] == 1


def make_dagster_run(
    job: str = "rule_run", tags: dict[str, str] | None = None, **config: object
) -> dg.DagsterRun:
    return dg.DagsterRun(
        job, run_id="r-1", run_config={"ops": {OP: {"config": config}}}, tags=tags or {}
    )


@every_case(
    ("run", "run_id"),
    [
        (make_dagster_run(run_id=7), 7),
        (make_dagster_run(rule_id=3), None),
        (make_dagster_run(tags={RUN_ID_TAG: "8"}, rule_id=3), 8),
        (make_dagster_run(run_id=0, tags={RUN_ID_TAG: "8"}), None),
        (make_dagster_run(run_id=2**63), None),
        (make_dagster_run(tags={RUN_ID_TAG: "mine"}, rule_id=3), None),
        (make_dagster_run("audit_fiche", run_id=7), None),
        (dg.DagsterRun("rule_run", run_id="r-2"), None),
    ],
)
def test_the_run_id_is_read_from_the_dagster_run(run: dg.DagsterRun, run_id: int | None) -> None:
    assert run_id_of(run) == run_id


def test_a_termination_in_dagster_cancels_the_run(harness: PricingHarness) -> None:
    queued = harness.queued_run()
    [(key, _)] = harness.requests()
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.add_run(make_dagster_run(tags={REQUEST_TAG: key}, run_id=queued.id))
        instance.report_run_canceled(run)
        ended = instance.get_run_by_id(run.run_id)
        assert ended
        [event] = [one.dagster_event for one in instance.all_logs(run.run_id) if one.dagster_event]
        with dg.build_run_status_sensor_context(
            "terminated_runs", event, instance, ended, resources=RESOURCES
        ) as context:
            terminated_runs(context)
    stopped = harness.run(queued.id)
    assert (stopped.status, stopped.targets.cancelled, stopped.cancel_requested_at is not None) == (
        "FAILED",
        3,
        True,
    )
    with harness.database.reading() as session:
        [request] = session.scalars(select(RunRequestRow).where(RunRequestRow.request_key == key))
        assert (request.state, request.reason) == ("refused", TERMINATED)


def test_a_run_with_a_permanent_failure_is_postponed(harness: PricingHarness) -> None:
    queued = harness.queued_run()
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.add_run(make_dagster_run(tags={}, run_id=queued.id))
        instance.report_run_failed(run, "SHOP_API_TOKEN is not set.")
        ended = instance.get_run_by_id(run.run_id)
        assert ended
        [event] = [one.dagster_event for one in instance.all_logs(run.run_id) if one.dagster_event]
        with dg.build_run_status_sensor_context(
            "run_failures", event, instance, ended, resources=RESOURCES
        ) as context:
            run_failures(context.for_run_failure())
    postponed = harness.run(queued.id)
    assert (postponed.status, postponed.error_message) == ("QUEUED", "SHOP_API_TOKEN is not set.")
    assert postponed.resume_at


def test_terminating_a_finished_run_changes_nothing(harness: PricingHarness) -> None:
    ended = harness.work(harness.queued_run())
    cancel_run_of(make_dagster_run(run_id=ended.id), bootstrap.services())
    assert harness.run(ended.id).status == "APPLIED"


def test_cancelling_an_unknown_run_does_nothing(harness: PricingHarness) -> None:
    cancel_run_of(make_dagster_run(run_id=99), bootstrap.services())
