"""When a stored schedule is due next, in whatever state it is."""

from datetime import timedelta
from typing import Any

from automation_pipeline.core.clock import iso
from automation_pipeline.org_jobs.models.states import ScheduleState
from automation_pipeline.org_jobs.rules.previews import plan_of
from automation_pipeline_tests.org_jobs.rules.schedules import NOW, stored
from automation_pipeline_tests.tables import every_case

TOMORROW = NOW.replace(day=5, hour=2)
NEXT = {"next_run_at": TOMORROW, "next_scheduled_for": TOMORROW}


def test_the_next_one_is_as_stored_and_marked_if_it_is_left_out() -> None:
    shown = plan_of(stored(**NEXT, skip_next_run=True, skip_next_run_reason="Audit"), NOW, 3, None)
    assert [run.effective_for for run in shown.runs] == [
        TOMORROW + timedelta(days=days) for days in range(3)
    ]
    assert [run.is_skipped for run in shown.runs] == [True, False, False]
    assert shown.runs[0].note == "It is left out: Audit"


def test_one_that_is_due_already_comes_first() -> None:
    late = NOW - timedelta(hours=8)
    shown = plan_of(stored(next_run_at=late, next_scheduled_for=late), NOW, 2, None)
    assert [run.scheduled_for for run in shown.runs] == [late, TOMORROW]


def test_a_later_page_begins_after_the_one_before() -> None:
    shown = plan_of(stored(**NEXT, skip_next_run=True), NOW, 2, TOMORROW)
    assert [iso(run.scheduled_for)[8:10] for run in shown.runs] == ["06", "07"]
    assert not any(run.is_skipped for run in shown.runs)


def test_one_that_is_paused_until_a_time_goes_on_then() -> None:
    until = NOW + timedelta(days=10)
    shown = plan_of(stored(state=ScheduleState.PAUSED, paused_until=until), NOW, 1, None)
    assert [iso(run.scheduled_for) for run in shown.runs] == ["2026-05-15T02:00:00.000Z"]
    assert shown.note == "It is paused until then."


@every_case("state", ScheduleState)
def test_after_an_instant_that_somebody_names_it_tells_what_its_fields_say(
    state: ScheduleState,
) -> None:
    known = NEXT if state is ScheduleState.ACTIVE else {}
    shown = plan_of(stored(state=state, **known), NOW, 2, NOW - timedelta(days=60))
    assert [iso(run.scheduled_for)[:10] for run in shown.runs] == ["2026-03-06", "2026-03-07"]
    assert (shown.note is None) is (state is ScheduleState.ACTIVE)


@every_case(
    ("known", "why"),
    [
        ({"state": ScheduleState.PAUSED, "pause_reason": "Holidays"}, "Holidays"),
        ({"state": ScheduleState.PAUSED}, "paused"),
        ({"state": ScheduleState.COMPLETED}, "end"),
        ({"state": ScheduleState.INVALID_CRON}, "correct"),
        ({"state": ScheduleState.INVALID_CRON, "timezone": "Gone/City"}, "Gone/City"),
    ],
)
def test_one_that_is_not_due_says_why(known: dict[str, Any], why: str) -> None:
    shown = plan_of(stored(**known), NOW, 5, None)
    assert shown.runs == ()
    assert why in (shown.note or "")
