"""Whether a schedule may be run by hand now."""

from datetime import UTC, datetime

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.scheduling.plan import OverlapPolicy
from automation_pipeline.org_jobs.rules.schedules import (
    check_client_key,
    refuse_closed,
    refuse_overlap,
    window_timing,
)
from automation_pipeline_tests.org_jobs.rules.schedules import stored
from automation_pipeline_tests.tables import every_case

WINDOW = {
    "executionWindowStart": "22:00",
    "executionWindowEnd": "06:00",
    "timezone": "Europe/Paris",
}


@every_case(
    ("at", "opens"),
    [
        (datetime(2026, 5, 4, 20, 0, tzinfo=UTC), None),
        (datetime(2026, 5, 5, 4, 0, 59, tzinfo=UTC), None),
        (datetime(2026, 5, 4, 19, 59, tzinfo=UTC), "2026-05-04T20:00:00.000Z"),
        (datetime(2026, 5, 5, 4, 1, tzinfo=UTC), "2026-05-05T20:00:00.000Z"),
    ],
)
def test_a_closed_window_says_when_it_opens(at: datetime, opens: str | None) -> None:
    schedule = stored(WINDOW)
    refuse_closed(schedule, window_timing(schedule, ignore_window=True), at)
    if opens is None:
        refuse_closed(schedule, window_timing(schedule), at)
    else:
        with pytest.raises(ConflictError, match=opens):
            refuse_closed(schedule, window_timing(schedule), at)


def test_a_cron_that_means_nothing_does_not_matter_but_a_zone_does_where_there_is_a_window() -> (
    None
):
    broken = {"cron_expression": "gone", "timezone": "Gone/City"}
    assert window_timing(stored(**broken)).window is None
    assert window_timing(stored(WINDOW, **broken), ignore_window=True).window is None
    with pytest.raises(ConflictError, match="Gone/City"):
        window_timing(stored(WINDOW, **broken))


@every_case(
    ("policy", "at_work", "waiting", "named"),
    [
        ("SKIP", [], [], None),
        ("SKIP", [7], [], 7),
        ("SKIP", [], [8], 8),
        ("BUFFER_ONE", [7], [], None),
        ("BUFFER_ONE", [], [8], None),
        ("BUFFER_ONE", [7], [8], 8),
        ("BUFFER_ALL", [7], [8, 9], None),
        ("ALLOW_ALL", [7], [8], None),
        ("CANCEL_OTHER", [7], [8], None),
        ("TERMINATE_OTHER", [7], [8], None),
    ],
)
def test_what_is_not_over_is_in_the_way_by_the_overlap_policy(
    policy: str, at_work: list[int], waiting: list[int], named: int | None
) -> None:
    schedule = stored({"overlapPolicy": policy})
    assert OverlapPolicy(policy).replaces_others is policy.endswith("_OTHER")
    if named is None:
        refuse_overlap(schedule, at_work, waiting)
    else:
        with pytest.raises(ConflictError, match=f"Job {named} "):
            refuse_overlap(schedule, at_work, waiting)


@every_case(
    ("key", "is_fine"),
    [(None, True), ("k", True), ("k" * 200, True), ("", False), ("k" * 201, False)],
)
def test_a_key_is_not_too_long(key: str | None, is_fine: bool) -> None:
    if is_fine:
        check_client_key(key)
    else:
        with pytest.raises(InvalidInputError):
            check_client_key(key)
