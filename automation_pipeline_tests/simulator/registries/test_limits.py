"""Windows of time and bans, on a clock that stands."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.simulator.registries.control import peak
from automation_pipeline.simulator.registries.state import Bans, Window, whole
from automation_pipeline_tests.simulator.registries.asking import StandingClock
from automation_pipeline_tests.tables import every_case


def test_so_many_are_let_in_and_the_wait_is_for_the_next_place() -> None:
    clock = StandingClock()
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


def test_a_limit_of_0_is_none_and_counts_nothing() -> None:
    window = Window(0, 10, StandingClock())
    assert {window.take() for _ in range(100)} == {0}
    window.limit = 2
    assert [window.take(), window.take(), window.take()] == [0, 0, 10]
    window.forget()
    assert window.take() == 0


# Eighths, so that sums are exact.
steps_of_time = st.lists(st.integers(0, 16).map(lambda eighths: eighths / 8), max_size=60)


@given(st.integers(1, 5), steps_of_time)
def test_no_window_ever_lets_in_more_than_its_limit(limit: int, steps: list[float]) -> None:
    clock = StandingClock()
    window, let_in = Window(limit, 3, clock), list[float]()
    for step in steps:
        clock.now += step
        if window.take() == 0:
            let_in.append(clock.now)
    assert peak(let_in, 3) <= limit


@given(st.integers(1, 5), steps_of_time)
def test_who_waits_as_told_is_let_in(limit: int, steps: list[float]) -> None:
    clock = StandingClock()
    window = Window(limit, 3, clock)
    for step in steps:
        clock.now += step
        if wait := window.take():
            clock.now += whole(wait)
            assert window.take() == 0


def test_a_ban_ends_and_is_no_longer_for_who_asks_meanwhile() -> None:
    clock = StandingClock()
    bans = Bans(600, clock)
    bans.ban("a")
    clock.now += 599
    assert (bans.is_banned("a"), bans.is_banned("b")) == (True, False)
    clock.now += 1
    assert (bans.is_banned("a"), bans.count) == (False, 1)
    bans.ban("a")
    bans.seconds = 0
    assert not bans.is_banned("a")
    bans.forget()
    assert bans.count == 0


@every_case(("seconds", "expected"), [(0.01, 1), (1, 1), (1.2, 2), (60, 60)])
def test_a_wait_is_told_in_whole_seconds(seconds: float, expected: int) -> None:
    assert whole(seconds) == expected
