"""Recherche d'entreprises over HTTP."""

import pytest

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator.registries.client import DANONE, RegistriesClient

MASK = "[NON-DIFFUSIBLE]"
PARTS = {"siege", "complements", "dirigeants", "finances", "matching_etablissements"}


@pytest.fixture
def registries(registries: RegistriesClient) -> RegistriesClient:
    registries.set_up(search_per_second=0)
    return registries


def test_a_siren_finds_its_company(registries: RegistriesClient) -> None:
    answer = registries.search(DANONE).json()
    company = answer.pop("results")[0]
    assert answer == {"total_results": 1, "page": 1, "per_page": 10, "total_pages": 1}
    assert company["siege"]["adresse"] == "17 BOULEVARD HAUSSMANN 75009 PARIS"
    expected = {
        "siren": DANONE,
        "nom_complet": "DANONE",
        "nom_raison_sociale": "DANONE",
        "nombre_etablissements": 2,
        "nombre_etablissements_ouverts": 1,
        "activite_principale": "70.10Z",
        "categorie_entreprise": "GE",
        "date_creation": "1955-01-01",
        "date_fermeture": None,
        "etat_administratif": "A",
        "nature_juridique": "5599",
        "tranche_effectif_salarie": "42",
        "statut_diffusion": "O",
        "matching_etablissements": [],
    }
    assert {name: company[name] for name in expected} == expected
    assert {one["type_dirigeant"] for one in company["dirigeants"]} == {
        "personne physique",
        "personne morale",
    }


@pytest.mark.parametrize("q", ["55203253400646", "552 032 534 00646", " 55203253400646 "])
def test_a_siret_finds_its_company_with_that_establishment(
    registries: RegistriesClient, q: str
) -> None:
    (company,) = registries.found(q)
    assert company["siege"]["siret"] == "55203253400646"
    assert [one["siret"] for one in company["matching_etablissements"]] == ["55203253400646"]


def test_another_establishment_is_not_the_head_office(registries: RegistriesClient) -> None:
    (company,) = registries.found("55203253400638")
    (found,) = company["matching_etablissements"]
    assert (found["est_siege"], found["etat_administratif"]) == (False, "F")


@every_case(
    "q", ["123456783", "987654321", "000000000", "55203253400000", "12345678900012", "nobody's"]
)
def test_an_unused_number_gives_an_empty_result_with_200(
    registries: RegistriesClient, q: str
) -> None:
    answer = registries.search(q)
    assert (answer.status_code, answer.json()["results"], answer.json()["total_results"]) == (
        200,
        [],
        0,
    )


def test_unknown_numbers_are_valid_and_unused(registries: RegistriesClient) -> None:
    assert [registries.found(siren) for siren in registries.kinds("unknown")] == [[]] * 5


@every_case(
    "given",
    [
        {"q": "ab"},
        {"q": ""},
        {"q": DANONE, "per_page": 26},
        {"q": DANONE, "per_page": 0},
        {"q": DANONE, "page": "x"},
        {"q": DANONE, "page": 401, "per_page": 25},
        {"q": DANONE, "limite_matching_etablissements": 101},
        {"q": DANONE, "include": "siege"},
        {"q": DANONE, "minimal": "true", "include": "siege,secrets"},
        {"q": DANONE, "minimal": "maybe"},
    ],
)
def test_an_invalid_search_is_an_error_in_french(
    registries: RegistriesClient, given: dict[str, str]
) -> None:
    answer = registries.search(**given)
    assert (answer.status_code, list(answer.json())) == (400, ["erreur"])


def test_a_minimal_answer_has_only_the_requested_parts(registries: RegistriesClient) -> None:
    (whole,), (least,) = registries.found(DANONE), registries.found(DANONE, minimal="true")
    (some,) = registries.found(DANONE, minimal="true", include="siege,tva,score", per_page=1)
    assert set(whole) - set(least) == PARTS
    assert set(some) - set(least) == {"siege", "tva", "score"}
    assert some["tva"] == "FR27552032534"


def test_the_page_after_the_last_is_empty(registries: RegistriesClient) -> None:
    answer = registries.search(DANONE, page=2, per_page=5).json()
    assert (answer["results"], answer["total_results"], answer["page"]) == ([], 1, 2)


def test_names_of_known_companies_are_found_too(registries: RegistriesClient) -> None:
    assert [company["siren"] for company in registries.found("danone")] == [DANONE]


def test_a_masked_person_has_only_a_commune(registries: RegistriesClient) -> None:
    (person,) = registries.found(registries.kinds("masked")[0])
    seat = person["siege"]
    assert (person["nom_complet"], person["nom_raison_sociale"], person["statut_diffusion"]) == (
        MASK,
        None,
        "P",
    )
    assert (seat["adresse"], seat["libelle_voie"], seat["code_postal"]) == (MASK, MASK, MASK)
    assert seat["libelle_commune"].isupper()
    assert person["dirigeants"][0]["nom"] == MASK


def test_a_masked_company_has_only_a_name(registries: RegistriesClient) -> None:
    (company,) = registries.found(registries.kinds("masked_company")[0])
    assert company["nom_raison_sociale"] != MASK
    assert (company["siege"]["adresse"], company["statut_diffusion"]) == (MASK, "P")
    assert company["siege"]["code_postal"] != MASK
    assert company["sigle"] in {None, MASK}


def test_special_properties_of_a_company_are_in_the_answer(registries: RegistriesClient) -> None:
    (club,), (ceased,) = (
        registries.found(registries.kinds("association")[0]),
        registries.found(registries.kinds("ceased")[0]),
    )
    (farm,), (trader,) = (
        registries.found(registries.kinds("farm")[0]),
        registries.found(registries.kinds("sole_trader")[0]),
    )
    assert (club["nature_juridique"], club["complements"]["est_association"]) == ("9220", True)
    assert (ceased["etat_administratif"], ceased["siege"]["etat_administratif"]) == ("C", "F")
    assert ceased["date_fermeture"] == ceased["siege"]["date_fermeture"] is not None
    assert farm["nature_juridique"] in {"6533", "6598"}
    assert (trader["nom_raison_sociale"], trader["nature_juridique"]) == (None, "1000")


def test_one_company_has_neither_name_nor_head_office(registries: RegistriesClient) -> None:
    (company,) = registries.found("123456789")
    assert (company["nom_complet"], company["nom_raison_sociale"]) == (None, None)
    assert set(company["siege"].values()) == {None}


def test_each_client_may_make_seven_calls_per_second(registries: RegistriesClient) -> None:
    registries.set_up(search_per_second=7)
    assert [registries.search(DANONE).status_code for _ in range(7)] == [200] * 7
    refused = registries.search(DANONE)
    assert (refused.status_code, refused.headers["retry-after"], list(refused.json())) == (
        429,
        "1",
        ["erreur"],
    )
    assert (
        registries.other_client.get("/registries/search/search", params={"q": DANONE}).status_code
        == 200
    )
    registries.clock.now += 1
    assert registries.search(DANONE).status_code == 200
