"""The contract of `enrichment.models.Registry`, for the fake and for the three clients against the
simulator."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from automation_pipeline.clients.inpi import Account, InpiRegister
from automation_pipeline.clients.registries import CommerceRegister, CompanySearch, Purpose
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.enrichment.models import ErrorCode, SourceError, SourceRecord
from automation_pipeline_tests import simulator_control
from automation_pipeline_tests.fakes.registries import FakeRegistry, UnlimitedRate, error, record

DANONE, SEAT = "552032534", "55203253400646"
NOT_FOUND = "000000000"
LONG_TIMEOUT = 60.0  # seconds, so that a slow machine does not fail the tests
STATUSES = {
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    409: ErrorCode.SOURCE_UNAVAILABLE,
    422: ErrorCode.INTERNAL_ERROR,
    429: ErrorCode.RATE_LIMIT,
    451: ErrorCode.FORBIDDEN,
    503: ErrorCode.UPSTREAM_5XX,
}


@dataclass(frozen=True)
class RegistryCase:
    """A registry under test. `refusing` is the same registry with invalid credentials. The registry
    answers `unknown_status` for `unknown_siren`, which it does not have. `fail_with` makes every later
    call for DANONE fail with this status. `calls` returns the number of calls."""

    registry: Any
    refusing: Any
    unknown_siren: str
    unknown_status: int
    fail_with: Callable[[int, float | None], None]
    calls: Callable[[], int]

    def fetch(self, siren: str = DANONE, siret: str | None = None) -> SourceRecord | SourceError:
        return call_and_close(self.registry, lambda one: one.fetch(siren, siret))


def call_and_close(registry: Any, method: Callable[[Any], Any]) -> Any:
    async def run() -> Any:
        try:
            return await method(registry)
        finally:
            if not isinstance(registry, FakeRegistry):
                await registry.aclose()

    return asyncio.run(run())


def in_memory() -> RegistryCase:
    fake, refusing = FakeRegistry(record(DANONE)), FakeRegistry()
    refusing.refuse_everything(error(ErrorCode.AUTH_ERROR, 401))

    def fail_with(status: int, retry_after: float | None) -> None:
        fake.fail_always(DANONE, error(STATUSES[status], status, retry_after))

    return RegistryCase(fake, refusing, NOT_FOUND, 404, fail_with, lambda: len(fake.calls))


def over_http(source: str, url: str) -> RegistryCase:
    route, make = CLIENTS[source]
    # The search finds every existing company; the other registers have no associations.
    is_search = source == "search"
    unknown_siren = NOT_FOUND if is_search else simulator_control.sirens(url, 1, "association")[0]

    def fail_with(status: int, retry_after: float | None) -> None:
        wait = {} if retry_after is None else {"retry_after": retry_after}
        simulator_control.add_faults(
            url, {"route": route, "item": DANONE, "status": status, **wait}
        )

    def calls() -> int:
        sources = simulator_control.registry_totals(url)["sources"]
        logins = sources["inpi.login"]["calls"] if source == "inpi" else 0
        return sources[source]["calls"] - logins

    return RegistryCase(
        make(url, "right"),
        make(url, "wrong"),
        unknown_siren,
        200 if is_search else 404,
        fail_with,
        calls,
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _search(url: str, access: str) -> CompanySearch:
    path = "search" if access == "right" else "no-such-path"
    return CompanySearch(f"{url}/registries/{path}", now=_now, timeout_seconds=LONG_TIMEOUT)


def _inpi(url: str, access: str) -> InpiRegister:
    account = Account(
        simulator_control.INPI_USERNAME,
        simulator_control.INPI_PASSWORD if access == "right" else "wr0ng",
    )
    return InpiRegister(
        f"{url}/registries/inpi",
        account,
        now=_now,
        limiter=UnlimitedRate(),
        timeout_seconds=LONG_TIMEOUT,
    )


def _rcs(url: str, access: str) -> CommerceRegister:
    bearer = simulator_control.ENTREPRISE_TOKEN if access == "right" else "wr0ng"
    purpose = Purpose(simulator_control.PUBLIC_BODY, "a reason", "a matter")
    return CommerceRegister(
        f"{url}/registries/entreprise", bearer, purpose, now=_now, timeout_seconds=LONG_TIMEOUT
    )


CLIENTS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "search": ("registries.search", _search),
    "inpi": ("registries.inpi.company", _inpi),
    "rcs": ("registries.rcs", _rcs),
}


@pytest.fixture
def unlimited(simulator_url: str) -> Iterator[str]:
    """The simulated registries without rate limits, which are restored afterwards."""
    simulator_control.configure_registries(simulator_url, **simulator_control.NO_REGISTRY_LIMITS)
    yield simulator_url
    simulator_control.configure_registries(simulator_url, **simulator_control.REGISTRY_LIMITS)


@pytest.fixture(params=["fake", *CLIENTS])
def case(request: pytest.FixtureRequest) -> RegistryCase:
    if request.param == "fake":
        return in_memory()
    return over_http(request.param, request.getfixturevalue("unlimited"))


@pytest.mark.parametrize("siret", [None, SEAT])
def test_a_known_company_is_returned_with_one_call(case: RegistryCase, siret: str | None) -> None:
    result = case.fetch(siret=siret)
    assert isinstance(result, SourceRecord), result
    assert (result.siren, result.fields.legal_name, result.fields.active_status) == (
        DANONE,
        "DANONE",
        "A",
    )
    assert result.document
    assert not result.is_masked
    assert case.calls() == 1


@pytest.mark.parametrize("siret", [None, SEAT])
def test_the_same_company_has_the_same_record(case: RegistryCase, siret: str | None) -> None:
    assert case.fetch() == case.fetch(siret=siret)


def test_an_unknown_company_is_a_permanent_error(case: RegistryCase) -> None:
    result = case.fetch(case.unknown_siren)
    assert isinstance(result, SourceError), result
    assert (result.error_code, result.retryable) == (ErrorCode.NOT_FOUND, False)
    assert result.http_status == case.unknown_status


@pytest.mark.parametrize("status", STATUSES)
def test_an_error_status_is_returned_as_a_value_without_a_retry(
    case: RegistryCase, status: int
) -> None:
    case.fail_with(status, None)
    result = case.fetch()
    assert isinstance(result, SourceError), result
    assert (result.error_code, result.http_status) == (STATUSES[status], status)
    assert result.retryable is (status in {409, 429, 503})
    assert case.calls() == 1


def test_the_error_has_the_retry_after_of_the_source(case: RegistryCase) -> None:
    case.fail_with(429, 7.0)
    result = case.fetch()
    assert isinstance(result, SourceError)
    assert result.retry_after_seconds == 7.0


def test_the_check_passes_with_valid_access(case: RegistryCase) -> None:
    assert call_and_close(case.registry, lambda one: one.check()) is None


def test_the_check_fails_with_a_reason_for_invalid_access(case: RegistryCase) -> None:
    with pytest.raises(PermanentError) as caught:
        call_and_close(case.refusing, lambda one: one.check())
    assert str(caught.value).endswith(".")
    assert "wr0ng" not in str(caught.value)


# The API refuses the requesting body itself and numbers with a wrong check digit.
REFUSED_BY_RCS = {"public", "nameless"}
WITHOUT_RECORD = {ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN}
KINDS = (
    "company",
    "association",
    "public",
    "sole_trader",
    "liberal",
    "masked",
    "masked_company",
    "farm",
    "ceased",
)
KINDS += ("young", "incomplete", "nameless")


@pytest.mark.parametrize("source", CLIENTS)
def test_companies_of_every_kind_are_parsed(source: str, unlimited: str) -> None:
    sirens = {
        siren: kind for kind in KINDS for siren in simulator_control.sirens(unlimited, 2, kind)
    }

    async def fetch_all(registry: Any) -> list[SourceRecord | SourceError]:
        return [await registry.fetch(siren, None) for siren in sirens]

    values = dict(
        zip(sirens, call_and_close(CLIENTS[source][1](unlimited, "right"), fetch_all), strict=True)
    )
    refused = {
        (sirens[siren], one.error_code)
        for siren, one in values.items()
        if isinstance(one, SourceError)
    }
    assert {kind for kind, code in refused if code not in WITHOUT_RECORD} <= (
        REFUSED_BY_RCS if source == "rcs" else set()
    )
    known = {siren: one for siren, one in values.items() if isinstance(one, SourceRecord)}
    assert {"company", "ceased", "masked_company"} <= {sirens[siren] for siren in known}
    for siren, one in known.items():
        kind, result = sirens[siren], one.fields
        assert result.active_status == ("C" if kind == "ceased" else "A") or kind in {
            "incomplete",
            "nameless",
        }
        assert "NON-DIFFUSIBLE" not in str(result)
        assert one.is_masked is (kind in {"masked", "masked_company"}) or source == "rcs"
        assert result.legal_name or kind in {"masked", "incomplete", "nameless"}
