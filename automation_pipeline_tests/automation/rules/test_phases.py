"""How long each phase took, from when each was entered for the first time."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.models.runs import Phase, PhaseEntry, phase_lengths
from automation_pipeline_tests.tables import every_case

START = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@every_case(
    ("entered", "until", "lengths"),
    [
        ([], 5, []),
        ([("selection", 0)], 5, [("selection", 5)]),
        (
            [("selection", 0), ("fetching", 2), ("finalizing", 7)],
            7,
            [("selection", 2), ("fetching", 5), ("finalizing", 0)],
        ),
        (
            [("auditing", 4), ("selection", 0), ("fetching", 1)],
            9,
            [("selection", 1), ("fetching", 3), ("auditing", 5)],
        ),
        (
            [("finalizing", 3), ("auditing", 3), ("selection", 0)],
            3,
            [("selection", 3), ("auditing", 0), ("finalizing", 0)],
        ),
        ([("selection", 5)], 0, [("selection", 0)]),
    ],
)
def test_a_phase_lasts_until_another_is_entered(
    entered: list[tuple[str, float]], until: float, lengths: list[tuple[str, float]]
) -> None:
    entries = [PhaseEntry(Phase(phase), at(seconds)) for phase, seconds in entered]
    assert [(each.phase, each.seconds) for each in phase_lengths(entries, at(until))] == lengths


@given(
    st.dictionaries(st.sampled_from(Phase), st.integers(0, 1000), min_size=1), st.integers(0, 1000)
)
def test_the_phases_make_up_the_whole(entered: dict[Phase, int], more: int) -> None:
    until = max(entered.values()) + more
    lengths = phase_lengths(
        [PhaseEntry(phase, at(seconds)) for phase, seconds in entered.items()], at(until)
    )
    assert sum(each.seconds for each in lengths) == until - min(entered.values())
    assert {each.phase for each in lengths} == set(entered)
