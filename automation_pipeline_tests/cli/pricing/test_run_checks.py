"""Reconciliation from the command line: what differs in the shop, how much it weighs, and the run
that repairs it."""

from automation_pipeline_tests.cli.pricing.workshop import Workshop
from automation_pipeline_tests.fakes.shop import FakeShop


def test_prices_that_stand_are_well(workshop: Workshop) -> None:
    run_id = workshop.applied()
    assert (
        workshop.said("runs", "reconcile", run_id)
        == "Run 1: 4 prices compared, 0 differ, 0 could not be read."
    )
    assert workshop.json("runs", "reconcile", run_id, "--repair")["repairRunId"] is None


def test_what_differs_is_told_by_weight_and_ends_with_1(workshop: Workshop, shop: FakeShop) -> None:
    run_id = workshop.applied()
    shop.edit("11", amount=1800)
    assert "INFO" in workshop.said("runs", "reconcile", run_id).upper()
    shop.edit("12", amount=3000)
    shop.edit("21", amount=45_100)
    shop.remove("13")
    said = workshop.said("runs", "reconcile", run_id, code=1)
    assert "MUG-S 17.99 EUR 18.00 EUR +0.1 % info" in said
    assert "MUG-L 26.99 EUR 30.00 EUR +11.2 % critical" in said
    assert "TABLE 450.00 EUR 451.00 EUR +0.2 % warning" in said
    assert "Run 1: 3 prices compared, 3 differ, 1 could not be read." in said
    assert "`automation pricing runs reconcile 1 --repair` plans a run that does." in said


def test_a_repair_is_a_run_of_its_own(workshop: Workshop, shop: FakeShop) -> None:
    run_id = workshop.applied()
    shop.edit("12", amount=3000)
    told = workshop.json("runs", "reconcile", run_id, "--repair", code=1)
    assert (told["mismatches"], told["repairRunId"]) == (1, "2")
    assert "made from run 1" in workshop.said("runs", "show", "2")
    workshop.json("runs", "apply", "2")
    workshop.work("2")
    assert shop.amounts()["12"] == 2699
    shop.edit("12", amount=3000)
    assert workshop.json("runs", "reconcile", run_id)["totalChecked"] == 3
    said = workshop.said("runs", "reconcile", "2", "--repair", code=1)
    assert "would write 1 price again: `automation pricing runs apply 3`." in said
