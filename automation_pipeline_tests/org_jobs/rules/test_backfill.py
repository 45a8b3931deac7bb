"""Due times of a backfill: selected, left out with a reason, or refused."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.scheduling.timing import Planned, Timing, TimingFields, read_timing
from automation_pipeline.org_jobs.models.jobs import OrgJobsRunState
from automation_pipeline.org_jobs.rules.due import (
    INVALID_BACKFILL,
    BackfillInput,
    Behaviour,
    check_backfill_count,
    chosen_times,
    due_times,
    less_urgent,
)
from automation_pipeline_tests.cases import every_case

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
MAY = {"from": "2026-05-01T00:00:00Z", "until": "2026-05-03T23:59:59Z"}


def at(day: int, hour: int = 2, minute: int = 0) -> datetime:
    return datetime(2026, 5, day, hour, minute, tzinfo=UTC)


def read_backfill(given: dict[str, object]) -> BackfillInput:
    return parse(BackfillInput, given, INVALID_BACKFILL)


def timing(cron: str = "0 2 * * *", **fields: object) -> Timing:
    return read_timing(TimingFields(seed="s", cron_expression=cron, timezone="UTC", **fields))  # type: ignore[arg-type]


def due(period: dict[str, object], timed: Timing) -> list[datetime]:
    return [one.scheduled_for for one in due_times(timed, read_backfill(period), NOW)]


@every_case(
    ("given", "field"),
    [
        ({"from": None}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2026-05-01T00:00:00"}, "from"),
        ({"from": "1969-12-31T23:59:59Z"}, "from"),
        ({"until": "2026-04-30T00:00:00Z"}, "until"),
        ({"behaviour": "everything"}, "behaviour"),
        ({"dryRun": "yes"}, "dryRun"),
        ({"limit": 0}, "limit"),
        ({"limit": 501}, "limit"),
        ({"fromAt": "2026-05-01T00:00:00Z"}, "fromAt"),
    ],
)
def test_the_error_names_the_invalid_field(given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInputError, match="Invalid backfill") as refused:
        read_backfill(MAY | given)
    assert [named for named, _ in refused.value.fields] == [field]


def test_a_backfill_needs_only_a_period() -> None:
    request = read_backfill(MAY)
    assert (request.behaviour, request.dry_run, request.limit) == (Behaviour.NONE, False, 500)
    moment = {"from": "1970-01-01T00:00:00Z", "until": "1970-01-01T00:00:00Z", "limit": 1}
    assert read_backfill(moment).from_at == read_backfill(moment).until_at


def test_both_ends_are_in_the_period() -> None:
    assert due({"from": "2026-05-01T02:00:00Z", "until": "2026-05-03T02:00:00Z"}, timing()) == [
        at(1),
        at(2),
        at(3),
    ]


def test_future_due_times_are_left_out() -> None:
    period = {"from": "2026-05-03T00:00:00Z", "until": "2026-06-01T00:00:00Z"}
    assert due(period, timing()) == [at(3), at(4)]
    assert due(period, timing("0 10 * * *")) == [at(3, 10), NOW]
    assert due(period, timing("1 10 * * *")) == [at(3, 10, 1)]


def test_due_time_that_waits_for_its_window_is_left_out() -> None:
    clamped = timing("0 12 * * *", window_start="22:00", window_end="06:00")
    found = due_times(clamped, read_backfill(MAY | {"until": "2026-05-09T00:00:00Z"}), NOW)
    assert [one.effective_for for one in found] == [at(1, 22), at(2, 22), at(3, 22)]
    assert due_times(clamped, read_backfill(MAY | {"until": "2026-05-09T00:00:00Z"}), at(3, 21))[
        -1
    ].effective_for == at(2, 22)


def test_dates_and_excluded_days_of_the_schedule_apply_to_a_backfill() -> None:
    timed = timing(start_at=at(1, 12), end_at=at(4, 1), excluded_on=("2026-05-03",))
    assert due({"from": "2026-04-01T00:00:00Z", "until": "2026-05-04T09:00:00Z"}, timed) == [at(2)]


def test_period_with_too_many_due_times_is_refused() -> None:
    with pytest.raises(InvalidInputError) as refused:
        due({"from": "2026-01-01T00:00:00Z", "until": "2026-05-04T00:00:00Z"}, timing("* * * * *"))
    assert refused.value.fields == (
        ("until", "the period has more than 5000 due times: choose a shorter one"),
    )


@every_case(
    ("states", "behaviour", "left_out"),
    [
        ([], "none", None),
        ([], "failed", None),
        ([], "completed", None),
        (["success"], "none", "dispatched"),
        (["success"], "failed", "dispatched"),
        (["success"], "completed", None),
        (["failed"], "none", "dispatched"),
        (["failed"], "failed", None),
        (["failed"], "completed", None),
        (["cancelled"], "failed", "dispatched"),
        (["cancelled"], "completed", None),
        (["failed", "success"], "failed", "dispatched"),
        (["success", "failed"], "failed", None),
        (["pending"], "completed", "at_work"),
        (["failed", "running"], "failed", "at_work"),
        (["running"], "none", "at_work"),
    ],
)
def test_the_reprocess_behaviour_decides_which_due_times_are_repeated(
    states: list[str], behaviour: str, left_out: str | None
) -> None:
    done = {at(1): [OrgJobsRunState(state) for state in states]} if states else {}
    [one] = chosen_times([Planned(at(1), at(1))], done, Behaviour(behaviour), None)
    assert (one.scheduled_for, one.left_out) == (at(1), left_out)


def test_upcoming_due_times_of_the_schedule_are_left_out() -> None:
    planned = [Planned(at(day), at(day)) for day in (1, 2, 3)]
    chosen = chosen_times(planned, {}, Behaviour.COMPLETED, Planned(at(2), at(2, 5)))
    assert [one.left_out for one in chosen] == [None, "still_due", "still_due"]


def test_refusal_counts_the_due_times() -> None:
    check_backfill_count(3, 3)
    with pytest.raises(InvalidInputError) as refused:
        check_backfill_count(4, 3)
    [(field, why)] = refused.value.fields
    assert (field, "there are 4 due times" in why) == ("limit", True)


@every_case(("priority", "less"), [(1, 2), (5, 6), (9, 9)])
def test_backfill_jobs_are_less_urgent(priority: int, less: int) -> None:
    assert less_urgent(priority) == less


@given(
    begin=st.integers(0, 5000),
    length=st.integers(0, 3000),
    cron=st.sampled_from(["0 2 * * *", "*/30 * * * *", "15 3,4 * * 1-5"]),
)
def test_due_times_of_the_period_are_complete(begin: int, length: int, cron: str) -> None:
    start = at(1) + timedelta(minutes=begin)
    request = BackfillInput.model_validate(
        {"from_at": start, "until_at": start + timedelta(minutes=length)}
    )
    found = [one.scheduled_for for one in due_times(timing(cron), request, NOW)]
    minutes = (start + timedelta(minutes=one) for one in range(length + 1))
    expected = [one for one in minutes if one <= NOW and is_due(cron, one)]
    assert found == expected


def is_due(cron: str, one: datetime) -> bool:
    if cron == "0 2 * * *":
        return (one.hour, one.minute) == (2, 0)
    if cron == "*/30 * * * *":
        return one.minute % 30 == 0
    return one.minute == 15 and one.hour in {3, 4} and one.isoweekday() <= 5
