"""What is done about runs: applied, tried again, taken back; --wait follows, and the exit code says
how it ended."""

import json

import pytest

from automation_pipeline_tests.cli.pricing.workshop import Workshop
from automation_pipeline_tests.cli.terminal import meanwhile
from automation_pipeline_tests.fakes.shop import FakeShop


def test_what_was_previewed_is_applied_and_followed(
    workshop: Workshop, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = workshop.previewed()
    meanwhile(monkeypatch, lambda: workshop.work(run_id))
    said = workshop.said("runs", "apply", run_id, "--wait")
    assert (
        "Run 1 is APPLIED: 4 = 4 applied. Take it back: `automation pricing runs rollback 1`."
        in said
    )
    assert shop.amounts() == {"11": 1799, "12": 2699, "13": 900, "21": 45_000, "31": 100}
    assert "4/4" in said


def test_a_run_that_does_not_end_well_ends_with_1(
    workshop: Workshop, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.refuse("11")
    run_id = workshop.previewed()
    meanwhile(monkeypatch, lambda: workshop.work(run_id))
    told = workshop.json("runs", "apply", run_id, "--wait", code=1)
    assert (told["run_id"], told["status"], told["run"]["targets"]["failed"]) == ("1", "PARTIAL", 1)
    assert workshop.json("runs", "watch", run_id, code=1)["status"] == "PARTIAL"


def test_a_rule_is_planned_and_applied_at_once_when_it_is_started(
    workshop: Workshop, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule_id = workshop.rule()
    meanwhile(monkeypatch, lambda: workshop.work("1"))
    assert workshop.json("runs", "start", rule_id, "--wait")["status"] == "APPLIED"
    assert shop.times("write") == 2
    said = workshop.said("runs", "start", rule_id)
    assert said == "Run 2 of rule 1 is asked for: `automation pricing runs watch 2` follows it."
    assert workshop.json("runs", "show", "2")["wish"] == "apply"
    assert workshop.refused("runs", "start", rule_id).startswith(
        "Run 2 of pricing rule 1 waits to be applied"
    )


def test_a_start_that_needs_an_approval_stays_a_preview_and_says_why(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.json("policy", "set", "--file", "-", given={"maxPctDelta": 0.5})
    rule_id = workshop.rule()
    meanwhile(monkeypatch, lambda: workshop.work("1"))
    said = workshop.said("runs", "start", rule_id, "--wait", code=1)
    assert (
        "Run 1 is PREVIEW: 4 = 4 preview. The run must be approved first. A second person must approve it"
        in said
    )


def test_a_rest_is_cut_short_by_force(workshop: Workshop) -> None:
    workshop.applied(cooldownMinutes=60)
    assert "rests until" in workshop.refused("runs", "start", "1")
    workshop.json("preview", "1")
    assert "rests until" in workshop.refused("runs", "apply", "2")
    assert workshop.json("runs", "apply", "2", "--force")["status"] == "QUEUED"


def test_what_failed_is_tried_again(
    workshop: Workshop, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.refuse("11")
    shop.refuse("12")
    run_id = workshop.applied()
    assert "No failed target of the run is worth another attempt" in workshop.refused(
        "runs", "retry", run_id
    )
    first = workshop.target(run_id, "11")
    hopeless = workshop.refused("runs", "retry", run_id, "--target", first, code=2)
    assert hopeless.endswith(f"targetIds: {first} would fail again: fix its cause, then use force.")
    shop.accept("11")
    shop.accept("12")
    meanwhile(monkeypatch, lambda: workshop.work(run_id))
    one = workshop.json("runs", "retry", run_id, "--target", first, "--force", "--wait", code=1)
    assert (one["status"], one["run"]["targets"]["failed"]) == ("PARTIAL", 1)
    said = workshop.said("runs", "retry", run_id, "--force")
    assert said == "Run 1 is asked to try again: `automation pricing runs watch 1` follows it."
    meanwhile(monkeypatch, lambda: workshop.work(run_id))
    assert workshop.json("runs", "watch", run_id)["status"] == "APPLIED"


def test_a_run_is_taken_back(
    workshop: Workshop, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, run_id = shop.amounts(), workshop.applied()
    meanwhile(monkeypatch, lambda: workshop.work(run_id))
    said = workshop.said("runs", "rollback", run_id, "--wait")
    assert "Run 1 is ROLLED_BACK: 4 = 4 rolled back." in said
    assert shop.amounts() == before
    assert workshop.json("runs", "watch", run_id)["status"] == "ROLLED_BACK"
    assert (
        workshop.refused("runs", "rollback", run_id)
        == "A run that is ROLLED_BACK cannot be rolled back."
    )


def test_some_targets_are_taken_back(
    workshop: Workshop, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = workshop.applied()
    chosen = ["--target", workshop.target(run_id, "11"), "--target", workshop.target(run_id, "21")]
    meanwhile(monkeypatch, lambda: workshop.work(run_id))
    told = workshop.json("runs", "rollback", run_id, *chosen, "--wait")
    assert (told["status"], told["run"]["rollbackState"]) == ("APPLIED", "PARTIAL")
    assert shop.amounts() == {"11": 1999, "12": 2699, "13": 900, "21": 50_000, "31": 100}
    assert workshop.said("runs", "show", run_id).endswith(
        "Take the rest back: `automation pricing runs rollback 1`."
    )


def test_what_was_edited_since_stays_unless_forced(
    workshop: Workshop, shop: FakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = workshop.applied()
    shop.edit("11", amount=1500)
    meanwhile(monkeypatch, lambda: workshop.work(run_id))
    assert workshop.json("runs", "rollback", run_id, "--wait", code=1)["status"] == "APPLIED"
    assert shop.amounts()["11"] == 1500
    workshop.json("runs", "rollback", run_id)
    meanwhile(monkeypatch, lambda: workshop.work(run_id))
    assert workshop.json("runs", "watch", run_id, code=1)["status"] == "APPLIED"
    meanwhile(monkeypatch, lambda: workshop.work(run_id))
    assert workshop.json("runs", "rollback", run_id, "--force", "--wait")["status"] == "ROLLED_BACK"
    assert shop.amounts()["11"] == 1999


def test_a_rollback_asks_whoever_sits_at_a_terminal(workshop: Workshop) -> None:
    run_id = workshop.applied()
    refused = workshop.run("runs", "rollback", run_id, given=b"n\n", somebody=True)
    assert (refused.code, refused.out.strip()) == (1, "")
    assert "Take back 4 prices of run 1 (Summer [sale]) in shop.test?" in refused.err
    assert refused.err.endswith("Run 1 stays as it is.\n")
    assert workshop.json("runs", "show", run_id)["wish"] is None
    asked = workshop.run("runs", "rollback", run_id, "--json", given=b"y\n", somebody=True)
    assert json.loads(asked.out)["run"]["wish"] == "rollback"


def test_yes_leaves_the_question_out(workshop: Workshop) -> None:
    run_id = workshop.applied()
    asked = workshop.run("runs", "rollback", run_id, "--yes", somebody=True)
    assert (asked.code, asked.err) == (0, "")
    assert (
        asked.out
        == "Run 1 is asked to be taken back: `automation pricing runs watch 1` follows it.\n"
    )
