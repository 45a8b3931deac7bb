"""Tests of `automation pricing runs`: show, apply, retry, roll back, reconcile, and follow."""

import json
from datetime import timedelta

import pytest

from automation_pipeline.cli.progress import LaunchWait
from automation_pipeline.core.clock import iso
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.pricing.commands import runs
from automation_pipeline.pricing.commands.rendering import next_step, outcome, target_counts
from automation_pipeline.pricing.commands.runs import follow_run, is_over, run_bar
from automation_pipeline.pricing.models.rules import parse_policy
from automation_pipeline.pricing.models.runs import (
    PricingRunState,
    RuleRun,
    RunAction,
    TargetCounts,
)
from automation_pipeline.pricing.models.shop import ShopShown
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.pricing.commands import PricingCommands
from automation_pipeline_tests.cli.terminal import during_pauses, time_passes
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import FakeShop


def test_runs_are_listed_newest_first_and_can_be_filtered(commands: PricingCommands) -> None:
    commands.applied()
    commands.json("preview", "1")
    commands.json("preview", commands.rule("--project", "other"))

    def listed(*options: str) -> list[str]:
        return [run["id"] for run in commands.json("runs", "list", *options)["runs"]]

    assert listed() == ["3", "2", "1"]
    assert listed("--project", "other") == ["3"]
    assert listed("--rule", "1") == ["2", "1"]
    assert listed("--status", "applied") == ["1"]
    assert listed("--limit", "1", "--offset", "1") == ["2"]
    assert [commands.json("runs", "list", "--limit", n)["more"] for n in ("2", "3")] == [
        True,
        False,
    ]
    result = commands.text("runs", "list", "--limit", "2")
    assert "2 1 Summer [sale] default PREVIEW cli" in result
    assert result.endswith("There are more rows: --offset 2 shows the next page.")
    assert commands.refused("runs", "list", "--status", "done", code=2).startswith(
        "Invalid value for '--status'"
    )


def test_a_run_shows_its_status_and_the_next_command(commands: PricingCommands) -> None:
    run_id = commands.previewed()
    shown = commands.text("runs", "show", run_id)
    assert (
        "run 1 of rule 1, Summer [sale], version 1 project default shop shop.test status PREVIEW"
        in shown
    )
    assert (
        "picked 5 = 4 to change + 1 skipped + 0 blocked skipped 1 not_active targets 4 = 4 preview"
        in shown
    )
    assert "Apply it, until " in shown
    asked = commands.text("runs", "apply", run_id)
    assert asked == "Run 1 is queued, 4 prices: `automation pricing runs watch 1` follows it."
    assert commands.text("runs", "show", run_id).endswith(
        "Follow it: `automation pricing runs watch 1`."
    )
    commands.work(run_id)
    shown = commands.text("runs", "show", run_id)
    assert "status APPLIED" in shown
    assert (
        "targets 4 = 4 applied success 100.0 % Take it back: `automation pricing runs rollback 1`."
        in shown
    )
    assert commands.json("runs", "show", run_id)["targets"]["applied"] == 4


def test_a_cancelled_or_failed_run_shows_the_status(
    commands: PricingCommands, shop: FakeShop
) -> None:
    shop.refuse("11")
    shop.refuse("12")
    run_id = commands.applied()
    shown = commands.text("runs", "show", run_id)
    assert "status PARTIAL" in shown
    assert "targets 4 = 2 applied + 2 failed success 50.0 %" in shown
    assert (
        "See what failed: `automation pricing runs targets 1 --status FAILED`; retry: `automation"
        in shown
    )
    assert shown.endswith("Take it back: `automation pricing runs rollback 1`.")
    cancelled = commands.previewed()
    commands.json("runs", "apply", cancelled)
    result = commands.text("runs", "cancel", cancelled)
    assert result == "Run 2 is cancelled. Run 2 is FAILED: 4 = 4 failed (4 of them cancelled)."
    assert "cancelled asked for 20" in commands.text("runs", "show", cancelled)
    assert "nothing to cancel" in commands.refused("runs", "cancel", cancelled)


