"""The RCS extract of API Entreprise over HTTP."""

import pytest

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator.registries.client import DANONE, RegistriesClient
from automation_pipeline_tests.simulator_control import PUBLIC_BODY


def codes(answer: object) -> list[tuple[str, str | None]]:
    return [(one["code"], one["source"].get("parameter")) for one in answer.json()["errors"]]


def test_an_extract_has_the_shape_of_the_register_of_commerce(registries: RegistriesClient) -> None:
    answer = registries.rcs(DANONE).json()
    extract = answer["data"]
    assert set(answer) == {"data", "links", "meta"}
    assert (extract["siren"], extract["greffe"]) == (DANONE, {"valeur": "PARIS", "code": "7501"})
    assert extract["personne_morale"]["denomination"] == "DANONE"
    assert extract["personne_morale"]["forme_juridique"]["code"] == "SAca"
    assert extract["etablissement_principal"]["code_ape"] == "7010Z"
    assert extract["capital"]["code_devise"] == "EUR"
    assert {one["type"] for one in extract["mandataires_sociaux"]} == {
        "personne_physique",
        "personne_morale",
    }
    assert extract["date_radiation"] is None


def test_a_sole_trader_is_a_natural_person(registries: RegistriesClient) -> None:
    extract = registries.rcs(registries.kinds("sole_trader")[0]).json()["data"]
    assert extract["personne_morale"]["denomination"] is None
    assert extract["personne_physique"]["nom"].isupper()


def test_a_ceased_company_is_struck_off(registries: RegistriesClient) -> None:
    extract = registries.rcs(registries.kinds("ceased")[0]).json()["data"]
    assert extract["date_radiation"] == extract["observations"][0]["date"]


@every_case(
    ("kind", "status"),
    [
        ("company", 200), ("young", 200), ("masked_company", 200), ("incomplete", 200), ("masked", 451),
        ("association", 404), ("public", 404), ("liberal", 404), ("farm", 404), ("unknown", 404),
    ],
)  # fmt: skip
def test_some_companies_are_not_in_the_register_of_commerce(
    registries: RegistriesClient, kind: str, status: int
) -> None:
    recipient = "35600000000048"
    answer = registries.rcs(registries.kinds(kind)[0], recipient=recipient)
    assert answer.status_code == status
    assert status != 404 or codes(answer) == [("02003", None)]


@pytest.mark.parametrize("token", ["", "wrong", "sim-entreprise-toke"])
def test_the_register_refuses_an_invalid_token(registries: RegistriesClient, token: str) -> None:
    answer = registries.rcs(DANONE, token)
    assert (answer.status_code, codes(answer)) == (401, [("00101", None)])


@pytest.mark.parametrize(
    ("siren", "purpose", "expected"),
    [
        (DANONE, {"context": ""}, [("00201", "context")]),
        (DANONE, {"object": ""}, [("00202", "object")]),
        (DANONE, {"object": "x" * 50}, [("00202", "object")]),
        (DANONE, {"recipient": ""}, [("00203", "recipient")]),
        (DANONE, {"recipient": "12345678900012"}, [("00203", "recipient")]),
        (DANONE, {"recipient": "55203253400646"}, [("00203", "recipient")]),
        ("123456789", {}, [("00301", "siren")]),
        (
            "12345",
            {"context": "", "object": ""},
            [("00301", "siren"), ("00201", "context"), ("00202", "object")],
        ),
        (PUBLIC_BODY[:9], {}, [("00203", "recipient")]),
    ],
)
def test_the_errors_of_a_call_are_listed(
    registries: RegistriesClient,
    siren: str,
    purpose: dict[str, str],
    expected: list[tuple[str, str]],
) -> None:
    answer = registries.rcs(siren, **purpose)
    assert (answer.status_code, codes(answer)) == (422, expected)


def test_an_object_may_have_49_characters(registries: RegistriesClient) -> None:
    assert registries.rcs(DANONE, object="x" * 49).status_code == 200


def test_every_answer_has_the_limit_in_its_headers(registries: RegistriesClient) -> None:
    first = registries.rcs(DANONE)
    assert (first.headers["ratelimit-limit"], first.headers["ratelimit-remaining"]) == (
        "250",
        "249",
    )
    assert int(first.headers["ratelimit-reset"]) == registries.clock.now + 61
    registries.set_up(entreprise_per_minute=2)
    registries.clock.now += 10
    assert registries.rcs("732829320").headers["ratelimit-remaining"] == "0"
    refused = registries.rcs(DANONE)
    assert (refused.status_code, codes(refused)) == (429, [("00429", None)])
    assert (refused.headers["retry-after"], refused.json()["errors"][0]["meta"]["retry_in"]) == (
        "50",
        50,
    )
    registries.clock.now += 50
    assert registries.rcs(DANONE).status_code == 200


def test_without_a_limit_the_headers_are_absent(registries: RegistriesClient) -> None:
    registries.set_up(entreprise_per_minute=0)
    assert "ratelimit-limit" not in registries.rcs(DANONE).headers


def test_the_health_check_needs_no_token(registries: RegistriesClient) -> None:
    assert registries.client.get("/registries/entreprise/ping/infogreffe/rcs").json() == {
        "status": "ok"
    }
