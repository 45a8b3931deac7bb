"""The INPI registry client."""

import asyncio
import json
from collections import Counter
from datetime import date, timedelta
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.clients.inpi import (
    LOGIN_KEY,
    PROBE_SIREN,
    REFUSAL_HOLDS,
    formality_record,
    token_of,
)
from automation_pipeline.clients.registries import RegistryFormatError
from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.enrichment.models import CompanyFields, SourceError, SourceRecord
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.mock_answers import failing_answer, json_answer, with_client
from automation_pipeline_tests.clients.registry_clients import (
    NOW,
    OTHER,
    PASSWORD,
    SIREN,
    SIRET,
    fetch,
    formality,
    inpi,
    logged_in,
)
from automation_pipeline_tests.fakes.registries import UnlimitedRate


class Inpi:
    """Issues a new token per login and accepts the latest one until it expires."""

    def __init__(self, login_status: int = 200) -> None:
        self.login_status = login_status
        self.calls: Counter[str] = Counter()
        self.posted: list[Any] = []
        self._good: set[str] = set()

    def expire(self) -> None:
        self._good.clear()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)  # let other tasks run
        if request.method == "POST":
            self.calls["login"] += 1
            assert request.url.path == "/hidden/api/sso/login"
            self.posted.append(json.loads(request.content))
            if self.login_status != 200:
                return httpx.Response(self.login_status, json={})
            token = f"token-{self.calls['login']}"
            self._good = {token}
            return httpx.Response(200, json={"token": token})
        self.calls["read"] += 1
        assert request.url.path.startswith("/hidden/api/companies/")
        if request.headers["Authorization"].removeprefix("Bearer ") not in self._good:
            return httpx.Response(401, json={})
        return httpx.Response(200, json=formality(siren=request.url.path.rpartition("/")[2]))


async def fetch_concurrently(registry: Any, how_many: int) -> list[Any]:
    return await asyncio.gather(*(registry.fetch(SIREN, None) for _ in range(how_many)))


def test_concurrent_calls_share_one_login() -> None:
    register = Inpi()
    result = with_client(inpi(register), lambda one: fetch_concurrently(one, 10))
    assert all(isinstance(each, SourceRecord) for each in result)
    assert register.calls == {"login": 1, "read": 10}
    assert register.posted == [{"username": "anna", "password": PASSWORD}]


def test_the_login_token_is_reused_across_event_loops() -> None:
    register = Inpi()
    one = inpi(register)
    assert [fetch(one, siren).siren for siren in (SIREN, OTHER)] == [SIREN, OTHER]
    assert register.calls["login"] == 1


def test_concurrent_calls_renew_an_expired_token_once() -> None:
    register = Inpi()

    async def ask(one: Any) -> list[Any]:
        await fetch_concurrently(one, 1)
        register.expire()
        return await fetch_concurrently(one, 5)

    assert all(isinstance(each, SourceRecord) for each in with_client(inpi(register), ask))
    assert register.calls["login"] == 2


def test_a_refused_new_token_is_an_authentication_error() -> None:
    calls: Counter[str] = Counter()

    def answer(request: httpx.Request) -> httpx.Response:
        calls[request.method] += 1
        return logged_in(json_answer({}, 401))(request)

    error = fetch(inpi(answer))
    assert (error.error_code, error.http_status) == ("AUTH_ERROR", 401)
    assert calls == {"POST": 2, "GET": 2}


def test_a_refused_password_is_not_retried_before_its_cooldown_ends() -> None:
    register = Inpi(login_status=401)
    now = [NOW]
    one = inpi(register, now=lambda: now[0])
    result = with_client(one, lambda each: fetch_concurrently(each, 10))
    assert {(each.error_code, each.http_status) for each in result} == {("AUTH_ERROR", 401)}
    assert "INPI_RNE_PASSWORD" in result[0].message
    assert register.calls == {"login": 1}
    now[0] += REFUSAL_HOLDS - timedelta(seconds=1)
    assert fetch(one).error_code == "AUTH_ERROR"
    assert register.calls["login"] == 1
    now[0] += timedelta(seconds=1)
    register.login_status = 200
    assert isinstance(fetch(one), SourceRecord)


@every_case(
    ("status", "code", "retryable"),
    [
        (400, "INTERNAL_ERROR", False),
        (403, "FORBIDDEN", False),
        (404, "INTERNAL_ERROR", False),  # a 404 of the login does not mean an unknown company
        (429, "RATE_LIMIT", True),
        (503, "UPSTREAM_5XX", True),
    ],
)
def test_a_failed_login_is_reported_and_retried_by_the_next_call(
    status: int, code: str, retryable: bool
) -> None:
    register = Inpi(login_status=status)
    one = inpi(register)
    error = fetch(one)
    assert (error.error_code, error.http_status, error.retryable) == (code, status, retryable)
    assert register.calls == {"login": 1}
    register.login_status = 200
    assert isinstance(fetch(one), SourceRecord)


