"""What was previewed is written, or nothing is."""

from automation_pipeline.pricing.models.rules import OnDrift
from automation_pipeline.pricing.models.shop import Price
from automation_pipeline.pricing.rules.runs import drift_action
from automation_pipeline_tests.tables import every_case

BEFORE, AFTER, EDITED = Price(1000, "EUR", 1500), Price(900, "EUR"), Price(950, "EUR")


@every_case(
    ("observed", "on_drift", "writes_compare_at", "step"),
    [
        (BEFORE, "refuse", True, "write"),
        (AFTER, "refuse", True, "done"),
        (EDITED, "refuse", True, "refuse"),
        (EDITED, "overwrite", True, "write"),
        (Price(1000, "EUR", 1400), "refuse", True, "refuse"),
        (Price(1000, "EUR", 1400), "refuse", False, "write"),
        (Price(900, "EUR", 1500), "refuse", True, "refuse"),
        (Price(900, "EUR", 1500), "refuse", False, "done"),
        (Price(1000, "USD", 1500), "overwrite", True, "refuse"),
    ],
)
def test_a_price_is_written_over_the_previewed_one_only(
    observed: Price, on_drift: str, step: str, *, writes_compare_at: bool
) -> None:
    assert (
        drift_action(
            observed, BEFORE, AFTER, OnDrift(on_drift), writes_compare_at=writes_compare_at
        )
        == step
    )
