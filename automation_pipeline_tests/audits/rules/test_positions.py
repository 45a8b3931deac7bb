"""Where one more step can go: behind the others, or into a gap that there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.configs import free_positions, require_free_position
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.tables import every_case


@every_case(
    ("taken", "free"),
    [(set(), [1]), ({1}, [2]), ({1, 2, 3}, [4]), ({1, 3}, [2]), ({2, 3}, [1]), ({1, 9}, [2, 3])],
)
def test_these_are_free(taken: set[int], free: list[int]) -> None:
    assert free_positions(taken) == free


@every_case(
    ("position", "sentence"),
    [
        (2, "Position 2 is already taken. Available positions: 4"),
        (5, "Position 5 would leave a gap. Available positions: 4"),
        (0, "Position 0 would leave a gap. Available positions: 4"),
        (-1, "Position -1 would leave a gap. Available positions: 4"),
    ],
)
def test_any_other_is_refused_and_the_free_ones_are_named(position: int, sentence: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        require_free_position(position, {1, 2, 3})
    assert str(refused.value) == sentence
    assert refused.value.fields == (("position", sentence),)


@given(st.integers(0, 30))
def test_steps_that_are_1_to_n_leave_one_place_and_stay_so(count: int) -> None:
    taken = set(range(1, count + 1))
    [free] = free_positions(taken)
    require_free_position(free, taken)
    assert taken | {free} == set(range(1, count + 2))
