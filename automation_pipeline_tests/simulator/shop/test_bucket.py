"""The bucket of points, with a fake clock."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.simulator.shop.state import Bucket

TOLERANCE = 1e-6


@dataclass
class FakeClock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


points = st.floats(0, 500, allow_nan=False)
steps = st.lists(st.tuples(st.floats(0, 30, allow_nan=False), points, st.floats(0, 1)), max_size=60)


@given(steps, st.floats(1, 2000), st.floats(0, 500))
def test_the_level_stays_between_zero_and_the_maximum(
    steps: list[tuple[float, float, float]], maximum: float, rate: float
) -> None:
    """Each call gets back any share of its cost."""
    clock = FakeClock()
    bucket = Bucket(maximum, rate, clock)
    for seconds, cost, share in steps:
        clock.now += seconds
        level = bucket.level()
        assert bucket.take(cost) is (cost <= level)
        assert bucket.level() >= -TOLERANCE
        assert bucket.spent <= maximum + rate * (clock.now - 1000) + TOLERANCE
        if cost <= level:
            bucket.give_back(cost * share)
        assert -TOLERANCE <= bucket.lowest <= bucket.level() <= maximum


@given(steps)
def test_a_throttled_call_costs_nothing(steps: list[tuple[float, float, float]]) -> None:
    bucket = Bucket(100, 0, FakeClock())
    taken = sum(cost for _, cost, _ in steps if bucket.take(cost))
    assert bucket.spent == pytest.approx(taken)
    assert bucket.level() == pytest.approx(100 - taken)


def test_points_return_at_the_rate_up_to_the_maximum() -> None:
    clock = FakeClock()
    bucket = Bucket(2000, 100, clock)
    assert [bucket.take(1990), bucket.take(11), bucket.throttled] == [True, False, 1]
    clock.now += 0.25
    assert (bucket.level(), bucket.take(36), bucket.take(35)) == (35, False, True)
    clock.now += 60
    assert (bucket.level(), bucket.lowest) == (2000, 0)


def test_a_new_rate_applies_at_once_and_a_new_maximum_fills_the_bucket() -> None:
    clock = FakeClock()
    bucket = Bucket(1000, 10, clock)
    bucket.take(1000)
    clock.now += 10
    bucket.set_restore_rate(1)
    clock.now += 10
    assert bucket.level() == 110
    bucket.set_maximum(50)
    assert (bucket.level(), bucket.lowest, bucket.spent) == (50, 50, 1000)
    bucket.reset()
    assert (bucket.level(), bucket.spent) == (50, 0)
