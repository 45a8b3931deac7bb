"""A new order of steps names every step once."""

from itertools import permutations

import pytest

from automation_pipeline.audits.models.configs import check_order
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.tables import every_case


def test_an_order_that_names_every_step_once_is_accepted() -> None:
    for wanted in permutations([7, 8, 9]):
        check_order([7, 8, 9], wanted)
    check_order([], [])


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
        check_order([7, 8, 9], wanted)
    assert refused.value.fields == tuple(("stepIds", reason) for reason in reasons)
