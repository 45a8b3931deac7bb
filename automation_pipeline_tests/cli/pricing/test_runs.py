"""Runs from the command line: listed, shown with what to type next, target by target, and
everything that moved."""

from automation_pipeline_tests.cli.pricing.workshop import Workshop
from automation_pipeline_tests.fakes.shop import FakeShop
from automation_pipeline_tests.tables import every_case


def test_runs_are_listed_newest_first_and_can_be_narrowed(workshop: Workshop) -> None:
    workshop.applied()
    workshop.json("preview", "1")
    workshop.json("preview", workshop.rule("--project", "other"))

    def listed(*options: str) -> list[str]:
        return [run["id"] for run in workshop.json("runs", "list", *options)["runs"]]

    assert listed() == ["3", "2", "1"]
    assert listed("--project", "other") == ["3"]
    assert listed("--rule", "1") == ["2", "1"]
    assert listed("--status", "applied") == ["1"]
    assert listed("--limit", "1", "--offset", "1") == ["2"]
    said = workshop.said("runs", "list", "--limit", "2")
    assert "2 1 Summer [sale] default PREVIEW cli" in said
    assert said.endswith("There are more: --offset 2 shows the next.")
    assert workshop.refused("runs", "list", "--status", "done", code=2).startswith(
        "Invalid value for '--status'"
    )


def test_a_run_tells_how_it_stands_and_what_to_type_next(workshop: Workshop) -> None:
    run_id = workshop.previewed()
    shown = workshop.said("runs", "show", run_id)
    assert (
        "run 1 of rule 1, Summer [sale], version 1 project default shop shop.test status PREVIEW"
        in shown
    )
    assert (
        "picked 5 = 4 to change + 1 left alone + 0 blocked left alone 1 not_active targets 4 = 4 preview"
        in shown
    )
    assert "Apply it, until " in shown
    asked = workshop.said("runs", "apply", run_id)
    assert asked == "Run 1 is queued, 4 prices: `automation pricing runs watch 1` follows it."
    assert workshop.said("runs", "show", run_id).endswith(
        "Follow it: `automation pricing runs watch 1`."
    )
    workshop.work(run_id)
    shown = workshop.said("runs", "show", run_id)
    assert "status APPLIED" in shown
    assert (
        "targets 4 = 4 applied success 100.0 % Take it back: `automation pricing runs rollback 1`."
        in shown
    )
    assert workshop.json("runs", "show", run_id)["targets"]["applied"] == 4


def test_a_run_that_was_cancelled_or_has_failed_says_so(workshop: Workshop, shop: FakeShop) -> None:
    shop.refuse("11")
    shop.refuse("12")
    run_id = workshop.applied()
    shown = workshop.said("runs", "show", run_id)
    assert "status PARTIAL" in shown
    assert "targets 4 = 2 applied + 2 failed success 50.0 %" in shown
    assert (
        "See what failed: `automation pricing runs targets 1 --status FAILED`; try again: `automation"
        in shown
    )
    assert shown.endswith("Take it back: `automation pricing runs rollback 1`.")
    cancelled = workshop.previewed()
    workshop.json("runs", "apply", cancelled)
    said = workshop.said("runs", "cancel", cancelled)
    assert said == "Run 2 is cancelled. Run 2 is FAILED: 4 = 4 failed (4 of them cancelled)."
    assert "cancelled asked for 20" in workshop.said("runs", "show", cancelled)
    assert "nothing to cancel" in workshop.refused("runs", "cancel", cancelled)


def test_every_target_is_told_with_why_it_failed(workshop: Workshop, shop: FakeShop) -> None:
    shop.refuse("11", "INVALID_INPUT")
    run_id = workshop.applied()
    every = workshop.json("runs", "targets", run_id)["targets"]
    assert [(one["variantId"], one["status"]) for one in every] == [
        ("11", "FAILED"), ("12", "APPLIED"), ("13", "APPLIED"), ("21", "APPLIED")
    ]  # fmt: skip
    assert workshop.json("runs", "targets", run_id, "--status", "failed")["targets"] == every[:1]
    said = workshop.said("runs", "targets", run_id)
    assert (
        "1 Mug [small] 1/11 MUG-S 19.99 EUR 17.99 EUR -10.0 % -2.00 EUR FAILED validation, not worth another"
        in said
    )
    assert "2 Mug [large] 1/12 MUG-L 29.99 EUR 26.99 EUR -10.0 % -3.00 EUR APPLIED" in said


def test_everything_that_moved_is_in_the_log(workshop: Workshop) -> None:
    run_id = workshop.applied(selector={"sku": "TABLE"})
    moves = workshop.json("runs", "log", run_id)["log"]
    assert [(one["machine"], one["fromState"], one["toState"], one["actor"]) for one in moves] == [
        ("rule run", "PREVIEW", "QUEUED", "cli:ada"),
        ("rule target", "PREVIEW", "QUEUED", "cli:ada"),
        ("rule run", "QUEUED", "APPLYING", "worker"),
        ("rule target", "QUEUED", "APPLYING", "worker"),
        ("rule target", "APPLYING", "APPLIED", "worker"),
        ("rule run", "APPLYING", "APPLIED", "worker"),
    ]
    lines = workshop.run("runs", "log", run_id).out.splitlines()
    assert len(lines) == 6
    assert lines[0].endswith("rule run 1          PREVIEW -> QUEUED  by cli:ada")


@every_case(
    "what", ["show", "targets", "log", "apply", "approve", "retry", "cancel", "watch", "rollback"]
)
def test_a_run_that_is_not_there_is_one_sentence(workshop: Workshop, what: str) -> None:
    assert workshop.refused("runs", what, "9") == "Rule run 9 not found."
    assert workshop.refused("runs", what, "x", code=2).startswith("Invalid value for 'run_id': ")
