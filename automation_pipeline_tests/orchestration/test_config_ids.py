"""Ids in config and tags: what no database could look for is refused, or taken for none."""

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.orchestration.ops import check_ids, id_in
from automation_pipeline_tests.tables import every_case


@every_case("given", [None, 1, LARGEST_ID])
def test_an_id_within_bounds_may_be_given_or_left_out(given: int | None) -> None:
    check_ids(run_id=given)


@every_case("given", [0, -1, LARGEST_ID + 1, 10**30])
def test_each_field_that_can_be_no_id_is_named(given: int) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_ids(run_id=given, rule_id=None, other=given)
    assert [name for name, _ in refused.value.fields] == ["run_id", "other"]


@every_case(
    ("given", "found"),
    [(7, 7), ("7", 7), (str(LARGEST_ID), LARGEST_ID), (LARGEST_ID + 1, None), (0, None), ("", None), ("x", None),
     (None, None), ("٧", None), (True, None)],
)  # fmt: skip
def test_what_can_be_no_id_is_none(given: object, found: int | None) -> None:
    assert id_in(given) == found
