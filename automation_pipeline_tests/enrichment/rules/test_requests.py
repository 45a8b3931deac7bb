"""Requests for companies: validation of SIREN and SIRET."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.enrichment.models import (
    IdentifierError,
    Identifiers,
    is_luhn_valid,
    is_siret_valid,
    parse_identifiers,
    parse_request,
    vat_number,
)
from automation_pipeline_tests.cases import every_case


@every_case("siren", ["552032534", "732829320", "418166096", "130025265", "356000000"])
def test_a_valid_siren_is_accepted(siren: str) -> None:
    assert parse_identifiers(siren, None) == Identifiers(siren)


@every_case(
    "siret",
    ["73282932000074", "13002526500013", "35600000000048", "88087814500015", "35600000049837"],
)
def test_a_valid_siret_provides_its_siren(siret: str) -> None:
    assert parse_identifiers(None, siret) == Identifiers(siret[:9], siret)


@every_case("siren", ["123456789", "889742876"])
def test_a_wrong_siren_check_digit_is_a_warning_and_an_error_if_strict(
    siren: str,
) -> None:
    assert parse_identifiers(siren, None).warnings == (
        f"the check digit of the SIREN {siren} is wrong",
    )
    with pytest.raises(IdentifierError) as refused:
        parse_identifiers(siren, None, strict=True)
    assert refused.value.code == "INVALID_SIREN_FORMAT"


@every_case("siret", ["12345678900012", "98765432100012", "12345678900014", "35600000049838"])
def test_a_wrong_siret_check_digit_is_a_warning(siret: str) -> None:
    assert (
        parse_identifiers(None, siret).warnings[-1]
        == f"the check digit of the SIRET {siret} is wrong"
    )


@every_case(
    ("siren", "siret", "code", "field"),
    [
        (None, None, "MISSING_COMPANY_IDENTIFIER", "siren"),
        ("  ", "", "MISSING_COMPANY_IDENTIFIER", "siren"),
        ("12345", None, "INVALID_SIREN_FORMAT", "siren"),
        ("55203253A", None, "INVALID_SIREN_FORMAT", "siren"),
        ("٥٥٢٠٣٢٥٣٤", None, "INVALID_SIREN_FORMAT", "siren"),
        ("000000000", None, "INVALID_SIREN_FORMAT", "siren"),
        (None, "5520325340064", "INVALID_SIRET_FORMAT", "siret"),
        (None, "00000000000000", "INVALID_SIRET_FORMAT", "siret"),
        ("552032534", "73282932000074", "SIREN_SIRET_MISMATCH", "siret"),
    ],
)
def test_invalid_identifiers_are_rejected_with_a_code_and_field(
    siren: str | None, siret: str | None, code: str, field: str
) -> None:
    with pytest.raises(IdentifierError) as refused:
        parse_identifiers(siren, siret)
    assert (refused.value.code, refused.value.fields[0][0]) == (code, field)


@every_case("written", ["552 032 534", "552.032.534", "552\u00a0032\u202f534", " 552-032-534 "])
def test_spaces_dots_and_dashes_in_a_siren_are_ignored(written: str) -> None:
    assert parse_identifiers(written, None) == Identifiers("552032534")


@given(st.from_regex(r"[0-9]{8}", fullmatch=True))
def test_exactly_one_of_ten_check_digits_is_valid(stem: str) -> None:
    assert sum(is_luhn_valid(f"{stem}{digit}") for digit in range(10)) == 1


@given(st.from_regex(r"356000000[0-9]{5}", fullmatch=True))
def test_a_siret_of_la_poste_is_valid_if_its_digit_sum_is_a_multiple_of_five(siret: str) -> None:
    if sum(map(int, siret)) % 5 == 0:
        assert is_siret_valid(siret)


@every_case(
    ("siren", "number"),
    [
        ("552032534", "FR27552032534"),
        ("356000000", "FR39356000000"),
        ("732829320", "FR44732829320"),
    ],
)
def test_the_vat_number_is_derived_from_the_siren(siren: str, number: str) -> None:
    assert vat_number(siren) == number


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
def test_a_siren_or_a_siret_is_enough_and_its_raw_form_is_kept(
    given: dict[str, str], siren: str, siret: str | None
) -> None:
    request = parse_request(given)
    assert (request.identifiers.siren, request.identifiers.siret) == (siren, siret)
    assert (request.raw.siren, request.raw.siret) == (given.get("siren"), given.get("siret"))


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
def test_an_invalid_request_has_an_error_code_of_the_contract(
    given: dict[str, object], code: str
) -> None:
    with pytest.raises(IdentifierError) as refused:
        parse_request(given)
    assert refused.value.code == code


@every_case(
    "given", [{"siren": 552032534}, {"siren": "5" * 65}, {"siren": SIREN, "name": "DANONE"}]
)
def test_a_malformed_request_is_rejected_with_its_field(given: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_request(given)
    assert refused.value.fields


def test_a_request_with_a_wrong_check_digit_is_accepted_with_a_warning() -> None:
    assert parse_request({"siren": "123456789"}).identifiers.warnings == (
        "the check digit of the SIREN 123456789 is wrong",
    )