def test_targets_shows_every_target_with_its_error(
    commands: PricingCommands, shop: FakeShop
) -> None:
    shop.refuse("11", "INVALID_INPUT")
    run_id = commands.applied()
    every = commands.json("runs", "targets", run_id)["targets"]
    assert [(one["variantId"], one["status"]) for one in every] == [
        ("11", "FAILED"), ("12", "APPLIED"), ("13", "APPLIED"), ("21", "APPLIED")
    ]  # fmt: skip
    assert commands.json("runs", "targets", run_id, "--status", "failed")["targets"] == every[:1]
    result = commands.text("runs", "targets", run_id)
    assert (
        "1 Mug [small] 1/11 MUG-S 19.99 EUR 17.99 EUR -10.0 % -2.00 EUR FAILED validation, not retryable"
        in result
    )
    assert "2 Mug [large] 1/12 MUG-L 29.99 EUR 26.99 EUR -10.0 % -3.00 EUR APPLIED" in result
    assert "tries" not in result
    commands.harness.set_target(int(every[1]["id"]), attempts=2)
    result = commands.text("runs", "targets", run_id, "--status", "applied")
    assert "-3.00 EUR APPLIED 2 " in result


def test_the_run_log_contains_every_transition(commands: PricingCommands) -> None:
    run_id = commands.applied(selector={"sku": "TABLE"})
    moves = commands.json("runs", "log", run_id)["log"]
    assert [(one["machine"], one["fromState"], one["toState"], one["actor"]) for one in moves] == [
        ("rule run", "PREVIEW", "QUEUED", "cli:ada"),
        ("rule target", "PREVIEW", "QUEUED", "cli:ada"),
        ("rule run", "QUEUED", "APPLYING", "worker"),
        ("rule target", "QUEUED", "APPLYING", "worker"),
        ("rule target", "APPLYING", "APPLIED", "worker"),
        ("rule run", "APPLYING", "APPLIED", "worker"),
    ]
    lines = commands.run("runs", "log", run_id).out.splitlines()
    assert len(lines) == 6
    assert lines[0].endswith("rule run 1          PREVIEW -> QUEUED  by cli:ada")


@every_case(
    "what", ["show", "targets", "log", "apply", "approve", "retry", "cancel", "watch", "rollback"]
)
def test_an_unknown_run_prints_one_sentence(commands: PricingCommands, what: str) -> None:
    assert commands.refused("runs", what, "9") == "Rule run 9 not found."
    assert commands.refused("runs", what, "x", code=2).startswith("Invalid value for 'run_id': ")


