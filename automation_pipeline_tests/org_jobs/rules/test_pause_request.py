"""What people say when they pause a schedule."""

from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.models.schedules import LONGEST_REASON, read_pause, read_skip
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


def test_a_pause_may_say_why_and_until_when() -> None:
    wish = read_pause("Holidays", NOW + timedelta(days=1), NOW)
    assert (wish.reason, wish.until) == ("Holidays", NOW + timedelta(days=1))
    assert read_skip(None).reason is None


@every_case(
    ("reason", "until", "field"),
    [
        ("x" * (LONGEST_REASON + 1), None, "reason"),
        ("a\0b", None, "reason"),
        (None, NOW, "until"),
        (None, datetime(2026, 6, 1), "until"),  # noqa: DTZ001  that is the fault
    ],
)
def test_what_makes_no_sense_is_refused(
    reason: str | None, until: datetime | None, field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_pause(reason, until, NOW)
    assert [name for name, _ in refused.value.fields] == [field]
