"""Tests of `automation pricing` through the API of a remote machine."""

import pytest

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.alerts import AlertCondition, AlertSeverity
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.pricing.monitoring import PRICING_ALERTS
from automation_pipeline.pricing.rules.monitoring import PricingAlertName
from automation_pipeline.storage.alerts import add_alerts
from automation_pipeline_tests.cli.pricing.commands import TENTH_OFF, PricingCommands, make_shop
from automation_pipeline_tests.cli.remote.served import RemoteTerminal
from automation_pipeline_tests.cli.terminal import Terminal, during_pauses
from automation_pipeline_tests.fakes.shop import FakeShop, storefront
from automation_pipeline_tests.pricing.harness import PricingHarness
from automation_pipeline_tests.pricing.rows import EVERY_ALERT

READ_COMMANDS = """
rules list
rules list --json
rules list --project other --json
rules list --enabled --query summer --limit 1
rules show 1
rules show 1 --json
rules versions 1
rules versions 1 --json
runs list
runs list --json
runs list --rule 1 --status PARTIAL --limit 1
runs show 1
runs show 1 --json
runs targets 1
runs targets 1 --status FAILED --json
runs log 1
runs log 1 --json
runs watch 1
dlq
dlq --json
dlq --project unknown
policy show
policy show --json
policy show --project summer
shop show
shop show --json
alerts
alerts --project summer --json
changes
changes --run 1 --json
changes --variant 21
"""

REFUSED = """
rules show 99
rules versions 99
rules delete 99 --yes
preview 99
runs show 99
runs targets 99
runs log 99
runs start 99
runs apply 99
runs apply 1
runs approve 99
runs approve 1
runs retry 99
runs retry 1
runs retry 1 --target 77 --force
runs rollback 99
runs rollback 1 --target 77
runs cancel 99
runs cancel 1
runs reconcile 99
runs watch 99
dlq --acknowledge --target 77
policy remove --project unknown
"""

FAULTY: list[tuple[str, object]] = [
    ("rules create --file -", {**TENTH_OFF, "currency": "euro", "colour": "red"}),
    ("rules update 1 --file -", {"name": None}),
    ("policy set --file -", {"maxPctDelta": 2}),
]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> FakeShop:
    shop = make_shop()
    monkeypatch.setattr(Services, "storefront", storefront(shop))
    return shop


@pytest.fixture
def pricing(terminal: Terminal, shop: FakeShop) -> PricingCommands:
    """Run 1 of rule 1 is applied except for one target; project `summer` has guardrails, an alert,
    and a rule."""
    terminal.export(LOGNAME="ada")
    shop.refuse("11")
    pricing = PricingCommands(terminal, PricingHarness(terminal.database, SystemClock(), shop))  # type: ignore[arg-type]  no time passes
    pricing.applied()
    pricing.rule("--project", "summer", name="Été", enabled=False)
    pricing.json(
        "policy",
        "set",
        "--file",
        "-",
        "--project",
        "summer",
        given={"floor": 100, "currency": "EUR"},
    )
    alert = AlertCondition(
        name=PricingAlertName.DEAD_LETTERS,
        severity=AlertSeverity.WARNING,
        subject="summer",
        message="60 failed [price] changes wait.",
    )
    with terminal.database.transaction() as session:
        add_alerts(session, PRICING_ALERTS, [alert], SystemClock().now(), EVERY_ALERT)
    return pricing


def lines(text: str) -> list[str]:
    return [f"pricing {command}" for command in text.strip().splitlines()]


def test_output_is_the_same_through_the_api(
    pricing: PricingCommands, remote: RemoteTerminal
) -> None:
    assert remote.differences(lines(READ_COMMANDS)) == []


def test_rejections_are_the_same_through_the_api(
    pricing: PricingCommands, remote: RemoteTerminal
) -> None:
    commands = lines(REFUSED)
    assert remote.differences(f"{command} --json" for command in commands[1::2]) == []
    assert remote.differences(commands[::2]) == []
    ended = [remote.run(*command.split()) for command in commands]
    assert {(end.code > 0, end.out, len(end.err.splitlines())) for end in ended} == {(True, "", 1)}