def test_a_previewed_run_can_be_applied_and_followed(
    commands: PricingCommands, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = commands.previewed()
    during_pauses(monkeypatch, lambda: commands.work(run_id))
    result = commands.text("runs", "apply", run_id, "--wait")
    assert (
        "Run 1 is APPLIED: 4 = 4 applied. Take it back: `automation pricing runs rollback 1`."
        in result
    )
    assert shop.amounts() == {"11": 1799, "12": 2699, "13": 900, "21": 45_000, "31": 100}
    assert "4/4" in result


def test_an_unsuccessful_run_exits_with_1(
    commands: PricingCommands, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.refuse("11")
    run_id = commands.previewed()
    during_pauses(monkeypatch, lambda: commands.work(run_id))
    document = commands.json("runs", "apply", run_id, "--wait", code=1)
    assert (document["run_id"], document["status"], document["run"]["targets"]["failed"]) == (
        "1",
        "PARTIAL",
        1,
    )
    assert commands.json("runs", "watch", run_id, code=1)["status"] == "PARTIAL"


def test_starting_a_rule_plans_and_applies_it(
    commands: PricingCommands, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule_id = commands.rule()
    during_pauses(monkeypatch, lambda: commands.work("1"))
    assert commands.json("runs", "start", rule_id, "--wait")["status"] == "APPLIED"
    assert shop.call_count("write") == 2
    result = commands.text("runs", "start", rule_id)
    assert result == "Run 2 of rule 1 is requested: `automation pricing runs watch 2` follows it."
    assert commands.json("runs", "show", "2")["wish"] == "apply"
    assert commands.refused("runs", "start", rule_id).startswith(
        "Run 2 of pricing rule 1 waits to be applied"
    )


def test_a_start_that_requires_approval_remains_a_preview_with_the_reason(
    commands: PricingCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.json("policy", "set", "--file", "-", given={"maxPctDelta": 0.5})
    rule_id = commands.rule()
    during_pauses(monkeypatch, lambda: commands.work("1"))
    result = commands.text("runs", "start", rule_id, "--wait", code=1)
    assert (
        "Run 1 is PREVIEW: 4 = 4 preview. The run must be approved first. A second person must approve it"
        in result
    )


def test_force_overrides_the_cooldown(commands: PricingCommands) -> None:
    commands.applied(cooldownMinutes=60)
    assert "rests until" in commands.refused("runs", "start", "1")
    commands.json("preview", "1")
    assert "rests until" in commands.refused("runs", "apply", "2")
    assert commands.json("runs", "apply", "2", "--force")["status"] == "QUEUED"


def test_retry_retries_failed_targets(
    commands: PricingCommands, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.refuse("11")
    shop.refuse("12")
    run_id = commands.applied()
    assert "No failed target of the run is retryable" in commands.refused("runs", "retry", run_id)
    first = commands.target(run_id, "11")
    message = commands.refused("runs", "retry", run_id, "--target", first, code=2)
    assert message.endswith(f"targetIds: {first} would fail again: fix its cause, then use force.")
    shop.accept("11")
    shop.accept("12")
    during_pauses(monkeypatch, lambda: commands.work(run_id))
    one = commands.json("runs", "retry", run_id, "--target", first, "--force", "--wait", code=1)
    assert (one["status"], one["run"]["targets"]["failed"]) == ("PARTIAL", 1)
    result = commands.text("runs", "retry", run_id, "--force")
    assert result == "Run 1 will be retried: `automation pricing runs watch 1` follows it."
    during_pauses(monkeypatch, lambda: commands.work(run_id))
    assert commands.json("runs", "watch", run_id)["status"] == "APPLIED"


def test_a_run_can_be_rolled_back(
    commands: PricingCommands, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, run_id = shop.amounts(), commands.applied()
    during_pauses(monkeypatch, lambda: commands.work(run_id))
    result = commands.text("runs", "rollback", run_id, "--wait")
    assert "Run 1 is ROLLED_BACK: 4 = 4 rolled back." in result
    assert shop.amounts() == before
    assert commands.json("runs", "watch", run_id)["status"] == "ROLLED_BACK"
    assert (
        commands.refused("runs", "rollback", run_id)
        == "A run that is ROLLED_BACK cannot be rolled back."
    )


def test_selected_targets_can_be_rolled_back(
    commands: PricingCommands, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = commands.applied()
    chosen = ["--target", commands.target(run_id, "11"), "--target", commands.target(run_id, "21")]
    during_pauses(monkeypatch, lambda: commands.work(run_id))
    document = commands.json("runs", "rollback", run_id, *chosen, "--wait")
    assert (document["status"], document["run"]["rollbackState"]) == ("APPLIED", "PARTIAL")
    assert shop.amounts() == {"11": 1999, "12": 2699, "13": 900, "21": 50_000, "31": 100}
    assert commands.text("runs", "show", run_id).endswith(
        "Take the rest back: `automation pricing runs rollback 1`."
    )
    shop.edit("12", amount=1234)
    edited = ["--target", commands.target(run_id, "12")]
    during_pauses(monkeypatch, lambda: commands.work(run_id))
    document = commands.json("runs", "rollback", run_id, *edited, "--wait", code=1)
    assert document["run"]["targets"]["rolledBack"] == 2


def test_rollback_keeps_later_edits_unless_forced(
    commands: PricingCommands, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = commands.applied()
    shop.edit("11", amount=1500)
    during_pauses(monkeypatch, lambda: commands.work(run_id))
    assert commands.json("runs", "rollback", run_id, "--wait", code=1)["status"] == "APPLIED"
    assert shop.amounts()["11"] == 1500
    commands.json("runs", "rollback", run_id)
    during_pauses(monkeypatch, lambda: commands.work(run_id))
    assert commands.json("runs", "watch", run_id, code=1)["status"] == "APPLIED"
    during_pauses(monkeypatch, lambda: commands.work(run_id))
    assert commands.json("runs", "rollback", run_id, "--force", "--wait")["status"] == "ROLLED_BACK"
    assert shop.amounts()["11"] == 1999


def test_a_rollback_asks_for_confirmation_at_a_terminal(commands: PricingCommands) -> None:
    run_id = commands.applied()
    refused = commands.run("runs", "rollback", run_id, given=b"n\n", is_interactive=True)
    assert (refused.code, refused.out.strip()) == (1, "")
    assert "Take back 4 prices of run 1 (Summer [sale]) in shop.test?" in refused.err
    assert refused.err.endswith("Run 1 is unchanged.\n")
    assert commands.json("runs", "show", run_id)["wish"] is None
    asked = commands.run("runs", "rollback", run_id, "--json", given=b"y\n", is_interactive=True)
    assert json.loads(asked.out)["run"]["wish"] == "rollback"


def test_the_yes_option_skips_the_confirmation(commands: PricingCommands) -> None:
    run_id = commands.applied()
    asked = commands.run("runs", "rollback", run_id, "--yes", is_interactive=True)
    assert (asked.code, asked.err) == (0, "")
    assert asked.out == "Run 1 will be rolled back: `automation pricing runs watch 1` follows it.\n"


def test_reconcile_reports_no_differences_for_unchanged_prices(commands: PricingCommands) -> None:
    run_id = commands.applied()
    assert (
        commands.text("runs", "reconcile", run_id)
        == "Run 1: 4 prices compared, 0 differ, 0 could not be read."
    )
    assert commands.json("runs", "reconcile", run_id, "--repair")["repairRunId"] is None


def test_reconcile_shows_differences_by_severity_and_exits_with_1(
    commands: PricingCommands, shop: FakeShop
) -> None:
    run_id = commands.applied()
    shop.edit("11", amount=1800)
    assert "INFO" in commands.text("runs", "reconcile", run_id).upper()
    shop.edit("12", amount=3000)
    shop.edit("21", amount=45_100)
    shop.remove("13")
    result = commands.text("runs", "reconcile", run_id, code=1)
    assert "MUG-S 17.99 EUR 18.00 EUR +0.1 % info" in result
    assert "MUG-L 26.99 EUR 30.00 EUR +11.2 % critical" in result
    assert "TABLE 450.00 EUR 451.00 EUR +0.2 % warning" in result
    assert "Run 1: 3 prices compared, 3 differ, 1 could not be read." in result
    assert "`automation pricing runs reconcile 1 --repair` plans a run that does that." in result


def test_a_repair_creates_a_run(commands: PricingCommands, shop: FakeShop) -> None:
    run_id = commands.applied()
    shop.edit("12", amount=3000)
    document = commands.json("runs", "reconcile", run_id, "--repair", code=1)
    assert (document["mismatches"], document["repairRunId"]) == (1, "2")
    assert "created from run 1" in commands.text("runs", "show", "2")
    commands.json("runs", "apply", "2")
    commands.work("2")
    assert shop.amounts()["12"] == 2699
    shop.edit("12", amount=3000)
    assert commands.json("runs", "reconcile", run_id)["totalChecked"] == 3
    result = commands.text("runs", "reconcile", "2", "--repair", code=1)
    assert "would write 1 price again: `automation pricing runs apply 3`." in result


RUN_CONTINUES = "Run 1 continues. `automation pricing runs show 1` shows its status.\n"


def make_run(clock: FakeClock, **fields: object) -> RuleRun:
    nothing = dict.fromkeys(
        name for name, field in RuleRun.model_fields.items() if field.is_required()
    )
    known: dict[str, object] = {
        "id": 1, "project_id": "default", "rule_id": 1, "rule_name": "Summer", "rule_version": 1,
        "rule_version_hash": "x", "shop": "shop.test",
        "status": PricingRunState.QUEUED, "trigger": "cli", "retry_cycle": 0,
        "created_by": "cli:ada", "rollback_state": "NONE", "matched": 10, "total_targets": 10, "skipped": 0,
        "blocked": 0, "targets": TargetCounts(queued=10), "created_at": clock.now(), "updated_at": clock.now(),
        "previewed_at": clock.now(),
    }  # fmt: skip
    return RuleRun.model_validate(nothing | known | fields)


def stop_code(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, run: RuleRun, *, paused: bool = False
) -> str | None:
    """Return the exit code with which the command stops following the run, or None."""
    shop = ShopShown(shop="shop.test", paused_at=clock.now() if paused else None)
    no_daemon = NotStartedError("NO_DAEMON", "")
    with monkeypatch.context() as patch:
        patch.setattr(runs, "rule_run", lambda _run_id: run)
        patch.setattr(runs, "get_shop", lambda: shop)
        patch.setattr(LaunchWait, "_local_obstacle", lambda _wait, _waited: no_daemon)
        time_passes(patch, clock, 120)
        try:
            follow_run(1, quiet=True)
        except NotStartedError as error:
            return error.code
        except KeyboardInterrupt:
            return None
    return "ended"


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_prints_that_the_run_continues(
    commands: PricingCommands, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    run_id = commands.previewed()
    during_pauses(monkeypatch)
    ended = commands.run("runs", "apply", run_id, "--wait", *flags)
    assert (ended.code, ended.err) == (130, RUN_CONTINUES)
    assert commands.json("runs", "show", run_id)["status"] == "QUEUED"


@pytest.mark.usefixtures("commands")
def test_the_command_prints_why_a_run_does_not_start(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stop_code(monkeypatch, clock, make_run(clock)) == "NO_DAEMON"
    assert stop_code(monkeypatch, clock, make_run(clock), paused=True) == "SHOP_PAUSED"
    assert stop_code(monkeypatch, clock, make_run(clock, status=PricingRunState.APPLYING)) is None
    later = clock.now() + timedelta(hours=1)
    assert stop_code(monkeypatch, clock, make_run(clock, resume_at=iso(later))) is None, (
        "the time of its next attempt is known"
    )


@pytest.mark.parametrize(
    ("fields", "bar"),
    [
        (
            {"status": "PREVIEW", "previewed_at": None, "wish": RunAction.APPLY},
            ("reading the catalogue", 0, None),
        ),
        ({"status": "PREVIEW", "previewed_at": None}, ("not planned", 0, None)),
        ({"status": "PREVIEW"}, ("preview: 0 applied, 0 failed", 0, 10)),
        ({"status": "QUEUED"}, ("queued: 0 applied, 0 failed", 0, 10)),
        (
            {"status": "APPLYING", "resume_at": "2026-05-04T10:05:00Z"},
            ("applying: 0 applied, 0 failed, continues at 10:05:00 UTC", 0, 10),
        ),
        (
            {"status": "APPLIED", "resume_at": "2026-05-04T10:05:00Z"},
            ("applied: 0 applied, 0 failed", 0, 10),
        ),
        (
            {"status": "ROLLED_BACK", "targets": TargetCounts(rolled_back=9, failed=1)},
            ("taking back: 0 applied", 9, 9),
        ),
        (
            {"status": "PARTIAL", "targets": TargetCounts(applied=5, failed=1, rolled_back=4)},
            ("partial: 5 applied, 1 failed", 10, 10),
        ),
        (
            {"status": "APPLYING", "targets": TargetCounts(applied=6, failed=1, queued=3)},
            ("applying: 6 applied, 1 failed", 7, 10),
        ),
        (
            {
                "status": "APPLIED",
                "wish": RunAction.ROLLBACK,
                "targets": TargetCounts(applied=4, rolled_back=6),
            },
            ("taking back: 4 applied", 6, 10),
        ),
        (
            {"status": "PARTIAL", "targets": TargetCounts(applied=9, failed=1)},
            ("partial: 9 applied, 1 failed", 10, 10),
        ),
    ],
)
def test_the_progress_bar_counts_finished_targets(
    clock: FakeClock, fields: dict[str, object], bar: tuple[str, int, int | None]
) -> None:
    assert run_bar(make_run(clock, **fields)) == bar


FOLLOW = "Follow it: `automation pricing runs watch 1`."
APPLY = "Apply it, until 10:15 UTC: `automation pricing runs apply 1`."
APPROVE = (
    "A second person must approve it, with `automation pricing runs approve 1`. Then apply it, until 10:15 UTC: "
    "`automation pricing runs apply 1`."
)
RETRY = (
    "See what failed: `automation pricing runs targets 1 --status FAILED`; "
    "retry: `automation pricing runs retry 1`."
)
ROLL_BACK = "Take it back: `automation pricing runs rollback 1`."


@pytest.mark.parametrize(
    ("fields", "policy", "sentence"),
    [
        ({"status": "QUEUED"}, None, FOLLOW),
        ({"status": "APPLYING"}, None, FOLLOW),
        ({"status": "FAILED", "wish": "retry"}, None, FOLLOW),
        ({"status": "PREVIEW"}, None, APPLY),
        ({"status": "PREVIEW"}, {"autoApply": True}, APPLY),
        ({"status": "PREVIEW"}, {}, APPROVE),
        ({"status": "PREVIEW", "approved_by": "cli:ada"}, {}, APPROVE),
        ({"status": "PREVIEW", "approved_by": "cli:bob"}, {}, APPLY),
        ({"status": "PREVIEW", "previewed_at": None}, None, None),
        ({"status": "PREVIEW", "cancel_requested_at": "2026-05-04T10:00:00Z"}, None, None),
        ({"status": "PREVIEW", "total_targets": 0}, None, "There is nothing to apply."),
        ({"status": "FAILED", "targets": TargetCounts(failed=1)}, None, RETRY),
        ({"status": "APPLIED", "targets": TargetCounts(applied=1)}, None, ROLL_BACK),
        (
            {"status": "PARTIAL", "targets": TargetCounts(applied=1, failed=1)},
            None,
            f"{RETRY} {ROLL_BACK}",
        ),
        (
            {
                "status": "APPLIED",
                "rollback_state": "PARTIAL",
                "targets": TargetCounts(applied=1, rolled_back=1),
            },
            None,
            ROLL_BACK.replace("it", "the rest"),
        ),
        ({"status": "ROLLED_BACK", "targets": TargetCounts(rolled_back=1)}, None, None),
    ],
)
def test_the_next_command_follows_from_the_run_and_the_guardrails(
    clock: FakeClock,
    fields: dict[str, object],
    policy: dict[str, object] | None,
    sentence: str | None,
) -> None:
    guardrails = None if policy is None else parse_policy(policy)
    assert next_step(make_run(clock, **fields), guardrails) == sentence


@pytest.mark.parametrize(
    ("counts", "total", "text"),
    [
        (TargetCounts(), 0, None),
        (TargetCounts(applied=2), 2, "2 = 2 applied"),
        (
            TargetCounts(applied=2, rolled_back=1, failed=3, cancelled=2),
            6,
            "6 = 2 applied + 3 failed + 1 rolled back (2 of them cancelled)",
        ),
    ],
)
def test_the_targets_of_a_run_are_counted_by_state(
    clock: FakeClock, counts: TargetCounts, total: int, text: str | None
) -> None:
    run = make_run(clock, targets=counts, total_targets=total)
    assert target_counts(run) == text
    assert outcome(run) == f"Run 1 is QUEUED: {text or 'no target'}."


@every_case("requested", [None, *RunAction])
@every_case("status", list(PricingRunState))
def test_a_run_has_ended_if_it_is_not_active_and_has_no_open_request(
    clock: FakeClock, status: PricingRunState, requested: RunAction | None
) -> None:
    has_work = requested is not None or status in {PricingRunState.QUEUED, PricingRunState.APPLYING}
    assert is_over(make_run(clock, status=status, wish=requested)) is not has_work
