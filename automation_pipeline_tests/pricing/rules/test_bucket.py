"""The reckoned bucket: no call comes before its points are there, and none waits for longer than it
must."""

import heapq
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.pricing.models.shop import BucketStatus
from automation_pipeline.pricing.rules.pacing import (
    DEFAULT_BUCKET,
    FORGOTTEN_AFTER,
    SPARE_SHARE,
    LeakyBucket,
    default_bucket,
    refund_points,
    reserve_points,
    sync_bucket,
)
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, tzinfo=UTC)
STANDARD = BucketStatus(2000, 2000, 100)
AT_ONCE = 5


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def full(**changes: float) -> LeakyBucket:
    facts = {
        "available": 2000.0,
        "maximum": 2000.0,
        "restore_rate": 100.0,
        "pending": 0.0,
    } | changes
    return LeakyBucket(**facts, measured_at=NOW)


def test_a_shop_that_was_never_heard_of_has_the_smallest_plan() -> None:
    tank = default_bucket(NOW)
    assert (tank.available, tank.maximum, tank.restore_rate) == (
        DEFAULT_BUCKET.available,
        DEFAULT_BUCKET.maximum,
        DEFAULT_BUCKET.restore_rate,
    )


@every_case(
    ("available", "cost", "seconds"),
    [(2000, 10, 0.0), (70, 10, 0.0), (60, 10, 0.1), (0, 10, 0.7), (-40, 10, 1.1), (560, 1000, 5.0)],
)
def test_a_call_waits_until_its_points_and_the_spare_ones_are_there(
    available: float, cost: float, seconds: float
) -> None:
    tank, wait = reserve_points(full(available=available), cost, NOW)
    assert wait == pytest.approx(seconds)
    assert (tank.available, tank.pending) == (available - cost, cost)


def test_points_come_back_up_to_the_brim() -> None:
    tank, wait = reserve_points(full(available=-100.0), 10, after(3))
    assert (tank.available, wait) == (pytest.approx(190), 0.0)
    tank, _ = reserve_points(full(available=1990.0), 10, after(3))
    assert tank.available == pytest.approx(1990)


def test_what_the_shop_tells_is_the_truth_less_the_other_promises() -> None:
    tank = sync_bucket(
        full(available=500.0, pending=30.0),
        10,
        BucketStatus(1800, 1000, 50),
        since=NOW,
        now=after(1),
    )
    assert tank == LeakyBucket(1780, 1000, 50, 20, after(1), after(1))


@every_case(("told", "available"), [(1800, 600), (100, 80)])
def test_old_news_may_only_say_that_there_is_less(told: float, available: float) -> None:
    reckoned = replace(full(available=500.0, pending=30.0), synced_at=after(0.5))
    tank = sync_bucket(reckoned, 10, BucketStatus(told, 2000, 100), since=NOW, now=after(1))
    assert tank.available == available


def test_an_answer_that_tells_nothing_leaves_the_points_spent() -> None:
    assert sync_bucket(
        full(available=500.0, pending=10.0), 10, None, since=NOW, now=after(1)
    ) == LeakyBucket(600, 2000, 100, 0, after(1))
    assert (
        sync_bucket(
            full(available=500.0, pending=10.0), 10, BucketStatus(1, 1, 0), since=NOW, now=NOW
        ).restore_rate
        == 100
    )


def test_a_promise_that_is_not_wanted_is_given_back() -> None:
    taken, _ = reserve_points(full(available=500.0), 40, NOW)
    assert refund_points(taken, 40, NOW) == full(available=500.0)


def test_promises_of_processes_that_were_killed_are_forgotten_in_time() -> None:
    later = NOW + FORGOTTEN_AFTER + timedelta(seconds=1)
    assert reserve_points(full(pending=700.0), 10, later)[0].pending == 10
    assert reserve_points(full(pending=700.0), 10, after(1))[0].pending == 710


class RealBucket:
    """The shop's own, which refuses what it does not hold."""

    def __init__(self, bucket: BucketStatus) -> None:
        self.level, self.bucket, self.at, self.refused, self.spent = (
            bucket.available,
            bucket,
            0.0,
            0,
            0.0,
        )

    def take(self, cost: float, at: float) -> BucketStatus:
        filled = self.level + (at - self.at) * self.bucket.restore_rate
        self.level, self.at = min(filled, self.bucket.maximum), at
        if self.level < cost:
            self.refused += 1
        else:
            self.level -= cost
            self.spent += cost
        return BucketStatus(self.level, self.bucket.maximum, self.bucket.restore_rate)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 0.5),
            st.floats(0, 0.5) | st.floats(2, 5),
            st.sampled_from([1.0, 5.0, 10.0]),
        ),
        min_size=100,
        max_size=400,
    ),
    st.sampled_from([0.0, 300.0, 2000.0]),
)
def test_the_shop_never_has_to_refuse_and_its_points_are_not_left_lying(
    calls: list[tuple[float, float, float]], begins_with: float
) -> None:
    """Calls with any latency there and back, five at once, answers in any order."""
    shop = RealBucket(BucketStatus(begins_with, 2000, 100))
    tank = full(available=begins_with)
    events = [(0.0, number, "begin") for number in range(AT_ONCE)]
    costs, told, turns = {}, {}, {}
    left, number, ended = list(calls), AT_ONCE, 0.0
    while events:
        at, which, what = heapq.heappop(events)
        if what == "begin":
            if not left:
                continue
            there, back, cost = left.pop()
            tank, wait = reserve_points(tank, cost, after(at))
            costs[which], turns[which] = (cost, back), after(at + wait)
            heapq.heappush(events, (at + wait + there, which, "arrive"))
        elif what == "arrive":
            told[which] = shop.take(costs[which][0], at)
            heapq.heappush(events, (at + costs[which][1], which, "hear"))
        else:
            ended = at
            tank = sync_bucket(
                tank, costs[which][0], told[which], since=turns[which], now=after(at)
            )
            number += 1
            heapq.heappush(events, (at, number, "begin"))
    assert shop.refused == 0
    needed = max(shop.spent - begins_with + SPARE_SHARE * 2000, 0.0) / 100
    latency = sum(there + back for there, back, _ in calls) / AT_ONCE + 6.0
    assert ended <= needed + latency + 1.0
