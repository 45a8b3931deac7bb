"""The names that looks at a run's prices go by."""

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.history import validate_check_name
from automation_pipeline_tests.tables import every_case


@every_case("name", ["5m", "1h", "2026-05-04", "manual-1", "manual-12"])
def test_a_check_has_one_of_these_names(name: str) -> None:
    validate_check_name(name)


@every_case("name", ["", "2h", "manual-0", "manual-", "2026-5-4", "5m\n", "manual-1\n", "manual-²"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        validate_check_name(name)
    [(field, problem)] = refused.value.fields
    assert (field, "a day such as 2026-05-04" in problem) == ("check", True)
