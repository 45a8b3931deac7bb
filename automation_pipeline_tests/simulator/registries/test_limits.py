"""Sliding windows and bans, with a fake clock."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.simulator.registries.control import peak
from automation_pipeline.simulator.registries.state import Bans, Window, whole_seconds
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator.registries.client import FakeClock


def test_a_full_window_gives_the_wait_until_the_next_call() -> None:
    clock = FakeClock()
    window = Window(2, 10, clock)
    assert [window.take("a"), window.take("a"), window.take("a"), window.take("b")] == [0, 0, 10, 0]
    assert (window.left("a"), window.left("b"), window.empty_in("a"), window.empty_in("c")) == (
        0,
        1,
        10,
        0,
    )
    clock.now += 4
    assert window.take("a") == 6
    clock.now += 6
    assert [window.take("a"), window.left("a")] == [0, 1]


def test_a_limit_of_0_is_no_limit_and_counts_nothing() -> None:
    window = Window(0, 10, FakeClock())
    assert {window.take() for _ in range(100)} == {0}
    window.limit = 2
    assert [window.take(), window.take(), window.take()] == [0, 0, 10]
    window.reset()
    assert window.take() == 0


# Eighths, so that sums are exact.
steps_of_time = st.lists(st.integers(0, 16).map(lambda eighths: eighths / 8), max_size=60)


@given(st.integers(1, 5), steps_of_time)
def test_no_window_admits_more_calls_than_its_limit(limit: int, steps: list[float]) -> None:
    clock = FakeClock()
    window, admitted = Window(limit, 3, clock), list[float]()
    for step in steps:
        clock.now += step
        if window.take() == 0:
            admitted.append(clock.now)
    assert peak(admitted, 3) <= limit


@given(st.integers(1, 5), steps_of_time)
def test_a_call_after_the_wait_passes_the_window(limit: int, steps: list[float]) -> None:
    clock = FakeClock()
    window = Window(limit, 3, clock)
    for step in steps:
        clock.now += step
        if wait := window.take():
            clock.now += whole_seconds(wait)
            assert window.take() == 0


def test_calls_during_a_ban_do_not_extend_it() -> None:
    clock = FakeClock()
    bans = Bans(600, clock)
    bans.ban("a")
    clock.now += 599
    assert (bans.is_banned("a"), bans.is_banned("b")) == (True, False)
    clock.now += 1
    assert (bans.is_banned("a"), bans.count) == (False, 1)
    bans.ban("a")
    bans.seconds = 0
    assert not bans.is_banned("a")
    bans.reset()
    assert bans.count == 0


@every_case(("seconds", "expected"), [(0.01, 1), (1, 1), (1.2, 2), (60, 60)])
def test_a_wait_is_rounded_up_to_seconds(seconds: float, expected: int) -> None:
    assert whole_seconds(seconds) == expected
