"""The table of the countries is whole, and says of each country one thing."""

from automation_pipeline.enrichment.rules.normalisation import (
    BY_NAME,
    BY_THREE_LETTERS,
    OVERSEAS,
    TWO_LETTERS,
)
from automation_pipeline_tests.tables import every_case

UNION = "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK"
NEIGHBOURS = "GB CH US CA MC AD DZ MA TN NO LI"


def test_there_are_all_countries_of_iso_3166() -> None:
    assert len(BY_THREE_LETTERS) == len(TWO_LETTERS) == 249
    assert all(len(three) == 3 and len(two) == 2 for three, two in BY_THREE_LETTERS.items())


def test_names_and_overseas_territories_are_of_countries_that_there_are() -> None:
    assert set(BY_NAME.values()) <= TWO_LETTERS - OVERSEAS
    assert OVERSEAS < TWO_LETTERS


@every_case("code", [*UNION.split(), *NEIGHBOURS.split()])
def test_the_usual_countries_are_known_by_their_french_name(code: str) -> None:
    assert code in BY_NAME.values()


def test_no_name_could_be_taken_for_a_code() -> None:
    assert all(len(name) > 3 for name in BY_NAME)
