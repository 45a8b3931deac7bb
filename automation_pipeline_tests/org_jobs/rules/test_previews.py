"""Previews of schedules, and crons in plain words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.cron import Cron
from automation_pipeline.core.scheduling.timing import (
    Planned,
    TimingFields,
    next_planned,
    planned_from,
    read_timing,
)
from automation_pipeline.org_jobs.models.jobs import ScheduleState
from automation_pipeline.org_jobs.rules.schedules import (
    ComingRun,
    check_count,
    describe_cron,
    plan_of,
    preview,
)
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.org_jobs.rules.schedules import NOW, stored

MAY = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
SPRING, AUTUMN = datetime(2026, 3, 28, 12, 0, tzinfo=UTC), datetime(2026, 10, 24, 12, 0, tzinfo=UTC)


def runs(
    cron: str, after: datetime, count: int = 2, *, max_jitter_seconds: int = 0, **fields: object
) -> list[ComingRun]:
    values = {"seed": "s", "cron_expression": cron, "timezone": "Europe/Paris"} | fields
    timing = read_timing(TimingFields(**values))  # type: ignore[arg-type]
    return list(preview(timing, after, count, max_jitter_seconds=max_jitter_seconds).runs)


def test_each_previewed_run_has_its_local_time() -> None:
    (first, second) = runs("0 2 * * *", MAY)
    assert (iso(first.scheduled_for), first.effective_for) == (
        "2026-05-05T00:00:00.000Z",
        first.scheduled_for,
    )
    assert (first.local_time, first.note) == ("Tue 2026-05-05 02:00 +0200", None)
    assert second.local_time == "Wed 2026-05-06 02:00 +0200"


@every_case("cron", ["30 2 * * *", "0 2 * * *", "30 2,3 * * *"])
def test_skipped_time_is_moved_with_a_note(cron: str) -> None:
    (moved, usual) = runs(cron, SPRING)
    assert moved.local_time == "Sun 2026-03-29 03:00 +0200"
    assert moved.note == (
        "The clock goes forward: the time of the cron does not exist, so it is 03:00."
    )
    assert usual.note is None


def test_repeated_time_is_due_the_second_time() -> None:
    (second_pass, usual) = runs("30 2 * * *", AUTUMN)
    assert second_pass.local_time == "Sun 2026-10-25 02:30 +0100"
    assert second_pass.note == (
        "The clock goes back: 02:30 comes twice, and it is due the second time."
    )
    assert usual.note is None


def test_hourly_schedule_is_due_both_times() -> None:
    found = [run for run in runs("30 * * * *", AUTUMN, 16) if "both times" in (run.note or "")]
    assert [run.local_time[-11:] for run in found] == ["02:30 +0200", "02:30 +0100"]


def test_wait_for_the_window_has_a_note() -> None:
    (first, _) = runs(
        "0 12 * * *", MAY - timedelta(hours=1), window_start="22:00", window_end="06:00"
    )
    assert first.local_time == "Mon 2026-05-04 22:00 +0200"
    assert first.note == "The execution window is closed at 12:00: it waits until 22:00."


def test_jitter_note_has_seconds_or_the_maximum() -> None:
    jittered = [
        run
        for run in runs("0 2 * * *", MAY, 5, jitter_seconds=3600)
        if run.effective_for > run.scheduled_for
    ]
    assert jittered
    for run in jittered:
        seconds = round((run.effective_for - run.scheduled_for).total_seconds())
        assert run.note == f"It is delayed by {seconds} s, so that not all jobs start at once."
    (unsaved, _) = runs("0 2 * * *", MAY, max_jitter_seconds=600)
    assert unsaved.note == "It is delayed by up to 600 s, so that not all jobs start at once."


def test_preview_without_runs_has_a_note() -> None:
    timing = read_timing(
        TimingFields(seed="s", cron_expression="0 2 * * *", timezone="UTC", end_at=MAY)
    )
    shown = preview(timing, MAY, 10)
    assert (shown.runs, shown.in_words, shown.timezone) == ((), "At 02:00 every day", "UTC")
    assert shown.note == "It is never due after that."


@every_case("start", [MAY, SPRING, AUTUMN])
def test_planned_runs_follow_the_stored_one(start: datetime) -> None:
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


def test_postponed_run_is_not_repeated() -> None:
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
def test_ends_of_the_calendar_are_accepted(after: datetime) -> None:
    found = runs(
        "0 2 * * *",
        after,
        window_start="22:00",
        window_end="06:00",
        jitter_seconds=60,
        start_at=after,
    )
    starts = [iso(one.scheduled_for) for one in found]
    assert starts == (
        ["1970-01-01T01:00:00.000Z", "1970-01-02T01:00:00.000Z"] if after.year == 1 else []
    )


@every_case(("count", "is_fine"), [(1, True), (100, True), (0, False), (101, False)])
def test_number_of_runs_is_limited(count: int, is_fine: bool) -> None:
    if is_fine:
        check_count(count)
    else:
        with pytest.raises(InvalidInputError):
            check_count(count)


TOMORROW = NOW.replace(day=5, hour=2)
NEXT = {"next_run_at": TOMORROW, "next_scheduled_for": TOMORROW}


def test_next_run_is_the_stored_one_and_shows_the_skip() -> None:
    shown = plan_of(stored(**NEXT, skip_next_run=True, skip_next_run_reason="Audit"), NOW, 3, None)
    assert [run.effective_for for run in shown.runs] == [
        TOMORROW + timedelta(days=days) for days in range(3)
    ]
    assert [run.is_skipped for run in shown.runs] == [True, False, False]
    assert shown.runs[0].note == "It is skipped: Audit"


def test_overdue_run_comes_first() -> None:
    late = NOW - timedelta(hours=8)
    shown = plan_of(stored(next_run_at=late, next_scheduled_for=late), NOW, 2, None)
    assert [run.scheduled_for for run in shown.runs] == [late, TOMORROW]


def test_next_page_continues_after_the_previous_one() -> None:
    shown = plan_of(stored(**NEXT, skip_next_run=True), NOW, 2, TOMORROW)
    assert [iso(run.scheduled_for)[8:10] for run in shown.runs] == ["06", "07"]
    assert not any(run.is_skipped for run in shown.runs)


def test_pause_with_an_end_shows_later_runs() -> None:
    until = NOW + timedelta(days=10)
    shown = plan_of(stored(state=ScheduleState.PAUSED, paused_until=until), NOW, 1, None)
    assert [iso(run.scheduled_for) for run in shown.runs] == ["2026-05-15T02:00:00.000Z"]
    assert shown.note == "It is paused until then."


@every_case("state", ScheduleState)
def test_given_instant_shows_due_times_in_any_state(
    state: ScheduleState,
) -> None:
    known = NEXT if state is ScheduleState.ACTIVE else {}
    shown = plan_of(stored(state=state, **known), NOW, 2, NOW - timedelta(days=60))
    assert [iso(run.scheduled_for)[:10] for run in shown.runs] == ["2026-03-06", "2026-03-07"]
    assert (shown.note is None) is (state is ScheduleState.ACTIVE)


@every_case(
    ("known", "why"),
    [
        (
            {"state": ScheduleState.PAUSED, "pause_reason": "Holidays"},
            "It is paused: Holidays",
        ),
        ({"state": ScheduleState.PAUSED}, "It is paused."),
        ({"state": ScheduleState.COMPLETED}, "The schedule has ended."),
        (
            {"state": ScheduleState.INVALID_CRON},
            "It is never due again: correct its cron or time zone.",
        ),
        (
            {"state": ScheduleState.INVALID_CRON, "timezone": "Gone/City"},
            "'Gone/City' is not a known time zone.",
        ),
        (
            {"state": ScheduleState.INVALID_CRON, "cron_expression": "gone"},
            (
                "A cron expression has five fields, or is one of @hourly, @daily, @weekly, @monthly, "
                "@yearly; got 'gone'."
            ),
        ),
    ],
)
def test_inactive_schedule_has_a_note(known: dict[str, Any], why: str) -> None:
    shown = plan_of(stored(**known), NOW, 5, None)
    words = known.get("cron_expression", "At 02:00 every day")
    assert (shown.runs, shown.in_words) == ((), words)
    assert shown.timezone == known.get("timezone", "UTC")
    assert shown.note == why


@every_case(
    ("expression", "words"),
    [
        ("* * * * *", "Every minute"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("*/5 * * * 1-5", "Every 5 minutes from Monday to Friday"),
        ("0 * * * *", "Every hour"),
        ("30 * * * *", "Every hour at 30 minutes past"),
        ("@hourly", "Every hour"),
        ("0 */4 * * *", "Every 4 hours, from midnight on"),
        ("0 2 * * *", "At 02:00 every day"),
        ("@daily", "At 00:00 every day"),
        ("30 2,14 * * *", "At 02:30 and 14:30 every day"),
        ("0 9 * * 1-5", "At 09:00 from Monday to Friday"),
        ("0 9 * * MON-FRI", "At 09:00 from Monday to Friday"),
        ("0 9 * * 0", "At 09:00 on Sunday"),
        ("0 9 * * 7", "At 09:00 on Sunday"),
        ("0 9 * * SUN", "At 09:00 on Sunday"),
        ("0 9 * * SUN-TUE", "At 09:00 from Sunday to Tuesday"),
        ("0 9 * * 5-7", "At 09:00 from Friday to Sunday"),
        ("0 9 * * 1-1", "0 9 * * 1-1"),
        ("0 9 * DEC *", "At 09:00 every day in December"),
        ("0 1,2,3,4,5,6 * * *", "At 01:00, 02:00, 03:00, 04:00, 05:00 and 06:00 every day"),
        ("0 1,2,3,4,5,6,7 * * *", "0 1,2,3,4,5,6,7 * * *"),
        ("0 5,3,5 * * *", "At 03:00 and 05:00 every day"),
        ("*/1 * * * *", "Every minute"),
        ("0 */24 * * *", "Every 24 hours, from midnight on"),
        ("5 */2 * * *", "Every 2 hours at 5 minutes past, from midnight on"),
        ("0 0 1 1 1", "At 00:00 on day 1 or on Monday in January"),
        ("0 9 * * 0,1,3", "At 09:00 on Monday, Wednesday and Sunday"),
        ("0 0 1 * *", "At 00:00 on day 1 of every month"),
        ("0 0 1,15 * *", "At 00:00 on days 1 and 15 of every month"),
        ("0 0 L * *", "At 00:00 on the last day of every month"),
        ("@yearly", "At 00:00 on day 1 in January"),
        ("0 0 * 6-8 *", "At 00:00 every day from June to August"),
        ("0 0 13 * 5", "At 00:00 on day 13 or on Friday"),
        ("0 0 29 FEB *", "At 00:00 on day 29 in February"),
        ("1-20/3 2 * * *", "1-20/3 2 * * *"),
        ("*/7 * * * *", "*/7 * * * *"),
        ("0 0-12/2 * * *", "0 0-12/2 * * *"),
        ("0 0 */2 * *", "0 0 */2 * *"),
    ],
)
def test_common_crons_have_words(expression: str, words: str) -> None:
    Cron.parse(expression)
    assert describe_cron(expression) == words


@given(
    st.lists(
        st.from_regex(r"\A(\*|L|[0-9]{1,2}|MON|[0-9]-[0-9])(,[0-9]|/[0-9]{1,2})?\Z"),
        min_size=5,
        max_size=5,
    )
)
def test_every_valid_cron_has_a_description(fields: list[str]) -> None:
    expression = " ".join(fields)
    try:
        Cron.parse(expression)
    except InvalidInputError:
        return
    words = describe_cron(expression)
    assert words == expression or words.startswith(("Every ", "At "))