@every_case("document", [{}, {"token": ""}, []])
def test_a_login_response_without_a_token_is_an_internal_error(document: object) -> None:
    assert fetch(inpi(json_answer(document))).error_code == "INTERNAL_ERROR"


class ExhaustedLimiter(UnlimitedRate):
    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        self.keys.append(key)
        assert rate.limit < 5  # logins per 30 seconds, across all processes
        assert rate.period_seconds == 30
        assert max_wait_seconds is not None
        return None


def test_logins_of_all_processes_share_a_rate_limit() -> None:
    register, limiter = Inpi(), ExhaustedLimiter()
    error = fetch(inpi(register, limiter=limiter))
    assert (error.error_code, error.http_status, error.retryable) == ("RATE_LIMIT", None, True)
    assert error.is_local
    assert error.message == "The login at INPI's register has to wait: there were too many logins."
    assert (register.calls, limiter.keys) == ({}, [LOGIN_KEY])


def test_a_cancelled_login_does_not_block_the_next_call() -> None:
    register = Inpi()
    login_started: list[asyncio.Event] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and not login_started[0].is_set():
            login_started[0].set()
            await asyncio.Event().wait()
        return await register(request)

    async def ask(one: Any) -> Any:
        login_started.append(asyncio.Event())
        first = asyncio.create_task(one.fetch(SIREN, None))
        await login_started[0].wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        return await one.fetch(SIREN, None)

    assert isinstance(with_client(inpi(answer), ask), SourceRecord)


@every_case("answer", [json_answer(formality(siren=PROBE_SIREN)), json_answer({}, 404)])
def test_the_check_succeeds_after_a_login(answer: Any) -> None:
    with_client(inpi(logged_in(answer)), lambda one: one.check())


@every_case(
    ("answer", "kind"),
    [
        (json_answer({}, 401), PermanentError),
        (json_answer({}, 404), PermanentError),
        (logged_in(json_answer({}, 403)), PermanentError),
        (logged_in(json_answer({}, 429)), TransientError),
        (failing_answer(httpx.ConnectError("x")), TransientError),
    ],
)
def test_a_failed_check_names_the_problem(answer: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="INPI") as caught:
        with_client(inpi(answer), lambda one: one.check())
    assert PASSWORD not in str(caught.value)


PERSON = {"entrepreneur": {"descriptionPersonne": {"nom": "MARTEL", "prenoms": ["Odile", "Anne"]}}}


def read(document: Any) -> SourceRecord:
    return formality_record(json.dumps(document).encode(), SIREN)


@every_case("kind", ["personneMorale", "personnePhysique", "exploitation"])
def test_each_kind_of_entity_is_mapped_to_company_fields(kind: str) -> None:
    assert read(formality(kind)).fields == CompanyFields(
        siret=SIRET,
        legal_name="DANONE",
        trade_name="GERVAIS",
        legal_form="5599",
        creation_date=date(1955, 1, 1),
        active_status="A",
        address_line1="17 BD HAUSSMANN",
        postal_code="75009",
        city="PARIS",
        country_code="FR",
        naf_code="70.10Z",
    )


@every_case(
    ("entity", "field", "value"),
    [
        ({"identite": PERSON}, "legal_name", "Odile MARTEL"),
        (
            {"identite": {"entrepreneur": {"descriptionPersonne": {"nom": None, "prenoms": []}}}},
            "legal_name",
            None,
        ),
        ({"identite": {"entreprise": {"nicSiege": "00646"}}}, "siret", None),
        ({"detailCessationEntreprise": {"dateRadiation": "2025-01-31"}}, "active_status", "C"),
        (
            {"identite": {"entreprise": {"dateRad": "2025-01-31T00:00:00+02:00"}}},
            "active_status",
            "C",
        ),
        ({"detailCessationEntreprise": None}, "active_status", "A"),
        ({"adresseEntreprise": {"adresse": {"codePays": "XYZ"}}}, "country_code", None),
        ({"adresseEntreprise": {"adresse": {"codePays": "POL"}}}, "country_code", "PL"),
        (
            {"adresseEntreprise": {"adresse": {"codePays": "BEL", "codePostal": "1000"}}},
            "postal_code",
            "1000",
        ),
        (
            {"adresseEntreprise": {"adresse": {"codePays": "FRA", "codePostal": 1000}}},
            "postal_code",
            "01000",
        ),
        ({"adresseEntreprise": []}, "city", None),
        ({"adresseEntreprise": {"adresse": []}}, "legal_name", "DANONE"),
        ({"identite": []}, "legal_name", None),
        (
            {"identite": {"entreprise": [], "entrepreneur": PERSON["entrepreneur"]}},
            "legal_name",
            "Odile MARTEL",
        ),
        ({"detailCessationEntreprise": []}, "active_status", "A"),
        ({"adresseEntreprise": None}, "city", None),
    ],
)
def test_variants_of_the_response_are_mapped(
    entity: dict[str, object], field: str, value: object
) -> None:
    assert getattr(read(formality(**entity)).fields, field) == value


