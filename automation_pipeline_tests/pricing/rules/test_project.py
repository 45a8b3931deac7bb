"""Projects have names that fit an address and a tag."""

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.rules import check_project
from automation_pipeline_tests.tables import every_case


@every_case("name", ["default", "a", "Shop_2.eu-west", "x" * 100])
def test_a_project_has_a_plain_name(name: str) -> None:
    check_project(name, "Invalid")


@every_case("name", ["", "x" * 101, "two words", "é", "a/b", "a\n", "a\0", "%"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid$") as caught:
        check_project(name, "Invalid")
    [(field, why)] = caught.value.fields
    assert (field, why.startswith("must be 1 to 100 of the letters")) == ("project", True)
