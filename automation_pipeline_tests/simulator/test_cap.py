"""The limit of calls per minute, with a fake clock."""

from automation_pipeline.simulator.cap import Cap


class FakeClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_full_minute_gives_the_wait_until_the_next_call() -> None:
    clock = FakeClock()
    cap = Cap(2, clock)
    answers: list[tuple[float, int]] = []
    for seconds in (0, 10, 20, 59.2, 60, 60.5, 69.9, 70):
        clock.now = 1000 + seconds
        answers.append((seconds, cap.seconds_to_wait()))
    assert answers == [
        (0, 0),
        (10, 0),
        (20, 40),
        (59.2, 1),
        (60, 0),
        (60.5, 10),
        (69.9, 1),
        (70, 0),
    ]


def test_a_call_after_the_wait_is_admitted() -> None:
    clock = FakeClock()
    cap = Cap(1, clock)
    assert cap.seconds_to_wait() == 0
    clock.now += 0.3
    clock.now += cap.seconds_to_wait()
    assert cap.seconds_to_wait() == 0


def test_a_lowered_cap_counts_earlier_calls() -> None:
    clock = FakeClock()
    cap = Cap(3, clock)
    for _ in range(3):
        cap.seconds_to_wait()
        clock.now += 10
    cap.per_minute = 1
    assert cap.seconds_to_wait() == 50
    cap.per_minute = 4
    assert cap.seconds_to_wait() == 0


def test_without_a_cap_nothing_is_counted() -> None:
    cap = Cap(0, FakeClock())
    assert [cap.seconds_to_wait() for _ in range(5)] == [0] * 5
    cap.per_minute = 1
    assert (cap.seconds_to_wait(), cap.seconds_to_wait()) == (0, 60)
    cap.reset()
    assert (cap.seconds_to_wait(), cap.seconds_to_wait()) == (0, 60)
