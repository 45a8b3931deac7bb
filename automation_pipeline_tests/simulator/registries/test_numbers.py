"""Check digits of SIREN, SIRET and VAT numbers, with the examples of the documentation."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.simulator.registries.companies import (
    is_siren,
    is_siret,
    nic,
    vat_number,
    with_check_digit,
)
from automation_pipeline_tests.cases import every_case

sirens = st.integers(0, 99_999_999).map(lambda base: with_check_digit(f"{base:08d}"))


@every_case("siren", ["552032534", "732829320", "418166096", "130025265", "356000000"])
def test_valid_sirens_are_accepted(siren: str) -> None:
    assert is_siren(siren)


@every_case(
    "text", ["123456789", "889742876", "55203253", "5520325340", "55203253A", "", "٥٥٢٠٣٢٥٣٤"]
)
def test_invalid_sirens_are_refused(text: str) -> None:
    assert not is_siren(text)


@every_case(
    ("text", "is_one"),
    [
        ("73282932000074", True),
        ("13002526500013", True),
        ("35600000000048", True),
        ("35600000049837", True),
        ("35600000049838", False),
        ("12345678900012", False),
        ("98765432100012", False),
        ("552032534", False),
    ],
)
def test_a_siret_has_a_check_digit_or_belongs_to_la_poste(text: str, is_one: bool) -> None:
    assert is_siret(text) is is_one


@given(sirens, st.integers(0, 9999))
def test_a_completed_number_is_valid(siren: str, establishment: int) -> None:
    assert is_siren(siren)
    assert is_siret(siren + nic(siren, establishment))


@every_case("number", ["FR27552032534", "FR39356000000", "FR44732829320"])
def test_the_vat_number_follows_from_the_siren(number: str) -> None:
    assert vat_number(number[4:]) == number
