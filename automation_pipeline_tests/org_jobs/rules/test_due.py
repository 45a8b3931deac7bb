"""Decisions about due schedules: outages, overlaps, windows, skips and obstacles."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.timing import (
    Planned,
    Timing,
    TimingFields,
    next_planned,
    read_timing,
)
from automation_pipeline.org_jobs.models.jobs import (
    MOST_CAUGHT_UP,
    FireTrigger,
    MisfirePolicy,
    SkipReason,
)
from automation_pipeline.org_jobs.rules.due import (
    DueOrgSchedule,
    FireDecision,
    ScheduleFacts,
    decide,
)
from automation_pipeline_tests.cases import every_case

TEN = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
BUSY = ScheduleFacts(at_work=1)


def timing(cron: str = "*/5 * * * *", **fields: Any) -> Timing:
    return read_timing(
        TimingFields(seed="s", cron_expression=cron, timezone=fields.pop("zone", "UTC"), **fields)
    )


USUAL = {
    "misfire_policy": MisfirePolicy.FIRE_ONCE,
    "grace_seconds": 3600,
    "overlap_policy": OverlapPolicy.SKIP,
    "skips_next": False,
    "facts": ScheduleFacts(),
}


def due(times: Timing, after: datetime = TEN, **fields: Any) -> DueOrgSchedule:
    planned = next_planned(times, after)
    assert planned is not None
    return DueOrgSchedule(**(USUAL | {"timing": times, "due": planned} | fields))


def fire_lines(decision: FireDecision) -> list[str]:
    return [f"{fire.scheduled_for:%H:%M} {fire.skip or 'run'}" for fire in decision.fires]


def at(hour: int, minute: int = 0, second: int = 10, day: int = 4) -> datetime:
    return datetime(2026, 5, day, hour, minute, second, tzinfo=UTC)


def test_due_time_is_dispatched_and_the_next_planned() -> None:
    decision = decide(due(timing()), at(10, 5))
    assert fire_lines(decision) == ["10:05 run"]
    assert decision.fires[0].trigger is FireTrigger.CRON
    assert decision.next == Planned(at(10, 10, 0), at(10, 10, 0))


@every_case(
    ("policy", "run", "skipped", "next_at"),
    [
        (MisfirePolicy.SKIP, [], 36, at(13, 5, 0)),
        (MisfirePolicy.FIRE_ONCE, [at(13, 0, 0)], 35, at(13, 5, 0)),
        (MisfirePolicy.FIRE_ALL, [at(12, 15, 0)], 26, at(12, 20, 0)),
    ],
)
def test_misfire_policies_after_three_hours(
    policy: MisfirePolicy, run: list[datetime], skipped: int, next_at: datetime
) -> None:
    decision = decide(due(timing(), misfire_policy=policy), at(13, 0))
    assert [fire.scheduled_for for fire in decision.fires if fire.skip is None] == run
    assert sum(fire.skip is SkipReason.MISFIRE for fire in decision.fires) == skipped
    assert decision.next is not None
    assert decision.next.scheduled_for == next_at
    assert not decision.is_cut


GRACE = {"grace_seconds": 60}


@every_case(
    ("given", "now", "fires"),
    [
        # Within the grace time: a start more than a minute late is a catch-up.
        ({}, at(10, 5), ["10:05 run CRON"]),
        ({"skips_next": True}, at(10, 5), ["10:05 operator CRON"]),
        ({"skips_next": True}, at(10, 9, 0), ["10:05 operator CATCHUP"]),
        ({}, at(10, 10), ["10:05 misfire CRON", "10:10 run CRON"]),
        ({}, at(10, 12), ["10:05 misfire CRON", "10:10 run CATCHUP"]),
        # Later than the grace time.
        (GRACE, at(10, 6, 1), ["10:05 run CATCHUP"]),
        (GRACE, at(10, 6, 0), ["10:05 run CRON"]),
        (GRACE | {"facts": BUSY}, at(10, 7), ["10:05 overlap CATCHUP"]),
        (GRACE, at(10, 11), ["10:05 misfire CATCHUP", "10:10 run CATCHUP"]),
    ],
)
def test_a_late_fire_is_a_catch_up(given: dict[str, Any], now: datetime, fires: list[str]) -> None:
    decision = decide(due(timing(), **given), now)
    assert [
        f"{fire.scheduled_for:%H:%M} {fire.skip or 'run'} {fire.trigger}" for fire in decision.fires
    ] == fires


def run_until_not_due(schedule: DueOrgSchedule, now: datetime) -> list[datetime]:
    """The due times that are run until the schedule is no longer due."""
    ran: list[datetime] = []
    for _ in range(50):
        decision = decide(schedule, now)
        ran += [fire.scheduled_for for fire in decision.fires if fire.skip is None]
        assert decision.next is not None
        if decision.next.effective_for > now:
            return ran
        facts = ScheduleFacts(waiting=len(ran))
        schedule = replace(schedule, due=decision.next, facts=facts)
    raise AssertionError("It never ends")


def test_fire_all_runs_the_newest_ten_in_order() -> None:
    ran = run_until_not_due(due(timing(), misfire_policy=MisfirePolicy.FIRE_ALL), at(13, 2))
    assert ran == [
        at(12, 15, 0) + timedelta(minutes=5 * number) for number in range(MOST_CAUGHT_UP)
    ]


@every_case("policy", MisfirePolicy)
def test_newest_due_time_within_the_grace_time_is_run(policy: MisfirePolicy) -> None:
    decision = decide(due(timing(), misfire_policy=policy), at(10, 18))
    ran = [fire.scheduled_for for fire in decision.fires if fire.skip is None]
    assert ran == ([at(10, 5, 0)] if policy is MisfirePolicy.FIRE_ALL else [at(10, 15, 0)])


def test_long_outage_lists_few_due_times() -> None:
    decision = decide(due(timing("* * * * *")), at(10, 0) + timedelta(days=365))
    assert decision.is_cut
    assert len(decision.fires) < 400
    assert decision.dispatched is not None
    assert decision.dispatched.scheduled_for == at(10, 0, 0) + timedelta(days=365)


def test_newest_due_time_of_a_rare_schedule_is_found() -> None:
    decision = decide(due(timing("0 0 1 1 *"), datetime(2020, 6, 1, tzinfo=UTC)), at(10))
    assert decision.dispatched is not None
    assert decision.dispatched.scheduled_for == datetime(2026, 1, 1, tzinfo=UTC)


@every_case(
    ("policy", "facts", "skip", "ends_others"),
    [
        (OverlapPolicy.SKIP, ScheduleFacts(), None, False),
        (OverlapPolicy.SKIP, BUSY, SkipReason.OVERLAP, False),
        (OverlapPolicy.SKIP, ScheduleFacts(waiting=1), SkipReason.OVERLAP, False),
        (OverlapPolicy.BUFFER_ONE, BUSY, None, False),
        (OverlapPolicy.BUFFER_ONE, ScheduleFacts(waiting=1), None, False),
        (OverlapPolicy.BUFFER_ONE, ScheduleFacts(at_work=1, waiting=1), SkipReason.OVERLAP, False),
        (OverlapPolicy.BUFFER_ONE, ScheduleFacts(waiting=2), SkipReason.OVERLAP, False),
        (OverlapPolicy.BUFFER_ALL, ScheduleFacts(at_work=1, waiting=9), None, False),
        (OverlapPolicy.CANCEL_OTHER, BUSY, None, True),
        (OverlapPolicy.CANCEL_OTHER, ScheduleFacts(), None, False),
        (OverlapPolicy.TERMINATE_OTHER, BUSY, None, True),
        (OverlapPolicy.ALLOW_ALL, ScheduleFacts(at_work=1, waiting=9), None, False),
    ],
)
def test_each_overlap_policy(
    policy: OverlapPolicy, facts: ScheduleFacts, skip: SkipReason | None, ends_others: bool
) -> None:
    decision = decide(due(timing(), overlap_policy=policy, facts=facts), at(10, 5))
    assert ([fire.skip for fire in decision.fires], decision.ends_others) == ([skip], ends_others)
    assert decision.next == Planned(at(10, 10, 0), at(10, 10, 0))


@every_case(
    ("fields", "reason"),
    [
        ({"skips_next": True}, SkipReason.OPERATOR),
        ({"facts": ScheduleFacts(is_disabled=True)}, SkipReason.DISABLED),
        ({"facts": ScheduleFacts(is_in_maintenance=True)}, SkipReason.MAINTENANCE),
        ({"facts": ScheduleFacts(is_host_offline=True)}, SkipReason.HOST_OFFLINE),
        ({"facts": ScheduleFacts(at_work=1, is_in_maintenance=True)}, SkipReason.MAINTENANCE),
        ({"facts": BUSY, "skips_next": True}, SkipReason.OPERATOR),
    ],
)
def test_skip_reasons(fields: dict[str, Any], reason: SkipReason) -> None:
    decision = decide(due(timing(), **fields), at(10, 5))
    assert fire_lines(decision) == [f"10:05 {reason}"]
    assert decision.clears_skip is (reason is SkipReason.OPERATOR)


NIGHT = {"window_start": "02:00", "window_end": "06:00"}


def test_late_due_time_waits_for_the_next_window() -> None:
    times = timing("30 5 * * 1", **NIGHT)
    decision = decide(due(times, at(4, 45)), at(9))
    assert decision.fires == ()
    assert decision.next == Planned(at(5, 30, 0), at(2, 0, 0, day=5))
    after = decide(due(times, due=decision.next), at(2, day=5))
    assert fire_lines(after) == ["05:30 run"]
    assert after.next == Planned(at(5, 30, 0, day=11), at(5, 30, 0, day=11))


def test_due_time_of_the_next_window_replaces_a_late_one() -> None:
    decision = decide(due(timing("30 * * * *", **NIGHT), at(4, 45)), at(9))
    assert fire_lines(decision) == ["05:30 outside_window"]
    assert decision.next == Planned(at(1, 30, 0, day=5), at(2, 0, 0, day=5))


def test_late_due_time_is_skipped_by_a_filtering_window() -> None:
    decision = decide(due(timing("30 * * * *", window_policy="FILTER", **NIGHT), at(4, 45)), at(9))
    assert fire_lines(decision) == ["05:30 outside_window"]
    assert decision.next is not None
    assert decision.next.effective_for == at(2, 30, 0, day=5)


@every_case(
    ("cron", "window", "now"),
    [
        ("30 0 * * *", {"window_start": "23:30", "window_end": "00:30"}, at(0, 30, 0, day=5)),
        ("0 6 * * *", NIGHT, at(6, 0, 59, day=5)),
    ],
)
def test_the_last_minute_of_a_window_is_inside(
    cron: str, window: dict[str, str], now: datetime
) -> None:
    decision = decide(due(timing(cron, **window), at(12)), now)
    assert [fire.skip for fire in decision.fires] == [None]


@every_case("seconds", [0, 14, 300, 3500])
def test_skipped_window_starts_after_the_gap(seconds: int) -> None:
    times = timing("30 2 * * *", zone="Europe/Paris", window_start="02:00", window_end="02:59")
    gap_ends = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    schedule = due(times, gap_ends - timedelta(hours=1))
    assert schedule.due.effective_for == gap_ends
    assert [
        fire.skip for fire in decide(schedule, gap_ends + timedelta(seconds=seconds)).fires
    ] == [None]


def test_postponed_due_time_respects_exclusions_and_the_end() -> None:
    times = timing("30 5 * * 1", excluded_on=("2026-05-05",), **NIGHT)
    assert decide(due(times, at(4, 45)), at(9)).next == Planned(at(5, 30, 0), at(2, 0, 0, day=6))
    ended = decide(due(timing("30 5 * * 1", end_at=at(12), **NIGHT), at(4, 45)), at(9))
    assert (fire_lines(ended), ended.next) == (["05:30 outside_window"], None)


def test_catch_up_does_not_replace_a_new_job() -> None:
    facts = ScheduleFacts(waiting=1)
    schedule = due(
        timing(),
        misfire_policy=MisfirePolicy.FIRE_ALL,
        overlap_policy=OverlapPolicy.CANCEL_OTHER,
        facts=facts,
    )
    decision = decide(schedule, at(13))
    assert decision.dispatched is not None
    assert not decision.ends_others


@every_case("policy", MisfirePolicy)
def test_large_jitter_misses_no_due_time(policy: MisfirePolicy) -> None:
    times, ran = timing("0 * * * *", jitter_seconds=14_400), list[datetime]()
    schedule, now = (
        due(times, misfire_policy=policy, overlap_policy=OverlapPolicy.ALLOW_ALL),
        at(10),
    )
    for _ in range(48 * 60):
        now += timedelta(minutes=1)
        if schedule.due.effective_for <= now:
            decision = decide(schedule, now)
            assert [fire.skip for fire in decision.fires] == [None]
            ran.append(decision.fires[0].scheduled_for)
            assert decision.next is not None
            schedule = replace(schedule, due=decision.next)
    assert ran == [at(11, 0, 0) + timedelta(hours=number) for number in range(len(ran))]
    assert len(ran) in {47, 48}


def test_last_due_time_is_run() -> None:
    decision = decide(due(timing(end_at=at(10, 5, 0))), at(10, 5))
    assert fire_lines(decision) == ["10:05 run"]
    assert decision.next is None


@every_case(
    ("now", "local"),
    [
        (datetime(2026, 3, 28, 12, tzinfo=UTC), "2026-03-29 03:00+02:00"),
        (datetime(2026, 10, 24, 12, tzinfo=UTC), "2026-10-25 02:30+01:00"),
    ],
)
def test_clock_changes_repeat_no_due_time(now: datetime, local: str) -> None:
    times = timing("30 2 * * *", zone="Europe/Paris")
    planned = next_planned(times, now)
    assert planned is not None
    assert planned.effective_for.astimezone(times.zone).isoformat(" ", "minutes") == local
    following = next_planned(times, planned.scheduled_for)
    assert following is not None
    assert (
        following.effective_for.astimezone(times.zone).day
        == planned.effective_for.astimezone(times.zone).day + 1
    )


EVENINGS = {"window_start": "22:00", "window_end": "06:00", "window_policy": "FILTER"}


@given(
    times=st.sampled_from(
        [
            ("*/5 * * * *", {}),
            ("0 */4 * * *", NIGHT),
            ("15 12 * * 1-5", NIGHT),
            ("*/5 * * * *", EVENINGS),
        ]
    ).map(lambda case: timing(case[0], zone="Europe/Paris", **case[1])),
    policy=st.sampled_from(MisfirePolicy),
    overlap=st.sampled_from(OverlapPolicy),
    late=st.timedeltas(timedelta(0), timedelta(days=40)),
    facts=st.builds(ScheduleFacts, at_work=st.integers(0, 2), waiting=st.integers(0, 2)),
)
def test_no_due_time_is_decided_twice(
    times: Timing,
    policy: MisfirePolicy,
    overlap: OverlapPolicy,
    late: timedelta,
    facts: ScheduleFacts,
) -> None:
    schedule = due(times, misfire_policy=policy, overlap_policy=overlap, facts=facts)
    now, seen = schedule.due.effective_for + late, set[datetime]()
    for _ in range(20):
        decision = decide(schedule, now)
        assert sum(fire.skip is None for fire in decision.fires) <= 1
        for fire in decision.fires:
            assert fire.effective_for <= now
            assert fire.scheduled_for not in seen
            seen.add(fire.scheduled_for)
        assert decision.next is not None
        assert decision.next.scheduled_for not in seen
        if decision.next.effective_for > now:
            return
        schedule = replace(schedule, due=decision.next, facts=ScheduleFacts())
    raise AssertionError("It stays due")
