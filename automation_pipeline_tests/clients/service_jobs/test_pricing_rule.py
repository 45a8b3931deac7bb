"""PRICING_RULE_APPLY jobs: request a run in the transaction of the job, follow it, cancel it."""

from typing import Any

import pytest
from sqlalchemy import event

from automation_pipeline.clients.service_jobs import PricingRuleJob
from automation_pipeline.core.errors import ConflictError, NotFoundError, PermanentError
from automation_pipeline.org_jobs.models.jobs import AttemptEnd
from automation_pipeline.org_jobs.ports import RemoteRunner
from automation_pipeline.pricing.models.rules import PricingRule
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.clients.service_jobs.job_contexts import (
    Killed,
    job_context,
    killed_after,
)
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import FakeShop, product_variants
from automation_pipeline_tests.pricing.harness import PricingHarness
from automation_pipeline_tests.pricing.rows import make_run, run_rows


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(
        database,
        clock,
        FakeShop(*product_variants(2)),
        {"longest_pause_seconds": 0.0, "calls_at_once": 1},
    )


@pytest.fixture
def runner(harness: PricingHarness) -> RemoteRunner:
    return PricingRuleJob(harness.database, harness.clock, lambda: harness.storefront.name)


def start(runner: RemoteRunner, rule: PricingRule, **more: Any) -> dict[str, Any]:
    return dict(runner.start(job_context("PRICING_RULE_APPLY", ruleId=rule.id, **more)))


def run_id(following: dict[str, Any]) -> int:
    return int(following["ruleRunId"])


def end_of(runner: RemoteRunner, following: dict[str, Any]) -> AttemptEnd | None:
    return runner.find_ended({5: following}).get(5)


def test_starting_the_job_requests_a_run_and_follows_it_until_applied(
    harness: PricingHarness, runner: RemoteRunner
) -> None:
    following = start(runner, harness.rule())
    row = harness.run_row(run_id(following))
    assert (row.created_by, row.wish, row.shop) == ("org-job:7", "apply", harness.storefront.name)
    assert end_of(runner, following) is None
    harness.work_id(run_id(following))
    end = end_of(runner, following)
    assert (end and end.status, end and end.result) == (
        "success",
        {
            "ruleRunId": following["ruleRunId"],
            "status": "APPLIED",
            "targets": 2,
            "applied": 2,
            "failed": 0,
            "skipped": 0,
            "blocked": 0,
        },
    )


def test_a_run_without_price_changes_succeeds(
    harness: PricingHarness, runner: RemoteRunner
) -> None:
    following = start(runner, harness.rule(selector={"tag": "nowhere"}))
    harness.work_id(run_id(following))
    end = end_of(runner, following)
    assert end is not None
    assert (end.status, (end.result or {})["targets"]) == ("success", 0)


def test_a_rolled_back_start_requests_no_run(harness: PricingHarness, runner: RemoteRunner) -> None:
    rule = harness.rule()
    with pytest.raises(Killed):
        killed_after(lambda: start(runner, rule), harness.database)
    assert (run_rows(harness.database), harness.requests()) == ([], [])


def test_a_busy_cooling_or_deleted_rule_is_reported(
    harness: PricingHarness, runner: RemoteRunner
) -> None:
    busy, resting, disabled = (
        harness.rule(),
        harness.rule(cooldownMinutes=60),
        harness.rule(enabled=False),
    )
    start(runner, busy)
    make_run(harness.database, resting, "APPLIED", harness.clock.now())
    for rule in (busy, resting, disabled):
        with pytest.raises(ConflictError):
            start(runner, rule)
    with pytest.raises(NotFoundError):
        runner.start(job_context("PRICING_RULE_APPLY", ruleId=99))
    assert run_id(start(runner, resting, force=True)) > 0


def test_without_a_shop_no_run_is_requested(harness: PricingHarness) -> None:
    def unset() -> str:
        raise PermanentError("SHOP_API_BASE_URL is not set")

    with pytest.raises(PermanentError, match="SHOP_API_BASE_URL"):
        start(PricingRuleJob(harness.database, harness.clock, unset), harness.rule())
    assert run_rows(harness.database) == []


