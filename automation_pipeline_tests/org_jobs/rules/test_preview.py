"""The coming runs of a schedule, with why they are when they are."""

from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.timing import (
    Planned,
    TimingFields,
    next_planned,
    planned_from,
    read_timing,
)
from automation_pipeline.org_jobs.rules.previews import ComingRun, check_count, preview
from automation_pipeline_tests.tables import every_case

MAY = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
SPRING, AUTUMN = datetime(2026, 3, 28, 12, 0, tzinfo=UTC), datetime(2026, 10, 24, 12, 0, tzinfo=UTC)


def runs(
    cron: str, after: datetime, count: int = 2, *, most_jitter: int = 0, **fields: object
) -> list[ComingRun]:
    said = {"seed": "s", "cron_expression": cron, "timezone": "Europe/Paris"} | fields
    timing = read_timing(TimingFields(**said))  # type: ignore[arg-type]
    return list(preview(timing, after, count, most_jitter=most_jitter).runs)


def test_each_run_is_told_on_the_wall_clock() -> None:
    (first, second) = runs("0 2 * * *", MAY)
    assert (iso(first.scheduled_for), first.effective_for) == (
        "2026-05-05T00:00:00.000Z",
        first.scheduled_for,
    )
    assert (first.local_time, first.note) == ("Tue 2026-05-05 02:00 +0200", None)
    assert second.local_time == "Wed 2026-05-06 02:00 +0200"


def test_a_time_that_the_clock_skips_is_moved_and_says_so() -> None:
    (moved, usual) = runs("30 2 * * *", SPRING)
    assert moved.local_time == "Sun 2026-03-29 03:00 +0200"
    assert moved.note is not None
    assert "goes forward" in moved.note
    assert usual.note is None


def test_a_time_that_comes_twice_is_due_the_second_time() -> None:
    (second_pass, usual) = runs("30 2 * * *", AUTUMN)
    assert second_pass.local_time == "Sun 2026-10-25 02:30 +0100"
    assert "the second time" in (second_pass.note or "")
    assert usual.note is None


def test_by_the_hour_it_is_due_both_times() -> None:
    found = [run for run in runs("30 * * * *", AUTUMN, 16) if "both times" in (run.note or "")]
    assert [run.local_time[-11:] for run in found] == ["02:30 +0200", "02:30 +0100"]


def test_what_waits_for_its_window_says_so() -> None:
    (first, _) = runs(
        "0 12 * * *", MAY - timedelta(hours=1), window_start="22:00", window_end="06:00"
    )
    assert first.local_time == "Mon 2026-05-04 22:00 +0200"
    assert "closed at 12:00: it waits until 22:00" in (first.note or "")


def test_jitter_is_told_in_seconds_or_as_the_most_of_it() -> None:
    jittered = [
        run
        for run in runs("0 2 * * *", MAY, 5, jitter_seconds=3600)
        if run.effective_for > run.scheduled_for
    ]
    assert jittered
    for run in jittered:
        seconds = round((run.effective_for - run.scheduled_for).total_seconds())
        assert f"put off by {seconds} s" in (run.note or "")
    (unsaved, _) = runs("0 2 * * *", MAY, most_jitter=600)
    assert "up to 600 s" in (unsaved.note or "")


def test_without_any_run_it_says_so() -> None:
    timing = read_timing(
        TimingFields(seed="s", cron_expression="0 2 * * *", timezone="UTC", end_at=MAY)
    )
    shown = preview(timing, MAY, 10)
    assert (shown.runs, shown.in_words, shown.timezone) == ((), "At 02:00 every day", "UTC")
    assert shown.note


@every_case("start", [MAY, SPRING, AUTUMN])
def test_following_the_one_that_is_planned_gives_what_is_planned_after_it(start: datetime) -> None:
    fields = {"window_start": "22:00", "window_end": "06:00", "jitter_seconds": 900}
    timing = read_timing(
        TimingFields(seed="s", cron_expression="0 */4 * * *", timezone="Europe/Paris", **fields)
    )
    first = next_planned(timing, start)
    assert first is not None
    found = [one for one, _ in zip(planned_from(timing, first), range(12), strict=False)]
    assert found[0] == first
    assert len({one.scheduled_for for one in found}) == 12
    assert found == sorted(found, key=lambda one: one.scheduled_for)


def test_one_that_was_put_off_to_the_next_window_is_not_followed_by_its_like() -> None:
    timing = read_timing(
        TimingFields(
            seed="s",
            cron_expression="0 * * * *",
            timezone="UTC",
            window_start="22:00",
            window_end="23:30",
        )
    )
    late = Planned(datetime(2026, 5, 3, 23, 0, tzinfo=UTC), datetime(2026, 5, 4, 22, 0, tzinfo=UTC))
    found = [
        one.effective_for for one, _ in zip(planned_from(timing, late), range(2), strict=False)
    ]
    assert found[0] == late.effective_for


@every_case("after", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_the_ends_of_the_calendar_are_no_fault(after: datetime) -> None:
    found = runs(
        "0 2 * * *",
        after,
        window_start="22:00",
        window_end="06:00",
        jitter_seconds=60,
        start_at=after,
    )
    assert len(found) == (2 if after.year == 1 else 0)


@every_case(("count", "is_fine"), [(1, True), (100, True), (0, False), (101, False)])
def test_so_many_at_once_and_no_more(count: int, is_fine: bool) -> None:
    if is_fine:
        check_count(count)
    else:
        with pytest.raises(InvalidInputError):
            check_count(count)