def test_input_errors_are_the_same_through_the_api(
    pricing: PricingCommands, remote: RemoteTerminal
) -> None:
    for command, given in FAULTY:
        assert remote.differences(lines(command), given) == []


def test_a_price_can_be_changed_and_rolled_back_through_the_api(
    pricing: PricingCommands,
    remote: RemoteTerminal,
    shop: FakeShop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    created = remote.json(
        "pricing",
        "rules",
        "create",
        "--file",
        "-",
        given={**TENTH_OFF, "selector": {"sku": "MUG-0"}},
    )
    assert created == pricing.json("rules", "show", created["id"])
    changed = remote.json(
        "pricing", "rules", "update", created["id"], "--file", "-", given={"name": "Other"}
    )
    assert (changed["name"], changed["version"]) == ("Other", 1)
    shop.edit("13", amount=2000)
    planned = remote.json("pricing", "preview", created["id"])
    assert [target["after"]["unitAmount"] for target in planned["targets"]] == [1800]
    assert (planned["run"]["trigger"], planned["truncated"]) == ("api", False)
    run_id = planned["run_id"]
    during_pauses(monkeypatch, lambda: pricing.work(run_id))
    assert remote.json("pricing", "runs", "apply", run_id, "--wait")["status"] == "APPLIED"
    assert shop.amounts()["13"] == 1800
    assert remote.json("pricing", "runs", "reconcile", run_id)["mismatches"] == 0
    during_pauses(monkeypatch, lambda: pricing.work(run_id))
    assert remote.json("pricing", "runs", "rollback", run_id, "--wait")["status"] == "ROLLED_BACK"
    assert shop.amounts()["13"] == 2000
    assert remote.json("pricing", "rules", "delete", created["id"], "--yes") == {
        "id": created["id"],
        "deleted": True,
    }


def test_dead_letters_can_be_handled_through_the_api(
    pricing: PricingCommands, remote: RemoteTerminal, shop: FakeShop
) -> None:
    shop.accept("11")
    assert remote.json("pricing", "dlq", "--retry", "--force") == {
        "project": "default",
        "run_ids": ["1"],
    }
    pricing.work("1")
    assert pricing.json("runs", "show", "1")["status"] == "APPLIED"
    shop.refuse("21")
    failed = pricing.applied()
    target = pricing.target(failed, "21")
    assert remote.json("pricing", "dlq", "--acknowledge", "--target", target)["acknowledged"] == 1
    assert remote.json("pricing", "dlq")["totalFailed"] == 0


def test_the_shop_and_its_guardrails_can_be_managed_through_the_api(
    pricing: PricingCommands, remote: RemoteTerminal
) -> None:
    assert remote.json("pricing", "shop", "pause", "--reason", "count")["pauseReason"] == "count"
    assert pricing.json("shop", "show")["pausedAt"] is not None
    assert remote.json("pricing", "shop", "resume")["pausedAt"] is None
    guardrails = remote.json("pricing", "policy", "set", "--file", "-", given={"maxPctDelta": 0.5})
    assert guardrails == pricing.json("policy", "show")
    run_id = remote.json("pricing", "preview", "1")["run_id"]
    assert remote.run("pricing", "runs", "apply", run_id).err == "The run must be approved first.\n"
    refused = pricing.refused("runs", "approve", run_id)
    assert refused == "The run must be approved by a person other than the author of its rule."
    pricing.terminal.export(LOGNAME="bob")
    assert pricing.json("runs", "approve", run_id)["approvedBy"] == "cli:bob"
    assert remote.json("pricing", "runs", "apply", run_id)["status"] == "QUEUED"
    assert remote.json("pricing", "runs", "cancel", run_id)["status"] == "FAILED"
    assert remote.json("pricing", "policy", "remove") == {"project": "default", "removed": True}
    assert remote.json("pricing", "runs", "start", "1")["run"]["wish"] == "apply"


def test_a_run_can_be_repaired_through_the_api(
    pricing: PricingCommands, remote: RemoteTerminal, shop: FakeShop
) -> None:
    shop.edit("21", amount=77_700)
    document = remote.json("pricing", "runs", "reconcile", "1", "--repair", code=1)
    assert (document["mismatches"], document["repairRunId"]) == (1, "2")
    assert remote.json("pricing", "runs", "show", "2")["parentRunId"] == "1"
