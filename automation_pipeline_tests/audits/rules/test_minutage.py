"""Minutes and seconds."""

from automation_pipeline.audits.models.audits import minutage
from automation_pipeline_tests.tables import every_case


@every_case(
    ("seconds", "text"),
    [
        (0, "00:00"),
        (12.4, "00:12"),
        (59.99, "00:59"),
        (60, "01:00"),
        (72.4, "01:12"),
        (3599, "59:59"),
        (11_107, "185:07"),
        (-3.0, "00:00"),
        (float("nan"), "00:00"),
        (float("inf"), "00:00"),
    ],
)
def test_a_minutage_is_minutes_and_seconds_and_has_no_hours(seconds: float, text: str) -> None:
    assert minutage(seconds) == text
