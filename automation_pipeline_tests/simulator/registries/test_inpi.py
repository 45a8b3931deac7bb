"""INPI's register over HTTP."""

from typing import Any

import pytest

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator.registries.client import DANONE, RegistriesClient
from automation_pipeline_tests.simulator_control import INPI_USERNAME


def company_document(registries: RegistriesClient, siren: str) -> Any:
    answer = registries.inpi(siren, registries.token())
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_login_gives_a_token_for_companies(registries: RegistriesClient) -> None:
    given = registries.login().json()
    assert given["user"]["email"] == INPI_USERNAME
    document = registries.inpi(DANONE, given["token"]).json()
    formality = document["formality"]
    company = formality["content"]["personneMorale"]
    enterprise = company["identite"]["entreprise"]
    assert (document["siren"], formality["typePersonne"], formality["diffusionCommerciale"]) == (
        DANONE,
        "M",
        True,
    )
    assert (enterprise["denomination"], enterprise["codeApe"], enterprise["nicSiege"]) == (
        "DANONE",
        "7010Z",
        "00646",
    )
    assert formality["content"]["natureCreation"]["dateCreation"] == "1955-01-01"
    assert enterprise["dateImmat"].endswith("T00:00:00+02:00")
    assert company["adresseEntreprise"]["adresse"]["codePays"] == "FRA"
    assert {one["typeDePersonne"] for one in company["composition"]["pouvoirs"]} == {
        "INDIVIDU",
        "ENTREPRISE",
    }


@pytest.mark.parametrize(
    ("kind", "shape", "letter"),
    [
        ("company", "personneMorale", "M"),
        ("sole_trader", "personnePhysique", "P"),
        ("liberal", "personnePhysique", "P"),
        ("farm", "exploitation", "E"),
    ],
)
def test_the_shape_of_a_company_depends_on_its_owner(
    registries: RegistriesClient, kind: str, shape: str, letter: str
) -> None:
    formality = company_document(registries, registries.kinds(kind)[0])["formality"]
    assert formality["typePersonne"] == letter
    assert set(formality["content"]) == {"natureCreation", shape}


def test_both_registries_have_the_same_company(registries: RegistriesClient) -> None:
    for siren in registries.kinds("company", 5):
        (found,) = registries.found(siren)
        registries.state.search.reset()
        registries.state.inpi_logins.reset()
        content = company_document(registries, siren)["formality"]["content"]
        enterprise = content["personneMorale"]["identite"]["entreprise"]
        assert enterprise["denomination"] == found["nom_raison_sociale"]
        assert enterprise["codeApe"] == found["activite_principale"].replace(".", "")
        assert siren + enterprise["nicSiege"] == found["siege"]["siret"]
        assert content["natureCreation"]["dateCreation"] == found["date_creation"]


def test_a_ceased_company_is_struck_off(registries: RegistriesClient) -> None:
    company = company_document(registries, registries.kinds("ceased")[0])["formality"]["content"][
        "personneMorale"
    ]
    assert company["detailCessationEntreprise"]["dateRadiation"]


def test_a_masked_person_has_no_name(registries: RegistriesClient) -> None:
    formality = company_document(registries, registries.kinds("masked")[0])["formality"]
    person = formality["content"]["personnePhysique"]
    assert formality["diffusionCommerciale"] is False
    assert person["identite"]["entrepreneur"]["descriptionPersonne"]["nom"] is None
    assert person["adresseEntreprise"]["adresse"]["voie"] is None
    assert person["adresseEntreprise"]["adresse"]["commune"]


@pytest.mark.parametrize("siren", ["508799673", "981418494", "123456789"])
def test_some_companies_have_hardly_any_data(registries: RegistriesClient, siren: str) -> None:
    assert company_document(registries, siren)["formality"]["content"] == {"personneMorale": {}}


@pytest.mark.parametrize("kind", ["unknown", "association", "public", "young"])
def test_companies_that_inpi_lacks_are_not_found(registries: RegistriesClient, kind: str) -> None:
    assert registries.inpi(registries.kinds(kind)[0], registries.token()).status_code == 404


def test_young_companies_are_found_once_inpi_has_them(registries: RegistriesClient) -> None:
    registries.set_up(young_at_inpi=True)
    assert registries.inpi(registries.kinds("young")[0], registries.token()).status_code == 200


def test_an_invalid_number_is_a_bad_request(registries: RegistriesClient) -> None:
    assert registries.inpi("12345", registries.token()).status_code == 400


@every_case("body", ["", "[]", "{", "{}", '{"username": "a"}', '{"username": 1, "password": "b"}'])
def test_a_login_without_name_or_password_is_a_bad_request(
    registries: RegistriesClient, body: str
) -> None:
    assert registries.client.post("/registries/inpi/api/sso/login", content=body).status_code == 400


def test_five_wrong_passwords_block_the_account(registries: RegistriesClient) -> None:
    assert [registries.login("wrong").status_code for _ in range(5)] == [401] * 5
    answer = registries.login()
    assert (answer.status_code, answer.json()["code"]) == (403, 403)
    assert registries.shown()["inpi_blocked"] is True


def test_a_token_expires_after_an_hour_and_can_be_replaced(registries: RegistriesClient) -> None:
    token = registries.token()
    registries.clock.now += 3599
    assert registries.inpi(DANONE, token).status_code == 200
    registries.clock.now += 1
    assert registries.inpi(DANONE, token).status_code == 401
    assert registries.inpi(DANONE, registries.token()).status_code == 200
    assert registries.inpi(DANONE, "").status_code == 401


def test_tokens_can_be_expired_at_once(registries: RegistriesClient) -> None:
    token = registries.token()
    assert registries.client.delete("/_sim/registries/tokens").json() == {"expired": 1}
    assert registries.inpi(DANONE, token).status_code == 401


def test_too_many_calls_per_minute_are_a_ban_of_ten_minutes(registries: RegistriesClient) -> None:
    registries.set_up(inpi_per_minute=3)
    token = registries.token()
    assert [registries.inpi(DANONE, token).status_code for _ in range(3)] == [200, 200, 429]
    registries.clock.now += 599
    refused = registries.inpi(DANONE, token)
    assert (refused.status_code, "retry-after" in refused.headers) == (429, False)
    assert registries.login().status_code == 429
    registries.clock.now += 1
    assert registries.inpi(DANONE, token).status_code == 200
    assert registries.shown()["inpi_bans"] == 1


def test_more_than_five_logins_in_half_a_minute_are_a_ban(registries: RegistriesClient) -> None:
    registries.set_up(inpi_ban_seconds=60)
    assert [registries.login().status_code for _ in range(6)] == [200] * 5 + [429]
    registries.clock.now += 59
    assert registries.login().status_code == 429
    registries.clock.now += 1
    assert registries.login().status_code == 200


def test_calls_above_the_daily_quota_are_refused_without_a_ban(
    registries: RegistriesClient,
) -> None:
    registries.set_up(inpi_per_day=2, inpi_token_seconds=86_400)
    token = registries.token()
    assert [registries.inpi(DANONE, token).status_code for _ in range(3)] == [200, 200, 429]
    registries.clock.now += 86_399
    assert registries.inpi(DANONE, token).status_code == 429
    registries.clock.now += 1
    assert registries.inpi(DANONE, registries.token()).status_code == 200
    assert registries.shown()["inpi_bans"] == 0


def test_the_default_limits_are_those_of_inpi(registries: RegistriesClient) -> None:
    token = registries.token()
    assert [registries.inpi(DANONE, token).status_code for _ in range(180)] == [200] * 179 + [429]
