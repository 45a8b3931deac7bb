"""Tests of the commands for the shop, alerts, written prices, and dead letters."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.core.alerts import AlertCondition, AlertSeverity
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.pricing.monitoring import PRICING_ALERTS
from automation_pipeline.pricing.rules.monitoring import PricingAlertName
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.alerts import add_alerts
from automation_pipeline_tests.cli.pricing.commands import PricingCommands
from automation_pipeline_tests.cli.terminal import Terminal
from automation_pipeline_tests.fakes.shop import FakeShop


def test_a_shop_shows_its_status(commands: PricingCommands) -> None:
    document = commands.json("shop", "show")
    assert (document["shop"], document["circuit"]["state"], document["pausedAt"]) == (
        "shop.test",
        "closed",
        None,
    )
    result = commands.text("shop", "show")
    assert result.startswith(
        "shop shop.test prices are written calls are made points 1000000000 of 1000000000 were left"
    )


def test_a_shop_can_be_paused_with_a_reason_and_resumed(commands: PricingCommands) -> None:
    document = commands.json("shop", "pause", "--reason", "Stock [count]")
    assert (document["pausedBy"], document["pauseReason"]) == ("cli:ada", "Stock [count]")
    assert "UTC, paused by cli:ada: Stock [count]" in commands.text("shop", "show")
    resumed = commands.text("shop", "resume")
    assert "prices are written" in resumed
    assert commands.json("shop", "show")["pausedAt"] is None


@pytest.mark.parametrize(
    ("circuit", "text"),
    [
        ({"circuit": "open"}, "are not made until "),
        ({"circuit": "half_open"}, "one probe is made to see whether the shop has recovered"),
        ({"circuit": "closed"}, "the shop asked for a pause until "),
        (
            {"circuit": "closed", "refusals": [1.0, 60.0]},
            "2 calls because of its rate limit, last at 1970-01-01 00:01 UTC",
        ),
    ],
)
def test_the_circuit_breaker_state_is_described_in_words(
    commands: PricingCommands, circuit: dict[str, object], text: str
) -> None:
    until = SystemClock().now() + timedelta(hours=1)
    with commands.terminal.database.transaction() as session:
        session.execute(update(ShopRow).values(until=until, **circuit))
    assert text in commands.text("shop", "show")


def test_a_missing_shop_setting_is_named(terminal: Terminal) -> None:
    ended = terminal.run("pricing", "shop", "show")
    assert (ended.code, ended.out) == (1, "")
    assert "SHOP_API_BASE_URL" in ended.err


def test_every_written_price_is_listed_newest_last(commands: PricingCommands) -> None:
    run_id = commands.applied()
    commands.json("runs", "rollback", run_id)
    commands.work(run_id)
    commands.applied(selector={"sku": "TABLE"})

    def listed(*options: str) -> list[tuple[str, str, int]]:
        found = commands.json("changes", *options)["changes"]
        return [(one["variantId"], one["kind"], one["toAmount"]) for one in found]

    assert listed("--variant", "21") == [
        ("21", "apply", 45_000), ("21", "rollback", 50_000), ("21", "apply", 45_000)
    ]  # fmt: skip
    assert len(listed("--run", run_id)) == 8
    assert listed("--run", "2") == [("21", "apply", 45_000)]
    assert len(listed()) == 9
    assert listed("--project", "other") == []
    result = commands.text("changes", "--run", "2")
    assert "2 apply (rule:2) 2/21 TABLE 500.00 EUR 450.00 EUR -10.0 % -50.00 EUR" in result


def test_a_price_that_the_shop_already_had_is_noted(
    commands: PricingCommands, shop: FakeShop
) -> None:
    run_id = commands.previewed(selector={"sku": "TABLE"})
    shop.edit("21", amount=45_000)
    commands.json("runs", "apply", run_id)
    commands.work(run_id)
    assert commands.text("changes").endswith("-10.0 % -50.00 EUR the shop already had it")


def test_alerts_are_listed_newest_first(commands: PricingCommands) -> None:
    raised = [
        AlertCondition(
            name=PricingAlertName.DEAD_LETTERS,
            severity=AlertSeverity.WARNING,
            subject="default",
            message="60 failed price changes wait.",
        ),
        AlertCondition(
            name=PricingAlertName.SUCCESS_RATE,
            severity=AlertSeverity.CRITICAL,
            subject="summer",
            message="Only [half] succeeded.",
        ),
    ]
    with commands.terminal.database.transaction() as session:
        add_alerts(session, PRICING_ALERTS, raised, commands.harness.clock.now(), {})
    assert [one["projectId"] for one in commands.json("alerts")["alerts"]] == ["summer", "default"]
    assert [one["id"] for one in commands.json("alerts", "--project", "default")["alerts"]] == ["1"]
    assert commands.json("alerts", "--limit", "2")["more"] is False
    result = commands.text("alerts", "--limit", "1")
    assert "summer success_rate critical Only [half] succeeded. unsent" in result
    assert result.endswith("There are more rows: --offset 1 shows the next page.")


@pytest.fixture
def failed(commands: PricingCommands, shop: FakeShop) -> str:
    """Create a run with one price rejected by the shop and one edited manually."""
    shop.refuse("11")
    run_id = commands.previewed()
    shop.edit("12", amount=1234)
    commands.json("runs", "apply", run_id)
    commands.work(run_id)
    return run_id


def test_the_report_shows_reasons_and_recommendations(
    commands: PricingCommands, failed: str
) -> None:
    report = commands.json("dlq")
    assert (report["totalFailed"], report["retryable"]) == (2, 0)
    assert report["byErrorType"] == {"conflict": 1, "validation": 1}
    result = commands.text("dlq")
    assert (
        "2 failed: 0 retryable, 0 older than a day. By reason: 1 conflict, 1 validation." in result
    )
    assert "- 1 variant had another price than was previewed: preview again." in result
    assert re.search(r" 1/11 20\S+ \S+ validation no ", result)
    one = commands.target(failed, "11")
    commands.harness.set_target(int(one), error_retryable=True)
    assert re.search(r" 1/11 20\S+ \S+ validation yes ", commands.text("dlq"))
    assert commands.text("dlq", "--project", "other") == "Project other has no dead letter."


def test_dead_letters_can_be_retried_by_force(
    commands: PricingCommands, shop: FakeShop, failed: str
) -> None:
    result = commands.text("dlq", "--retry")
    assert (
        result == "No dead letter can be retried now: remove the cause, then use --retry --force."
    )
    shop.accept("11")
    assert commands.json("dlq", "--retry", "--force") == {"project": "default", "run_ids": [failed]}
    commands.work(failed)
    assert commands.json("dlq")["byErrorType"] == {"conflict": 1}
    result = commands.text("dlq", "--retry", "--force")
    assert (
        result == f"Retried in run {failed}: `automation pricing runs watch {failed}` follows it."
    )


def test_acknowledged_dead_letters_are_no_longer_reported(
    commands: PricingCommands, failed: str
) -> None:
    one = commands.target(failed, "11")
    assert commands.json("dlq", "--acknowledge", "--target", one) == {
        "project": "default",
        "acknowledged": 1,
    }
    assert [entry["targetId"] for entry in commands.json("dlq")["entries"]] == [
        commands.target(failed, "12")
    ]
    assert commands.text("dlq", "--acknowledge") == "1 dead letter of default acknowledged."
    assert commands.json("dlq")["totalFailed"] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--retry", "--acknowledge"],
            "Use either --retry or --acknowledge.",
        ),
        (["--force"], "--force requires --retry."),
        (
            ["--target", "1"],
            "--target requires --acknowledge: `automation pricing runs retry` retries single targets.",
        ),
    ],
)
def test_conflicting_options_are_rejected(
    commands: PricingCommands, options: list[str], sentence: str
) -> None:
    assert commands.refused("dlq", *options, code=2) == sentence