def entity_named(name: str) -> dict[str, object]:
    return {"identite": {"entreprise": {"denomination": name}}}


COMPANY, TRADER, FARM = entity_named("COMPANY"), entity_named("TRADER"), entity_named("FARM")
SOMEWHERE = {"adresseEntreprise": {"adresse": {"commune": "PARIS"}}}


@every_case(
    ("kind", "content", "name"),
    [
        ("P", {"personneMorale": COMPANY, "personnePhysique": TRADER}, "TRADER"),
        (
            "E",
            {"personneMorale": COMPANY, "personnePhysique": TRADER, "exploitation": FARM},
            "FARM",
        ),
        ("M", {"personnePhysique": TRADER, "personneMorale": COMPANY}, "COMPANY"),
        ("P", {"personneMorale": {}, "personnePhysique": TRADER}, "TRADER"),
        ("P", {"personneMorale": [], "personnePhysique": TRADER}, "TRADER"),
        (None, {"personneMorale": {}, "personnePhysique": TRADER}, "TRADER"),
        (None, {"personneMorale": SOMEWHERE, "personnePhysique": TRADER}, "TRADER"),
        ("M", {"personneMorale": {}, "exploitation": FARM}, "FARM"),
        ("?", {"personneMorale": COMPANY, "personnePhysique": TRADER}, "COMPANY"),
    ],
)
def test_the_entity_named_by_type_personne_is_used(
    kind: str | None, content: dict[str, object], name: str
) -> None:
    document = {"siren": SIREN, "formality": {"typePersonne": kind, "content": content}}
    assert read(document).fields.legal_name == name


def test_an_entity_without_an_identity_keeps_its_address() -> None:
    content = {"personneMorale": {}, "personnePhysique": SOMEWHERE}
    assert (
        read({"siren": SIREN, "formality": {"typePersonne": "P", "content": content}}).fields.city
        == "PARIS"
    )


@every_case(
    "content",
    [
        {},
        {"personneMorale": {}},
        {"personneMorale": [], "natureCreation": []},
        {"personneMorale": None, "natureCreation": None},
    ],
)
def test_an_almost_empty_company_has_empty_fields(
    content: dict[str, object],
) -> None:
    record = read({"siren": SIREN, "formality": {"content": content}})
    assert (record.fields, record.is_masked) == (CompanyFields(), False)


@every_case(
    ("changed", "is_masked"),
    [({"diffusionCommerciale": False}, True), ({"diffusionCommerciale": None}, False)],
)
def test_an_objection_to_commercial_use_counts_as_partly_published(
    changed: dict[str, object], is_masked: bool
) -> None:
    document = formality()
    document["formality"] |= changed
    assert read(document).is_masked is is_masked


@every_case(
    "document",
    [
        {},
        {"siren": SIREN},
        {"siren": SIREN, "formality": {}},
        {"siren": SIREN, "formality": {"content": []}},
        {"siren": SIREN, "formality": {"content": {"personneMorale": "DANONE"}}},
        formality(siren=OTHER),
        {"formality": {"content": {}}},
    ],
)
def test_an_unknown_schema_or_another_company_is_a_format_error(document: Any) -> None:
    with pytest.raises(RegistryFormatError):
        read(document)


def paths_in(document: Any) -> list[tuple[str, ...]]:
    inner = document.items() if isinstance(document, dict) else ()
    return [(), *((name, *rest) for name, each in inner for rest in paths_in(each))]


def with_value_at(document: Any, key_path: tuple[str, ...], value: object) -> Any:
    return (
        document | {key_path[0]: with_value_at(document[key_path[0]], key_path[1:], value)}
        if key_path
        else value
    )


PATHS = paths_in(formality())
FLAT = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    FLAT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PATHS), JSON)
def test_any_json_from_inpi_becomes_a_record_or_an_error(
    key_path: tuple[str, ...], value: object
) -> None:
    body = json.dumps(with_value_at(formality(), key_path, value)).encode()
    result = fetch(inpi(logged_in(lambda _: httpx.Response(200, content=body))))
    assert isinstance(result, SourceRecord | SourceError)


def test_the_token_is_read_from_a_login_response() -> None:
    assert token_of(b'{"token": " a.b.c ", "user": {"id": 1}}') == "a.b.c"


@every_case("body", [None, b"{}", b'{"token": null}', b'{"token": " "}', b'{"token": "a\\nb"}'])
def test_a_login_response_without_a_sendable_token_is_a_format_error(body: bytes | None) -> None:
    with pytest.raises(RegistryFormatError):
        token_of(body)
