"""The scheduling engine: due times that run, how they start, and why others are skipped."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from automation_pipeline.core.clock import days_between
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.plan import (
    IN_TIME,
    DueFacts,
    DueSkip,
    NotRun,
    Plan,
    Policies,
    Start,
    backlog,
    overlap_start,
    plan,
)
from automation_pipeline.core.scheduling.timing import (
    ExecutionWindow,
    Planned,
    Timing,
    WindowPolicy,
    parse_cron,
    planned_after,
)
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline_tests.cases import every_case

SKIP, ONE, ALL, CANCEL, TERMINATE, ALLOW = OverlapPolicy


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-05-04T{text}").replace(tzinfo=UTC)


def hourly(**fields: Any) -> Timing:
    return Timing(crons=(parse_cron("0 * * * *"),), zone=zone("UTC"), **fields)


def due(*texts: str) -> list[Planned]:
    return [Planned(at(text), at(text)) for text in texts]


def plan_for(policies: Policies, *times: str, now: str = "10:10", **facts: Any) -> Plan:
    """By default, due times before 09:50 are late."""
    known = {"late_before": at("09:50"), **facts}
    return plan(hourly(), due(*times), policies, DueFacts(now=at(now), **known))


def skipped(result: Plan) -> list[str]:
    return [f"{one.due.scheduled_for:%H} {one.reason.name}" for one in result.skips]


def line(result: Plan) -> list[str]:
    return [f"{one.scheduled_for:%H}" for one in result.line]


@every_case(
    ("policies", "facts", "run", "skips"),
    [
        (Policies(drops_late=True), {}, ["10"], ["08 MISSED", "09 MISSED"]),
        (Policies(drops_late=True), {"late_before": at("09:00")}, ["10"], ["08 MISSED", "09 SUPERSEDED"]),
        (Policies(drops_late=True), {"all_late": True}, [], ["08 MISSED", "09 MISSED", "10 MISSED"]),
        (Policies(drops_late=True), {"waited": frozenset({at("09:00")})}, ["10"], ["08 MISSED", "09 SUPERSEDED"]),
        (Policies(), {}, ["10"], ["08 SUPERSEDED", "09 SUPERSEDED"]),
        (Policies(keeps=2), {}, ["09", "10"], ["08 OVER_LIMIT"]),
        (Policies(keeps=3), {}, ["08", "09", "10"], []),
        (Policies(keeps=9, drops_late=True), {}, ["10"], ["08 MISSED", "09 MISSED"]),
        (Policies(), {"skip_until": at("09:00")}, ["10"], ["08 OPERATOR", "09 OPERATOR"]),
        (Policies(), {"skip_until": at("10:00")}, [], ["08 OPERATOR", "09 OPERATOR", "10 OPERATOR"]),
        (Policies(), {"skips_next": True}, [], ["08 SUPERSEDED", "09 SUPERSEDED", "10 OPERATOR"]),
    ],
)  # fmt: skip
def test_a_misfire_policy_drops_late_due_times_and_keeps_the_newest(
    policies: Policies, facts: dict[str, Any], run: list[str], skips: list[str]
) -> None:
    result = plan_for(policies, "08:00", "09:00", "10:00", **facts)
    assert (line(result), skipped(result)) == (run, skips)
    assert result.start is (Start.NOW if run else None)


def test_without_due_times_the_plan_is_empty() -> None:
    assert plan_for(Policies()) == Plan()


@every_case(
    ("policy", "at_work", "waiting", "start"),
    [
        *((policy, 0, 0, Start.NOW) for policy in OverlapPolicy),
        (SKIP, 1, 0, None),
        (SKIP, 0, 1, None),
        (ONE, 1, 0, Start.IN_LINE),
        (ONE, 0, 1, Start.IN_LINE),
        (ONE, 1, 1, None),
        (ONE, 0, 2, None),
        (ALL, 1, 9, Start.IN_LINE),
        (CANCEL, 1, 0, Start.IN_PLACE),
        (TERMINATE, 0, 1, Start.IN_PLACE),
        (ALLOW, 1, 9, Start.NOW),
    ],
)
def test_the_overlap_policy_decides_how_new_work_starts(
    policy: OverlapPolicy, at_work: int, waiting: int, start: Start | None
) -> None:
    assert overlap_start(policy, at_work, waiting) is start
    result = plan_for(Policies(overlap=policy), "10:00", at_work=at_work, waiting=waiting)
    assert result.start is start
    assert skipped(result) == (["10 OVERLAP"] if start is None else [])
    assert policy.is_serial is (policy is not ALLOW)
    assert policy.replaces_others is (policy in {CANCEL, TERMINATE})


@every_case("policy", [SKIP, ONE, CANCEL, TERMINATE])
def test_late_due_times_queue_behind_the_work_they_follow(
    policy: OverlapPolicy,
) -> None:
    policies = Policies(keeps=2, overlap=policy)
    late = plan_for(policies, "10:00", now="10:01:01", at_work=1, waiting=1)
    assert late.start is Start.IN_LINE
    in_time = plan_for(policies, "10:00", now="10:01", at_work=1, waiting=1)
    assert in_time.start is not Start.IN_LINE
    assert at("10:01") - at("10:00") == IN_TIME


@every_case(
    ("obstacles", "facts", "reason"),
    [
        ((NotRun.HOST_OFFLINE, NotRun.DISABLED), {}, "DISABLED"),
        ((NotRun.MAINTENANCE,), {"at_work": 1}, "MAINTENANCE"),
        ((NotRun.HOST_OFFLINE,), {"at_work": 1}, "HOST_OFFLINE"),
        ((NotRun.DISABLED,), {"skips_next": True}, "OPERATOR"),
        ((), {"at_work": 1}, "OVERLAP"),
    ],
)
def test_the_first_of_several_skip_reasons_is_reported(
    obstacles: tuple[NotRun, ...], facts: dict[str, Any], reason: str
) -> None:
    assert skipped(plan_for(Policies(), "10:00", obstacles=obstacles, **facts)) == [f"10 {reason}"]


def test_excluded_days_are_skipped_before_other_rules_apply() -> None:
    timing = hourly(excluded_on=frozenset({date(2026, 5, 4)}))
    now = at("10:10") + timedelta(days=1)
    times = list(backlog(timing, at("22:30"), now, enough=99, with_excluded=True).times)
    facts = DueFacts(now=now, late_before=now, skip_until=at("23:00"))
    result = plan(timing, times, Policies(keeps=99), facts)
    assert skipped(result) == ["23 EXCLUDED"]
    assert line(result) == [f"{hour:02}" for hour in range(11)]
    assert backlog(timing, at("22:30"), now, enough=99).times == times[1:]


@every_case(
    ("zone_name", "unusual"),
    [
        ("Europe/Paris", ["03-29 03:00"]),
        ("America/New_York", ["03-08 03:00"]),
        ("Australia/Lord_Howe", []),
        ("UTC", []),
    ],
)
def test_a_daily_cron_has_one_due_time_per_day_over_a_year(
    zone_name: str, unusual: list[str]
) -> None:
    timing = Timing(crons=(parse_cron("30 2 * * *"),), zone=zone(zone_name))
    start = datetime(2026, 1, 1, tzinfo=timing.zone).astimezone(UTC)
    end = datetime(2027, 1, 1, tzinfo=timing.zone).astimezone(UTC)
    found: list[datetime] = []
    while True:
        since = found[-1] if found else start
        [*times] = backlog(timing, since, since + timedelta(hours=26), enough=99).times
        result = plan(timing, times, Policies(), DueFacts(now=end, late_before=start))
        [chosen] = result.line
        if chosen.scheduled_for >= end:
            break
        found.append(chosen.scheduled_for)
    shown = [f"{one.astimezone(timing.zone):%m-%d %H:%M}" for one in found]
    assert [one[:5] for one in shown] == [
        f"{day:%m-%d}" for day in days_between(date(2026, 1, 1), date(2026, 12, 31))
    ]
    assert [one for one in shown if one[6:] != "02:30"] == unusual


@every_case(
    ("hours", "enough", "count", "is_cut"),
    [
        (2, 10, 2, False),
        (40, 10, 30, True),
        (40, 30, 30, True),
        (40, 31, 40, False),
        (24 * 20, 31, 24 * 15, True),
    ],
)
def test_the_backlog_of_a_long_outage_is_bounded(
    hours: int, enough: int, count: int, is_cut: bool
) -> None:
    now = at("10:10")
    found = backlog(hourly(), now - timedelta(hours=hours), now, enough=enough)
    assert (len(found.times), found.is_cut) == (count, is_cut)
    assert found.times[-1].scheduled_for == at("10:00")
    assert backlog(hourly(), at("08:30"), at("10:00"), enough=10).times == due("09:00", "10:00")


def windowed(
    cron: str, window: str = "08:00-10:00", zone_name: str = "UTC", **fields: Any
) -> Timing:
    bounds = ExecutionWindow.parse(*window.split("-"))
    return Timing(crons=(parse_cron(cron),), zone=zone(zone_name), window=bounds, **fields)


NIGHT = windowed("30 2 * * *", "02:00-02:59", "Europe/Paris")
# The clock skips this start, so that the window opens at 03:00, which is 01:00 in UTC.
MOVED = Planned(
    datetime.fromisoformat("2026-03-29T01:00Z"), datetime.fromisoformat("2026-03-29T01:00Z")
)
NINE = Planned(at("09:00"), at("09:00"))
NEXT_MORNING = at("08:00") + timedelta(days=1)


@every_case(
    ("timing", "chosen", "now", "becomes"),
    [
        (windowed("0 9 * * *"), NINE, at("10:00:59"), Start.NOW),
        (windowed("0 9 * * *"), NINE, at("10:01"), NEXT_MORNING),
        (windowed("0 9 * * *"), NINE, at("07:59"), at("08:00")),
        (windowed("0 * * * *"), NINE, at("10:01"), NotRun.OUTSIDE_WINDOW),
        (windowed("0 8 * * *"), Planned(at("08:00"), at("08:00")), at("10:01"), NotRun.OUTSIDE_WINDOW),
        (windowed("0 9 * * *", end_at=NEXT_MORNING), NINE, at("10:01"), NEXT_MORNING),
        (windowed("0 9 * * *", end_at=at("23:00")), NINE, at("10:01"), NotRun.OUTSIDE_WINDOW),
        (windowed("0 9 * * *", window_policy=WindowPolicy.FILTER), NINE, at("10:00"), Start.NOW),
        (windowed("0 9 * * *", window_policy=WindowPolicy.FILTER), NINE, at("10:01"), NotRun.OUTSIDE_WINDOW),
        (NIGHT, MOVED, datetime.fromisoformat("2026-03-29T01:59:59Z"), Start.NOW),
        (NIGHT, MOVED, datetime.fromisoformat("2026-03-29T02:00Z"), datetime.fromisoformat("2026-03-30T00:00Z")),
    ],
)  # fmt: skip
def test_outside_its_window_a_due_time_is_postponed_or_skipped(
    timing: Timing, chosen: Planned, now: datetime, becomes: Start | NotRun | datetime
) -> None:
    result = plan(timing, [chosen], Policies(), DueFacts(now=now, late_before=now))
    match becomes:
        case Start():
            expected = Plan(line=(chosen,), start=becomes)
        case NotRun():
            expected = Plan(skips=(DueSkip(chosen, becomes),))
        case datetime():
            expected = Plan(postponed=Planned(chosen.scheduled_for, becomes))
    assert result == expected


def test_a_backlog_starts_with_the_known_due_time() -> None:
    postponed = Planned(at("08:00"), at("09:30"))
    found = backlog(hourly(), at("08:00"), at("10:10"), enough=10, first=postponed)
    assert found.times == [postponed, *due("09:00", "10:00")]


def test_jitter_stays_before_the_next_due_time() -> None:
    timing = hourly(seed="7", jitter_seconds=86_400)
    times = planned_after(timing, at("00:00"))
    for one, following in zip(times, planned_after(timing, at("01:00")), strict=False):
        assert one.scheduled_for <= one.effective_for < following.scheduled_for
        if one.scheduled_for > at("20:00"):
            break


@every_case(
    ("first", "last", "count"),
    [("2026-02-27", "2026-03-01", 3), ("2026-05-04", "2026-05-04", 1), ("2026-05-05", "2026-05-04", 0)],
)  # fmt: skip
def test_both_ends_of_a_range_of_days_are_included(first: str, last: str, count: int) -> None:
    days = days_between(date.fromisoformat(first), date.fromisoformat(last))
    assert len(days) == count
    assert [f"{day:%Y-%m-%d}" for day in (days[:1] + days[-1:])] == ([first, last] if count else [])