@pytest.mark.parametrize(
    ("status", "targets", "columns", "ends", "code"),
    [
        ("QUEUED", ["QUEUED"], {}, None, None),
        ("APPLYING", ["APPLYING"], {}, None, None),
        ("APPLIED", ["APPLIED"], {}, "success", None),
        ("ROLLED_BACK", ["ROLLED_BACK"], {}, "success", None),
        ("PARTIAL", ["APPLIED", "FAILED"], {}, "success", None),
        ("FAILED", ["FAILED"], {"error_message": "The shop is closed"}, "failed", "FAILED"),
        ("FAILED", ["FAILED"], {"is_cancelled": True}, "cancelled", None),
        ("PARTIAL", ["APPLIED", "FAILED"], {"is_cancelled": True}, "cancelled", None),
        ("APPLIED", ["APPLIED"], {"is_cancelled": True}, "success", None),
        ("PREVIEW", [], {"is_cancelled": True}, "cancelled", None),
        ("PREVIEW", [], {"wish": "apply"}, None, None),
    ],
)
def test_the_run_status_decides_the_job_status(
    status: str,
    targets: list[str],
    columns: dict[str, Any],
    ends: str | None,
    code: str | None,
    harness: PricingHarness,
    runner: RemoteRunner,
) -> None:
    values = {name: value for name, value in columns.items() if name != "is_cancelled"}
    if "is_cancelled" in columns:
        values["cancel_requested_at"] = harness.clock.now()
    id_ = make_run(
        harness.database,
        harness.rule(),
        status,
        harness.clock.now(),
        targets,
        total_targets=len(targets),
        **values,
    )
    end = end_of(runner, {"ruleRunId": str(id_)})
    assert (end and end.status, end and end.error_code) == (ends, code)


def test_a_partial_run_reports_the_number_of_failed_prices(
    harness: PricingHarness, runner: RemoteRunner
) -> None:
    at, targets = harness.clock.now(), ["APPLIED", "FAILED"]
    id_ = make_run(harness.database, harness.rule(), "PARTIAL", at, targets, total_targets=2)
    end = end_of(runner, {"ruleRunId": str(id_)})
    assert end is not None
    assert (end.result or {})["note"] == (
        "1 of 2 prices could not be set: see the dead letters of the run."
    )


def test_the_job_waits_for_the_approval_of_its_run(
    harness: PricingHarness, runner: RemoteRunner
) -> None:
    harness.set_policy(autoApply=False)
    following = start(runner, harness.rule())
    assert harness.work_id(run_id(following)).status == "PREVIEW"
    assert end_of(runner, following) is None
    run = harness.run(run_id(following))
    harness.approve(run)
    harness.queue(run)
    assert end_of(runner, following) is None
    harness.work(run)
    end = end_of(runner, following)
    assert (end and end.status) == "success"


def test_a_run_not_approved_in_time_fails_the_job_with_a_conflict(
    harness: PricingHarness, runner: RemoteRunner
) -> None:
    harness.set_policy(autoApply=False)
    following = start(runner, harness.rule())
    harness.work_id(run_id(following))
    harness.pass_minutes(15)
    assert end_of(runner, following) is None
    harness.pass_minutes(1)
    end = end_of(runner, following)
    assert end is not None
    assert (end.status, end.error_code) == ("failed", "CONFLICT")
    assert (
        end.error
        == f"Rule run {run_id(following)} stayed a preview: The run must be approved first."
    )


def test_a_deleted_run_fails_the_job_as_not_found(runner: RemoteRunner) -> None:
    end = end_of(runner, {"ruleRunId": "99"})
    assert (end and end.error_code, end and end.error) == ("NOT_FOUND", "Rule run 99 is gone.")


def test_a_cancelled_job_cancels_its_run(harness: PricingHarness, runner: RemoteRunner) -> None:
    following = start(runner, harness.rule())
    assert [runner.cancel(following, "user:12", "wrong day") for _ in range(2)] == [False, False]
    assert harness.run_row(run_id(following)).cancelled_by == "user:12"
    end = end_of(runner, following)
    assert (end and end.status) == "cancelled"
    assert harness.work_id(run_id(following)).status == "PREVIEW"
    assert runner.cancel({"ruleRunId": "99"}, "user:12") is False


def test_cancelling_a_preview_that_awaits_approval_prevents_its_application(
    harness: PricingHarness, runner: RemoteRunner
) -> None:
    harness.set_policy(autoApply=False)
    following = start(runner, harness.rule())
    assert runner.cancel(following, "user:12") is False
    following = start(runner, harness.rule())
    harness.work_id(run_id(following))
    assert [runner.cancel(following, "user:12") for _ in range(2)] == [True, True]
    run = harness.run(run_id(following))
    harness.approve(run)
    assert harness.work(run).status == "PREVIEW"
    harness.queue(run)
    assert runner.cancel(following, "user:12") is False
    assert harness.run_row(run.id).cancelled_by == "user:12"


def test_polling_many_runs_takes_as_many_queries_as_polling_one(
    harness: PricingHarness, runner: RemoteRunner
) -> None:
    ids = [
        make_run(harness.database, harness.rule(), "APPLIED", harness.clock.now(), ["APPLIED"])
        for _ in range(4)
    ]
    counts: list[int] = []
    for chosen in (ids[:1], ids):
        seen: list[str] = []
        listener = lambda *given: seen.append(given[2])  # noqa: E731, B023  takes the arguments of the event
        event.listen(harness.database.engine, "before_cursor_execute", listener)
        assert len(runner.find_ended({id_: {"ruleRunId": str(id_)} for id_ in chosen})) == len(
            chosen
        )
        event.remove(harness.database.engine, "before_cursor_execute", listener)
        counts.append(len(seen))
    assert counts[0] == counts[1]
