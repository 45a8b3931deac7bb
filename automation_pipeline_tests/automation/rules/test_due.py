"""Which due times are run, which are not and why, which wait: tables, and what holds for every
schedule."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.automation.models.schedules import CatchUp, ScheduleFields, crons_of
from automation_pipeline.automation.rules.schedules import (
    AND_EARLIER_ONES,
    EXCLUDED,
    MAX_LISTED,
    MISSED,
    OVER_LIMIT,
    OVERLAP_REASONS,
    SKIPPED,
    SUPERSEDED,
    DueDecision,
    DuePolicy,
    DueSchedule,
    ScheduleLoad,
    ScheduleWork,
    SkippedOccurrence,
    UnendedRun,
    decide_due,
    next_undecided,
)
from automation_pipeline.core.scheduling.cron import Cron, OverlapPolicy
from automation_pipeline.core.scheduling.timing import Timing, planned_after
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline_tests.tables import every_case

RULES = DuePolicy(timedelta(minutes=20), timedelta(minutes=70), 120)
BUSY, OUTLASTING = OVERLAP_REASONS[ScheduleLoad.BUSY], OVERLAP_REASONS[ScheduleLoad.OUTLASTING]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def a_schedule(cron: str, since: str, zone_name: str = "UTC", **fields: Any) -> DueSchedule:
    jitter_seconds = fields.pop("jitter_seconds", 0)
    excluded_on = frozenset(map(date.fromisoformat, fields.pop("excluded_on", ())))
    timing = Timing(
        crons=(Cron.parse(cron),),
        zone=zone(zone_name),
        seed="7",
        jitter_seconds=jitter_seconds,
        excluded_on=excluded_on,
    )
    return DueSchedule(
        id=7,
        name="Nightly",
        timing=timing,
        decided_until=at(since),
        **{"catch_up_limit": 10, **fields},
    )


def working(now: str, minutes: int, *, alive: bool = False) -> ScheduleWork:
    started_at = at(now) - timedelta(minutes=minutes)
    return ScheduleWork(True, started_at, (UnendedRun(1, 1, started_at, alive),))


def told(decision: DueDecision) -> tuple[list[str], list[tuple[str, str]]]:
    run = [f"{due:%d %H:%M}" for due in decision.to_run]
    return run, [(f"{entry.due_at:%d %H:%M}", entry.because) for entry in decision.not_run]


@every_case(
    ("now", "due"),
    [
        ("2026-05-04T08:59:59", False),
        ("2026-05-04T09:00:00", True),
        ("2026-05-04T09:20:00", True),
        ("2026-05-04T09:20:59", True),
        ("2026-05-04T09:21:00", False),
    ],
)
def test_both_minutes_at_the_edges_of_the_window_are_in_it(now: str, due: bool) -> None:
    decision = decide_due(a_schedule("0 9 * * *", "2026-05-03T09:00"), at(now), RULES)
    assert bool(decision.to_run) is due
    assert [entry.because for entry in decision.not_run] == [MISSED] * (now > "2026-05-04T09:21")


@every_case(
    ("zone_name", "cron", "since", "now", "expected"),
    [
        # Spring: 02:30 does not exist; it is due when the clock has jumped.
        ("Europe/Paris", "30 2 * * *", "2026-03-28T12:00", "2026-03-29T00:59", []),
        ("Europe/Paris", "30 2 * * *", "2026-03-28T12:00", "2026-03-29T01:05", ["29 01:00"]),
        ("America/New_York", "30 2 * * *", "2026-03-07T12:00", "2026-03-08T07:05", ["08 07:00"]),
        # Autumn: 02:30 comes twice and is due once.
        ("Europe/Paris", "30 2 * * *", "2026-10-24T12:00", "2026-10-25T00:35", []),
        ("Europe/Paris", "30 2 * * *", "2026-10-24T12:00", "2026-10-25T01:35", ["25 01:30"]),
        ("Europe/Paris", "30 2 * * *", "2026-10-25T01:30", "2026-10-25T01:35", []),
        ("America/New_York", "30 1 * * *", "2026-10-31T12:00", "2026-11-01T05:35", []),
        ("America/New_York", "30 1 * * *", "2026-10-31T12:00", "2026-11-01T06:35", ["01 06:30"]),
        # The same time of day is another instant on either side.
        ("Europe/Paris", "0 9 * * *", "2026-03-28T12:00", "2026-03-29T07:00", ["29 07:00"]),
        ("Europe/Paris", "0 9 * * *", "2026-03-27T12:00", "2026-03-28T08:00", ["28 08:00"]),
        # Ends of months.
        ("UTC", "0 9 L * *", "2026-02-20T00:00", "2026-02-28T09:01", ["28 09:00"]),
        ("UTC", "0 9 31 * *", "2026-04-01T00:00", "2026-04-30T09:01", []),
        ("UTC", "0 9 29 2 *", "2027-03-01T00:00", "2028-02-29T09:01", ["29 09:00"]),
        ("UTC", "0 9 29 2 *", "2028-02-29T09:00", "2029-03-01T09:01", []),
        # A window that reaches into the day before.
        ("Europe/Paris", "55 23 * * *", "2026-05-03T12:00", "2026-05-03T22:10", ["03 21:55"]),
    ],
)
def test_due_times_are_those_of_the_schedules_zone(
    zone_name: str, cron: str, since: str, now: str, expected: list[str]
) -> None:
    assert told(decide_due(a_schedule(cron, since, zone_name), at(now), RULES)) == (expected, [])


@every_case(
    ("day", "month_end"),
    [(29, "2026-02-28T09:00"), (30, "2026-02-28T09:00"), (31, "2026-04-30T09:00")],
)
def test_a_monthly_schedule_with_several_crons_is_due_on_the_last_day(
    day: int, month_end: str
) -> None:
    fields = {"name": "x", "schedule_type": "MONTHLY", "time_of_day": "09:00", "day_of_month": day}
    crons = crons_of(ScheduleFields.model_validate({**fields, "short_months": "last_day"}))
    since = at(month_end) - timedelta(days=10)
    monthly = DueSchedule(
        id=1,
        name="x",
        timing=Timing(crons=crons, zone=zone("UTC")),
        decided_until=since,
        catch_up_limit=10,
    )
    assert decide_due(monthly, at(month_end), RULES).to_run == (at(month_end),)


HOURLY, OFTEN = "0 * * * *", "*/5 * * * *"


@every_case(
    ("catch_up", "cron", "since", "now", "run", "not_run"),
    [
        (
            "skip",
            HOURLY,
            "04 06:00",
            "04 09:10",
            ["04 09:00"],
            [("04 07:00", MISSED), ("04 08:00", MISSED)],
        ),
        ("skip", HOURLY, "04 06:00", "04 08:30", [], [("04 07:00", MISSED), ("04 08:00", MISSED)]),
        ("skip", OFTEN, "04 08:50", "04 09:01", ["04 09:00"], [("04 08:55", SUPERSEDED)]),
        ("latest", HOURLY, "04 06:00", "04 08:30", ["04 08:00"], [("04 07:00", SUPERSEDED)]),
        ("latest", "0 9 3 * *", "01 00:00", "10 08:59", ["03 09:00"], []),
        ("latest", "0 9 3 * *", "01 00:00", "28 09:01", ["03 09:00"], []),
        ("all", HOURLY, "04 06:00", "04 08:30", ["04 07:00", "04 08:00"], []),
        (
            "all",
            HOURLY,
            "04 04:00",
            "04 08:30",
            ["04 06:00", "04 07:00", "04 08:00"],
            [("04 05:00", OVER_LIMIT)],
        ),
        ("all", "0 9 3 * *", "01 00:00", "28 09:01", ["03 09:00"], []),
    ],
)
def test_after_an_outage_the_schedule_follows_its_catch_up_policy(
    catch_up: str, cron: str, since: str, now: str, run: list[str], not_run: list[tuple[str, str]]
) -> None:
    after = a_schedule(
        cron, f"2026-05-{since.replace(' ', 'T')}", catch_up=CatchUp(catch_up), catch_up_limit=3
    )
    assert told(decide_due(after, at(f"2026-05-{now.replace(' ', 'T')}"), RULES)) == (run, not_run)


@every_case(
    ("catch_up", "now", "run", "not_run", "decided"),
    [
        ("skip", "09:11", ["04 09:10"], [], "09:10"),
        ("all", "09:11", ["04 09:10"], [], "09:10"),
        ("latest", "09:11", ["04 09:10"], [], "09:10"),
        ("skip", "09:21", ["04 09:20"], [], "09:20"),
        ("all", "09:21", ["04 09:20"], [], "09:20"),
        ("skip", "09:31", ["04 09:30"], [("04 09:20", SUPERSEDED)], "09:30"),
        ("all", "09:31", ["04 09:20", "04 09:30"], [], "09:20"),
    ],
)
def test_only_the_newest_due_time_before_creation_runs_without_a_record(
    catch_up: str, now: str, run: list[str], not_run: list[tuple[str, str]], decided: str
) -> None:
    created_at = at("2026-05-04T09:11")
    new = a_schedule(
        "*/10 * * * *", "2026-05-04T08:50", created_at=created_at, catch_up=CatchUp(catch_up)
    )
    decision = decide_due(new, at(f"2026-05-04T{now}"), RULES)
    assert told(decision) == (run, not_run)
    assert decision.decided_until(new.decided_until) == at(f"2026-05-04T{decided}")


@every_case("catch_up", CatchUp)
def test_old_due_times_before_creation_are_neither_run_nor_recorded(
    catch_up: CatchUp,
) -> None:
    new = a_schedule(
        HOURLY, "2026-05-04T08:45", created_at=at("2026-05-04T09:05"), catch_up=catch_up
    )
    decision = decide_due(new, at("2026-05-04T09:50"), RULES)
    assert told(decision) == ([], [])
    assert decision.decided_until(new.decided_until) == at("2026-05-04T09:00")


def test_due_times_before_creation_are_not_recorded_during_a_manual_run() -> None:
    now = "2026-05-04T09:06"
    new = a_schedule(
        HOURLY, "2026-05-04T08:45", created_at=at("2026-05-04T09:05"), at_work=working(now, 1)
    )
    assert told(decide_due(new, at(now), RULES)) == ([], [])


@every_case(
    ("catch_up", "minutes", "alive", "not_run"),
    [
        ("skip", 60, False, [("04 08:00", MISSED), ("04 09:00", BUSY)]),
        ("skip", 69, True, [("04 08:00", MISSED), ("04 09:00", BUSY)]),
        ("skip", 70, True, [("04 08:00", MISSED), ("04 09:00", OUTLASTING)]),
        ("latest", 60, False, []),
        ("latest", 700, True, []),
        ("all", 60, False, []),
    ],
)
def test_beside_a_run_at_work_nothing_starts_and_only_who_catches_up_waits(
    catch_up: str, minutes: int, alive: bool, not_run: list[tuple[str, str]]
) -> None:
    now = "2026-05-04T09:10"
    busy = a_schedule(
        HOURLY,
        "2026-05-04T07:00",
        at_work=working(now, minutes, alive=alive),
        catch_up=CatchUp(catch_up),
    )
    decision = decide_due(busy, at(now), RULES)
    assert told(decision) == ([], not_run)
    assert not decision.reconcile


def test_a_stale_run_is_to_be_ended_first_and_keeps_nothing_from_running() -> None:
    now = "2026-05-04T09:10"
    stale = a_schedule(HOURLY, "2026-05-04T08:00", at_work=working(now, 70))
    assert decide_due(stale, at(now), RULES) == DueDecision(
        (at("2026-05-04T09:00"),), (), reconcile=True
    )


@every_case("fields", [{"is_active": False}, {"crons": ()}])
def test_a_paused_schedule_and_one_without_times_are_never_due_but_reconciled(
    fields: dict[str, Any],
) -> None:
    stale = {"at_work": ScheduleWork(marked_running=True), **fields}
    crons = stale.pop("crons", (Cron.parse(HOURLY),))
    schedule = DueSchedule(
        id=1,
        name="x",
        timing=Timing(crons=crons, zone=zone("UTC")),
        decided_until=at("2026-05-04T00:00"),
        catch_up_limit=10,
        **stale,
    )
    assert decide_due(schedule, at("2026-05-04T09:10"), RULES) == DueDecision(reconcile=True)


@every_case("last_run_at", ["2026-05-04T09:05", "2026-05-04T10:00"])
def test_a_run_by_hand_that_ended_meanwhile_suppresses_nothing(last_run_at: str) -> None:
    ended = a_schedule(
        "0 9 * * *", "2026-05-03T09:00", at_work=ScheduleWork(last_run_at=at(last_run_at))
    )
    assert told(decide_due(ended, at("2026-05-04T09:10"), RULES)) == (["04 09:00"], [])


def test_an_occurrence_skipped_by_an_operator_does_not_run_and_the_next_does() -> None:
    skipping = a_schedule(HOURLY, "2026-05-04T08:00", skip_due_at=at("2026-05-04T09:00"))
    assert told(decide_due(skipping, at("2026-05-04T09:10"), RULES)) == (
        [],
        [("04 09:00", SKIPPED)],
    )
    assert told(decide_due(skipping, at("2026-05-04T10:00"), RULES)) == (
        ["04 10:00"],
        [("04 09:00", SKIPPED)],
    )


def test_jitter_delays_the_start_always_by_as_much() -> None:
    due = at("2026-05-04T09:00")
    shy = a_schedule(HOURLY, "2026-05-04T08:00", jitter_seconds=3600)
    [planned] = islice(planned_after(shy.timing, at("2026-05-04T08:59")), 1)
    starts_at = planned.effective_for
    assert timedelta(0) < starts_at - due <= timedelta(hours=1)
    assert decide_due(shy, starts_at - timedelta(seconds=1), RULES) == DueDecision()
    assert decide_due(shy, starts_at, RULES).to_run == (due,)
    assert decide_due(shy, starts_at + timedelta(minutes=20), RULES).to_run[:1] == (due,), (
        "late by its jitter is not missed"
    )


def test_a_long_list_of_missed_times_is_shortened() -> None:
    decision = decide_due(
        a_schedule("* * * * *", "2025-05-04T00:00"), at("2026-05-04T09:10"), RULES
    )
    assert decision.to_run == (at("2026-05-04T09:10"),)
    assert len(decision.not_run) == MAX_LISTED
    assert decision.not_run[0].because == SUPERSEDED + AND_EARLIER_ONES
    daily = decide_due(a_schedule("0 1 * * *", "2025-05-04T00:00"), at("2026-05-04T09:10"), RULES)
    assert daily.not_run[0] == SkippedOccurrence(at("2026-04-15T01:00"), MISSED + AND_EARLIER_ONES)


@every_case(
    ("policy", "catch_up", "busy", "run", "not_run", "waiting", "replaces"),
    [
        ("SKIP", "skip", True, [], ["09:00", "09:05", "09:10"], [], False),
        ("SKIP", "latest", True, [], [], [], False),
        ("SKIP", "all", True, [], [], [], False),
        ("BUFFER_ONE", "skip", True, [], [], ["09:10"], False),
        ("BUFFER_ONE", "all", True, [], [], ["09:00", "09:05", "09:10"], False),
        ("BUFFER_ALL", "skip", True, [], [], ["09:00", "09:05", "09:10"], False),
        ("CANCEL_OTHER", "skip", True, ["09:10"], ["09:00", "09:05"], [], True),
        ("TERMINATE_OTHER", "latest", True, ["09:10"], ["09:00", "09:05"], [], True),
        ("ALLOW_ALL", "skip", True, ["09:10"], ["09:00", "09:05"], [], False),
        ("BUFFER_ONE", "skip", False, ["09:10"], ["09:00", "09:05"], [], False),
        ("BUFFER_ALL", "skip", False, ["09:00", "09:05", "09:10"], [], [], False),
        ("CANCEL_OTHER", "skip", False, ["09:10"], ["09:00", "09:05"], [], False),
    ],
)
def test_the_overlap_policy_decides_what_is_due_next_to_a_run(
    policy: str,
    catch_up: str,
    busy: bool,
    run: list[str],
    not_run: list[str],
    waiting: list[str],
    replaces: bool,
) -> None:
    now = "2026-05-04T09:10"
    schedule = a_schedule(
        OFTEN,
        "2026-05-04T08:55",
        overlap_policy=OverlapPolicy(policy),
        catch_up=CatchUp(catch_up),
        at_work=working(now, 60) if busy else ScheduleWork(),
    )
    decision = decide_due(schedule, at(now), RULES)
    assert [f"{due:%H:%M}" for due in decision.to_run] == run
    assert [f"{one.due_at:%H:%M}" for one in decision.not_run] == not_run
    assert [f"{due:%H:%M}" for due in decision.waiting] == waiting
    assert decision.replaces is replaces
    started = [] if replaces else run[:1]
    until = max(["08:55", *not_run, *started])
    assert f"{decision.decided_until(schedule.decided_until):%H:%M}" == until


def test_a_due_time_that_waited_for_a_run_is_not_missed() -> None:
    due = at("2026-05-04T09:00")
    waited = a_schedule(
        HOURLY,
        "2026-05-04T08:00",
        overlap_policy=OverlapPolicy.BUFFER_ONE,
        waited=frozenset({due}),
    )
    assert decide_due(waited, at("2026-05-04T09:50"), RULES).to_run == (due,)
    still_busy = replace(waited, at_work=working("2026-05-04T09:50", 60, alive=True))
    assert decide_due(still_busy, at("2026-05-04T09:50"), RULES) == DueDecision()
    newer = decide_due(still_busy, at("2026-05-04T10:00"), RULES)
    assert newer.waiting == (at("2026-05-04T10:00"),), "the newest waits from now on"


def test_an_excluded_day_is_that_of_the_schedules_zone_and_is_recorded() -> None:
    nightly = a_schedule(
        "30 23 * * *", "2026-05-03T22:00", "Europe/Paris", excluded_on=("2026-05-04",)
    )
    excluded = decide_due(nightly, at("2026-05-04T21:40"), RULES)
    assert told(excluded) == ([], [("04 21:30", EXCLUDED)])
    assert next_undecided(nightly.timing, at("2026-05-03T22:00")) == at("2026-05-04T21:30")
    catching_up = replace(nightly, catch_up=CatchUp.LATEST)
    assert told(decide_due(catching_up, at("2026-05-05T10:00"), RULES)) == (
        [],
        [("04 21:30", EXCLUDED)],
    )


CRONS = st.sampled_from(
    ["0 2 * * *", "30 2 * * 0", "*/7 * * * *", "0 * * * *", "15 2,3 28-31 * *", "0 0 L 2,3,10 *"]
)
ZONES = st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu"])
STARTS = st.sampled_from(
    ["2026-03-07T00:00", "2026-03-28T12:00", "2026-10-24T12:00", "2026-10-31T12:00"]
)
STEPS = st.lists(st.tuples(st.integers(1, 900), st.booleans()), min_size=1, max_size=25)


@settings(deadline=None)
@given(CRONS, ZONES, STARTS, STEPS, st.sampled_from(CatchUp), st.sampled_from([0, 90, 1500]))
def test_every_due_time_is_decided_at_most_once_in_order_and_no_run_starts_beside_another(
    cron: str,
    zone_name: str,
    start: str,
    steps: list[tuple[int, bool]],
    catch_up: CatchUp,
    jitter: int,
) -> None:
    now, since, running = at(start), at(start), ScheduleWork()
    decided: list[datetime] = []
    for minutes, ends in steps:
        now += timedelta(minutes=minutes)
        running = ScheduleWork() if ends else running
        schedule = a_schedule(
            cron, start, zone_name, catch_up=catch_up, at_work=running, jitter_seconds=jitter
        )
        schedule = DueSchedule(**{**vars(schedule), "decided_until": since})
        decision = decide_due(schedule, now, RULES)
        assert not (running.runs and decision.to_run and not decision.reconcile)
        decided += [*(entry.due_at for entry in decision.not_run), *decision.started]
        since = decision.decided_until(since)
        assert since == (decided[-1] if decided else at(start))
        assert next_undecided(schedule.timing, since) > since
        if decision.to_run:
            running = ScheduleWork(True, now, (UnendedRun(1, 1, now, alive=False),))
    assert decided == sorted(set(decided))
    assert all(due <= now for due in decided)
