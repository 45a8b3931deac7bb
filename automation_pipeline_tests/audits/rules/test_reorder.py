"""A new order of steps names every step once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.configs import positions_in_order
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.tables import every_case


@given(
    st.lists(st.integers(), unique=True).flatmap(
        lambda ids: st.tuples(st.just(ids), st.permutations(ids))
    )
)
def test_every_step_gets_its_place_in_the_order_given(orders: tuple[list[int], list[int]]) -> None:
    now, wanted = orders
    positions = positions_in_order(now, wanted)
    assert sorted(positions, key=lambda step: positions[step]) == wanted
    assert sorted(positions.values()) == list(range(1, len(now) + 1))


@every_case(
    ("wanted", "reasons"),
    [
        ([7, 9], ["missing: 8"]),
        ([], ["missing: 7, 8, 9"]),
        ([7, 8, 9, 4, 5], ["not steps of this configuration: 4, 5"]),
        ([9, 8, 7, 9], ["given more than once: 9"]),
        (
            [9, 9, 4, 4],
            ["missing: 7, 8", "not steps of this configuration: 4", "given more than once: 9, 4"],
        ),
    ],
)
def test_an_order_that_is_not_complete_is_refused_by_name(
    wanted: list[int], reasons: list[str]
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        positions_in_order([7, 8, 9], wanted)
    assert refused.value.fields == tuple(("stepIds", reason) for reason in reasons)
