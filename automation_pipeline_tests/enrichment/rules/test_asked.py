"""What somebody sends to ask for a company."""

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.enrichment.models import IdentifierError, parse_request
from automation_pipeline_tests.tables import every_case

SIREN, SIRET = "552032534", "55203253400646"


@every_case(
    ("given", "siren", "siret"),
    [
        ({"siren": "552 032 534"}, SIREN, None),
        ({"siret": SIRET}, SIREN, SIRET),
        ({"siren": SIREN, "siret": SIRET}, SIREN, SIRET),
        ({"siren": None, "siret": SIRET}, SIREN, SIRET),
    ],
)
def test_one_of_the_two_is_enough_and_is_kept_as_it_was_written(
    given: dict[str, str], siren: str, siret: str | None
) -> None:
    wanted = parse_request(given)
    assert (wanted.identifiers.siren, wanted.identifiers.siret) == (siren, siret)
    assert (wanted.raw.siren, wanted.raw.siret) == (given.get("siren"), given.get("siret"))


@every_case(
    ("given", "code"),
    [
        ({}, "MISSING_COMPANY_IDENTIFIER"),
        ({"siren": " "}, "MISSING_COMPANY_IDENTIFIER"),
        ({"siren": "12345"}, "INVALID_SIREN_FORMAT"),
        ({"siret": "1234567890123"}, "INVALID_SIRET_FORMAT"),
        ({"siren": "732829320", "siret": SIRET}, "SIREN_SIRET_MISMATCH"),
        ({"siren": "123456789", "strict": True}, "INVALID_SIREN_FORMAT"),
    ],
)
def test_what_is_wrong_has_a_code_of_the_contract(given: dict[str, object], code: str) -> None:
    with pytest.raises(IdentifierError) as refused:
        parse_request(given)
    assert refused.value.code == code


@every_case(
    "given", [{"siren": 552032534}, {"siren": "5" * 65}, {"siren": SIREN, "name": "DANONE"}]
)
def test_what_is_not_of_the_form_is_refused_by_its_field(given: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_request(given)
    assert refused.value.fields


def test_a_wrong_check_digit_is_only_warned_of() -> None:
    assert parse_request({"siren": "123456789"}).identifiers.warnings == (
        "the check digit of the SIREN 123456789 is wrong",
    )
