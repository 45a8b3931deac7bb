"""`/_sim/registries`, and the faults of the running simulator."""

import httpx
import pytest

from automation_pipeline_tests.simulator.registries.client import DANONE, PURPOSE, RegistriesClient
from automation_pipeline_tests.simulator_control import (
    ENTREPRISE_TOKEN,
    INPI_PASSWORD,
    INPI_USERNAME,
    NO_CERTIFICATES,
    REGISTRY_LIMITS,
    add_faults,
    call_count,
    expire_inpi_tokens,
    registry_totals,
    reset,
    sirens,
)
from automation_pipeline_tests.waiting import wait_until

SEARCH, COMPANY = "/registries/search/search", f"/registries/inpi/api/companies/{DANONE}"
EXTRACT = f"/registries/entreprise/v3/infogreffe/rcs/unites_legales/{DANONE}/extrait_kbis"
NAMES = ("registries.search", "registries.inpi.login", "registries.inpi.company", "registries.rcs")


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, verify=NO_CERTIFICATES)


def call_all(http: httpx.Client) -> list[httpx.Response]:
    pair = {"username": INPI_USERNAME, "password": INPI_PASSWORD}
    login = http.post("/registries/inpi/api/sso/login", json=pair)
    token = login.json()["token"] if login.status_code == 200 else "none"
    return [
        http.get(SEARCH, params={"q": DANONE}),
        login,
        http.get(COMPANY, headers={"Authorization": f"Bearer {token}"}),
        http.get(EXTRACT, params=PURPOSE, headers={"Authorization": f"Bearer {ENTREPRISE_TOKEN}"}),
    ]


def test_the_default_limits_are_those_of_the_registries(registries: RegistriesClient) -> None:
    shown = registries.shown()
    assert {name: shown[name] for name in REGISTRY_LIMITS} == REGISTRY_LIMITS
    registries.set_up(search_per_second=2, inpi_ban_seconds=0.5)
    shown = registries.shown()
    assert (shown["search_per_second"], shown["inpi_ban_seconds"], shown["inpi_per_day"]) == (
        2,
        0.5,
        10_000,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        [],
        {"limit": 1},
        {"search_per_second": -1},
        {"search_per_second": 1.5},
        {"search_per_second": True},
        {"inpi_per_day": 0, "inpi_ban_seconds": "1"},
        {"inpi_token_seconds": 86_401},
        {"young_at_inpi": 1},
    ],
)
def test_an_invalid_setting_changes_nothing(registries: RegistriesClient, settings: object) -> None:
    before = registries.shown()
    answer = registries.client.put("/_sim/registries", json=settings)
    assert answer.status_code == 422
    assert registries.shown() == before


def test_companies_are_listed_by_kind(registries: RegistriesClient) -> None:
    answer = registries.client.get(
        "/_sim/registries/sirens", params={"count": 3, "kind": "farm"}
    ).json()
    assert [one["siren"] for one in answer["companies"]] == answer["sirens"]
    assert {one["kind"] for one in answer["companies"]} == {"farm"}
    assert len(registries.client.get("/_sim/registries/sirens").json()["sirens"]) == 20
    unknown = registries.client.get(
        "/_sim/registries/sirens", params={"kind": "unknown", "count": 2}
    ).json()
    assert (len(unknown["sirens"]), unknown["companies"]) == (2, [])


@pytest.mark.parametrize(
    "wanted", [{"kind": "bakery"}, {"count": "5001"}, {"count": "-1"}, {"count": "x"}]
)
def test_other_companies_cannot_be_listed(
    registries: RegistriesClient, wanted: dict[str, str]
) -> None:
    assert registries.client.get("/_sim/registries/sirens", params=wanted).status_code == 422


def test_calls_are_counted_by_source_with_refused_ones_and_their_peaks(served: str) -> None:
    with client(served) as http:
        assert [answer.status_code for answer in call_all(http)] == [200] * 4
        http.get(COMPANY)
    expected = {"200": 2, "401": 1}
    wait_until(lambda: registry_totals(served)["sources"]["inpi"]["statuses"] == expected)
    totals = registry_totals(served)
    counted = {
        name: (source["calls"], source["peak_per_day"])
        for name, source in totals["sources"].items()
    }
    assert counted == {"search": (1, 1), "inpi": (3, 3), "inpi.login": (1, 1), "rcs": (1, 1)}
    assert (totals["inpi_logins"], totals["inpi_bans"]) == (1, 0)
    assert call_count(served, DANONE, "registries.rcs") == 1


@pytest.mark.parametrize(
    ("status", "code"), [(403, "00100"), (409, "00015"), (422, "00301"), (502, "02999")]
)
def test_faults_have_each_registrys_own_errors(served: str, status: int, code: str) -> None:
    add_faults(served, *({"route": name, "status": status, "retry_after": 3} for name in NAMES))
    with client(served) as http:
        # The call for a company gets a 401, because the login failed. Faults do not apply to refused calls.
        search, login, _, extract = call_all(http)
    assert [answer.status_code for answer in (search, login, extract)] == [status] * 3
    assert (list(search.json()), list(login.json())) == (["erreur"], ["message"])
    assert extract.json()["errors"][0]["code"] == code
    assert extract.headers["retry-after"] == "3"


@pytest.mark.parametrize("body", ["truncated", "not_json", "empty", "wrong_types"])
def test_answers_can_be_broken(served: str, body: str) -> None:
    with client(served) as http:
        good = call_all(http)
        add_faults(
            served,
            *({"route": name, "body": body} for name in NAMES if name != "registries.inpi.login"),
        )
        bad = call_all(http)
    indexes = (0, 2, 3)
    assert [bad[index].status_code for index in indexes] == [200] * 3
    assert all(bad[index].content != good[index].content for index in indexes)


@pytest.mark.parametrize("name", NAMES)
def test_calls_can_be_dropped_without_an_answer(served: str, name: str) -> None:
    add_faults(served, {"route": name, "drop": True})
    with client(served) as http, pytest.raises(httpx.RemoteProtocolError):
        call_all(http)


def test_a_reset_forgets_bans_tokens_and_wrong_passwords_and_no_limits(served: str) -> None:
    with client(served) as http:
        token = call_all(http)[1].json()["token"]
        http.put("/_sim/registries", json={"inpi_per_day": 9_999}).raise_for_status()
        for _ in range(5):
            http.post(
                "/registries/inpi/api/sso/login",
                json={"username": INPI_USERNAME, "password": "wrong"},
            )
        assert registry_totals(served)["inpi_blocked"]
        reset(served)
        assert [answer.status_code for answer in call_all(http)] == [200] * 4
        assert http.get(COMPANY, headers={"Authorization": f"Bearer {token}"}).status_code == 401
    assert registry_totals(served)["inpi_per_day"] == 9_999


def test_control_calls_return_companies_and_tokens(served: str) -> None:
    assert len(sirens(served, 4, "ceased")) == 4
    with client(served) as http:
        token = call_all(http)[1].json()["token"]
        expire_inpi_tokens(served)
        assert http.get(COMPANY, headers={"Authorization": f"Bearer {token}"}).status_code == 401
