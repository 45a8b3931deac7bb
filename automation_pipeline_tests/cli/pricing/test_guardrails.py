"""Checks that have blocked a price, in words; one that nobody knows is told by its name."""

from automation_pipeline.pricing.commands.rendering import check_words
from automation_pipeline_tests.tables import every_case


@every_case(
    ("check", "words"),
    [
        ({"name": "maxPctDelta", "deltaPct": 0.1, "limit": 0.08}, "changes by 10 %, more than 8 %"),
        (
            {"name": "maxPctDelta", "deltaPct": 0.333333, "limit": 0.125},
            "changes by 33.33 %, more than 12.5 %",
        ),
        ({"name": "floor", "floor": 1000, "proposedAmount": 900}, "below the floor of 10.00 EUR"),
        (
            {"name": "ceiling", "ceiling": 1000, "proposedAmount": 1900},
            "above the ceiling of 10.00 EUR",
        ),
        (
            {"name": "dailyBudget", "deltaPct": 0.1, "used": 0.25, "limit": 0.3, "remaining": 0.05},
            "changes by 10 %, and 5 % of 30 % are left today",
        ),
        (
            {"name": "currency", "currency": "EUR", "policyCurrency": "USD"},
            "the floor and ceiling are in USD, the price is in EUR",
        ),
        ({"name": "maxPctDelta"}, "maxPctDelta"),
        ({"name": "phaseOfTheMoon", "phase": "full"}, "phaseOfTheMoon"),
    ],
)
def test_a_check_is_told_in_words(check: dict[str, object], words: str) -> None:
    assert check_words({"ok": False, **check}, "EUR") == words
