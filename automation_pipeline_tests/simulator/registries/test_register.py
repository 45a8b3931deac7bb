"""The simulated companies: they depend on the seed, and there are some of every kind."""

from automation_pipeline.simulator.registries.companies import (
    DRAWN_KINDS,
    FIXED_COMPANIES,
    PEOPLE,
    Kind,
    Register,
    is_siren,
    is_siret,
)
from automation_pipeline_tests.cases import every_case

REGISTER = Register(7)
FIXED_ONLY = {Kind.PUBLIC: 1, Kind.INCOMPLETE: 2, Kind.NAMELESS: 1}


def test_companies_depend_on_the_seed() -> None:
    sirens = REGISTER.sirens(50)
    assert len(set(sirens)) == 50
    assert [Register(7).company(siren) for siren in sirens] == [
        REGISTER.company(siren) for siren in sirens
    ]
    assert set(Register(8).sirens(50)).isdisjoint(sirens)


@every_case("kind", sorted(DRAWN_KINDS))
def test_every_kind_has_its_share(kind: Kind) -> None:
    sirens = REGISTER.sirens(20, kind)
    assert len(set(sirens)) == 20
    assert all(map(is_siren, sirens))
    assert {REGISTER.kind(siren) for siren in sirens} == {kind}
    assert {company.kind for siren in sirens if (company := REGISTER.company(siren))} == {kind} - {
        Kind.UNKNOWN
    }


def test_some_kinds_exist_only_among_the_known_companies() -> None:
    assert {kind: len(REGISTER.sirens(9, kind)) for kind in FIXED_ONLY} == FIXED_ONLY


def test_drawn_companies_have_every_kind_and_are_mostly_ordinary() -> None:
    kinds = [REGISTER.kind(siren) for siren in REGISTER.sirens(1000)]
    assert set(kinds) == DRAWN_KINDS - {Kind.UNKNOWN}
    assert 300 < kinds.count(Kind.COMPANY) < 600


def test_the_data_of_a_company_are_consistent() -> None:
    for siren in REGISTER.sirens(300):
        company = REGISTER.company(siren)
        assert company
        assert all(
            is_siret(one.siret) and one.siret.startswith(siren) for one in company.establishments
        )
        assert len({one.siret for one in company.establishments}) == len(company.establishments)
        assert (
            (company.owner is not None)
            is (company.kind in PEOPLE)
            is (company.legal_form.code == "1000")
        )
        assert (company.ceased_on is not None) is (company.kind is Kind.CEASED)
        assert company.ceased_on is None or company.created_on < company.ceased_on
        assert company.created_on < company.registered_on
        assert company.name
        assert company.officers


@every_case("siren", ["123456783", "987654321", "000000000", "12345678", "", "55203253A"])
def test_an_invalid_number_has_no_company(siren: str) -> None:
    assert REGISTER.company(siren) is None


@every_case(
    ("siren", "siret"),
    [
        ("552032534", "55203253400646"),
        ("732829320", "73282932000074"),
        ("356000000", "35600000000048"),
        ("130025265", "13002526500013"),
        ("880878145", "88087814500015"),
    ],
)
def test_known_companies_have_the_same_head_office_with_every_seed(siren: str, siret: str) -> None:
    for seed in (1, 7):
        company = Register(seed).company(siren)
        assert company
        assert company.head_office.siret == siret


def test_establishments_of_known_companies_have_valid_numbers() -> None:
    found = [company for siren in FIXED_COMPANIES if (company := REGISTER.company(siren))]
    assert len(found) == len(FIXED_COMPANIES) - 1
    assert all(is_siret(one.siret) for company in found for one in company.establishments)


def test_known_companies_are_found_by_name() -> None:
    assert [company.siren for company in REGISTER.search_by_name("danone")] == ["552032534"]
    assert REGISTER.search_by_name("no such name") == []
