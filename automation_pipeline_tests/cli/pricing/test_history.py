"""What was written, and why somebody was called, from the command line."""

from automation_pipeline.core.webhooks import AlertSeverity
from automation_pipeline.pricing.models.history import AlertCandidate, PricingAlertName
from automation_pipeline.pricing.queries.monitoring import add_alerts
from automation_pipeline_tests.cli.pricing.workshop import Workshop


def test_every_price_that_was_written_is_listed_newest_last(workshop: Workshop) -> None:
    run_id = workshop.applied()
    workshop.json("runs", "rollback", run_id)
    workshop.work(run_id)
    workshop.applied(selector={"sku": "TABLE"})

    def listed(*options: str) -> list[tuple[str, str, int]]:
        found = workshop.json("changes", *options)["changes"]
        return [(one["variantId"], one["kind"], one["toAmount"]) for one in found]

    assert listed("--variant", "21") == [
        ("21", "apply", 45_000), ("21", "rollback", 50_000), ("21", "apply", 45_000)
    ]  # fmt: skip
    assert len(listed("--run", run_id)) == 8
    assert listed("--run", "2") == [("21", "apply", 45_000)]
    assert len(listed()) == 9
    assert listed("--project", "other") == []
    said = workshop.said("changes", "--run", "2")
    assert "2 apply (rule:2) 2/21 TABLE 500.00 EUR 450.00 EUR -10.0 % -50.00 EUR" in said


def test_alerts_are_listed_newest_first(workshop: Workshop) -> None:
    raised = [
        (
            "default",
            AlertCandidate(
                PricingAlertName.DEAD_LETTERS,
                AlertSeverity.WARNING,
                "60 failed price changes wait.",
            ),
        ),
        (
            "summer",
            AlertCandidate(
                PricingAlertName.SUCCESS_RATE, AlertSeverity.CRITICAL, "Only [half] succeeded."
            ),
        ),
    ]
    with workshop.terminal.database.transaction() as session:
        add_alerts(session, raised, workshop.bench.clock.now(), webhooks={})
    assert [one["projectId"] for one in workshop.json("alerts")["alerts"]] == ["summer", "default"]
    assert [one["id"] for one in workshop.json("alerts", "--project", "default")["alerts"]] == ["1"]
    said = workshop.said("alerts", "--limit", "1")
    assert "summer success_rate critical Only [half] succeeded. unsent" in said
    assert said.endswith("There are more: --offset 1 shows the next.")
