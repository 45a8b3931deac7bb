"""Normalisation of values that the registers format differently."""

from datetime import date

from automation_pipeline.enrichment.rules.normalisation import (
    BY_NAME,
    BY_THREE_LETTERS,
    OVERSEAS,
    TWO_LETTERS,
    country,
    day,
    is_masked,
    line,
    naf,
    naf_label,
    postal_code,
    text,
)
from automation_pipeline_tests.cases import every_case


@every_case(
    ("given", "result"),
    [
        ("70.10Z", "70.10Z"),
        ("6201Z", "62.01Z"),
        ("6201z", "62.01Z"),
        ("x", None),
        (None, None),
        ("", None),
    ],
)
def test_a_naf_code_is_normalised_with_its_dot(given: object, result: str | None) -> None:
    assert naf(given) == result


@every_case(
    ("given", "result"),
    [
        ("FRA", "FR"),
        ("FR", "FR"),
        ("france", "FR"),
        ("POL", "PL"),
        ("ch", "CH"),
        ("SUISSE", "CH"),
        ("ROYAUME-UNI", "GB"),
        ("ETATS-UNIS", "US"),
        ("\u00c9tats-Unis", "US"),
        ("COTE D'IVOIRE", "CI"),
        ("IRLANDE, ou EIRE", "IE"),
        ("TCHEQUE (REPUBLIQUE)", "CZ"),
        ("MTQ", "FR"),
        ("RE", "FR"),
        ("POLYNESIE FRANCAISE", "FR"),
        ("XYZ", None),
        ("XX", None),
        ("ATLANTIDE", None),
        (None, None),
        (99100, None),
    ],
)
def test_a_country_is_normalised_to_two_letters(given: object, result: str | None) -> None:
    assert country(given) == result


@every_case(
    "given",
    ["2020-10-13", "13/10/2020", "13-10-2020", 20201013, "20201013", "2020-10-13T00:00:00+02:00"],
)
def test_a_date_is_parsed_from_every_known_format(given: object) -> None:
    assert day(given) == date(2020, 10, 13)


@every_case("given", ["2020-02-30", "yesterday", "", None, True, "00/00/0000"])
def test_an_invalid_date_is_none(given: object) -> None:
    assert day(given) is None


@every_case("given", ["", "  ", None, "[NON-DIFFUSIBLE]", "[non-diffusible] rue", True, [], {}])
def test_an_empty_or_masked_text_is_none(given: object) -> None:
    assert text(given) is None


def test_masked_text_is_recognised() -> None:
    assert is_masked("[NON-DIFFUSIBLE]")
    assert not is_masked("DANONE")


def test_an_address_line_joins_its_non_empty_parts() -> None:
    assert line("17", None, "BD", "", " HAUSSMANN ") == "17 BD HAUSSMANN"
    assert line(None, "") is None


@every_case(
    ("given", "given_country", "result"),
    [
        ("75009", None, "75009"),
        (1000, None, "01000"),
        (1000, "FRA", "01000"),
        ("1000", "[NON-DIFFUSIBLE]", "01000"),
        ("1000", "BEL", "1000"),
        (1204, "SUISSE", "1204"),
        ("1000", "an unknown country", "1000"),
        ("75", None, "75"),
        ("101", "ISL", "101"),
        ("B-1000", None, "B-1000"),
        ("\u0661\u0660\u0660\u0660", None, "\u0661\u0660\u0660\u0660"),
        (None, None, None),
    ],
)
def test_a_french_postal_code_is_padded_with_a_leading_zero(
    given: object, given_country: object, result: str | None
) -> None:
    assert postal_code(given, given_country) == result


UNION = "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK"
NEIGHBOURS = "GB CH US CA MC AD DZ MA TN NO LI"


def test_the_country_table_covers_iso_3166() -> None:
    assert len(BY_THREE_LETTERS) == len(TWO_LETTERS) == 249
    assert all(len(three) == 3 and len(two) == 2 for three, two in BY_THREE_LETTERS.items())


def test_country_names_and_overseas_territories_map_to_existing_codes() -> None:
    assert set(BY_NAME.values()) <= TWO_LETTERS - OVERSEAS
    assert OVERSEAS < TWO_LETTERS


@every_case("code", [*UNION.split(), *NEIGHBOURS.split()])
def test_common_countries_have_a_french_name(code: str) -> None:
    assert code in BY_NAME.values()


def test_no_country_name_can_be_confused_with_a_code() -> None:
    assert all(len(name) > 3 for name in BY_NAME)


@every_case(
    ("code", "label"),
    [
        ("62.01Z", "Programmation, conseil et autres activités informatiques"),
        ("0111Z", "Culture et production animale, chasse et services annexes"),
        ("04.00Z", None),
        ("x", None),
        (None, None),
    ],
)
def test_the_label_of_a_naf_code_is_that_of_its_division(code: object, label: str | None) -> None:
    assert naf_label(code) == label
