"""`enrichment.models.Registry`, sentence by sentence, on the fake and on the three clients against
the simulator."""

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
from automation_pipeline_tests import outside
from automation_pipeline_tests.fakes.registries import AtOnce, FakeRegistry, error, record

DANONE, SEAT = "552032534", "55203253400646"
NOT_FOUND = "000000000"
LONG = 60.0  # so that a slow machine is no finding
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
class Place:
    """`stranger` is a company that it does not know, which it says with `unknown_status`. `strike`
    makes every call about DANONE fail from now on with the status; `calls` counts the calls."""

    registry: Any
    refusing: Any
    stranger: str
    unknown_status: int
    strike: Callable[[int, float | None], None]
    calls: Callable[[], int]

    def fetch(self, siren: str = DANONE, siret: str | None = None) -> SourceRecord | SourceError:
        return visited(self.registry, lambda one: one.fetch(siren, siret))


def visited(registry: Any, act: Callable[[Any], Any]) -> Any:
    async def acted() -> Any:
        try:
            return await act(registry)
        finally:
            if not isinstance(registry, FakeRegistry):
                await registry.aclose()

    return asyncio.run(acted())


def in_memory() -> Place:
    fake, refusing = FakeRegistry(record(DANONE)), FakeRegistry()
    refusing.refuse_everything(error(ErrorCode.AUTH_ERROR, 401))

    def strike(status: int, retry_after: float | None) -> None:
        fake.fail_always(DANONE, error(STATUSES[status], status, retry_after))

    return Place(fake, refusing, NOT_FOUND, 404, strike, lambda: len(fake.calls))


def over_http(source: str, url: str) -> Place:
    route, make = CLIENTS[source]
    # It knows of all companies but those that there are not; the others know of no associations.
    is_search = source == "search"
    stranger = NOT_FOUND if is_search else outside.sirens(url, 1, "association")[0]

    def strike(status: int, retry_after: float | None) -> None:
        wait = {} if retry_after is None else {"retry_after": retry_after}
        outside.fault(url, {"route": route, "item": DANONE, "status": status, **wait})

    def calls() -> int:
        asked = outside.registries_totals(url)["sources"]
        return asked[source]["calls"] - asked["inpi.login"]["calls"] * (source == "inpi")

    return Place(
        make(url, "right"), make(url, "wrong"), stranger, 200 if is_search else 404, strike, calls
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _search(url: str, access: str) -> CompanySearch:
    path = "search" if access == "right" else "nothing-is-here"
    return CompanySearch(f"{url}/registries/{path}", now=_now, timeout_seconds=LONG)


def _inpi(url: str, access: str) -> InpiRegister:
    account = Account(
        outside.INPI_USERNAME, outside.INPI_PASSWORD if access == "right" else "wr0ng"
    )
    return InpiRegister(
        f"{url}/registries/inpi", account, now=_now, limiter=AtOnce(), timeout_seconds=LONG
    )


def _rcs(url: str, access: str) -> CommerceRegister:
    bearer = outside.ENTREPRISE_TOKEN if access == "right" else "wr0ng"
    purpose = Purpose(outside.PUBLIC_BODY, "a reason", "a matter")
    return CommerceRegister(
        f"{url}/registries/entreprise", bearer, purpose, now=_now, timeout_seconds=LONG
    )


CLIENTS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "search": ("registries.search", _search),
    "inpi": ("registries.inpi.company", _inpi),
    "rcs": ("registries.rcs", _rcs),
}


@pytest.fixture
def unlimited(simulated: str) -> Iterator[str]:
    """The registries without their limits, which the next test finds again."""
    outside.set_up_registries(simulated, **outside.NO_REGISTRY_LIMITS)
    yield simulated
    outside.set_up_registries(simulated, **outside.REGISTRY_LIMITS)


@pytest.fixture(params=["fake", *CLIENTS])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "fake":
        return in_memory()
    return over_http(request.param, request.getfixturevalue("unlimited"))


@pytest.mark.parametrize("siret", [None, SEAT])
def test_a_known_company_is_returned_with_one_call(place: Place, siret: str | None) -> None:
    result = place.fetch(siret=siret)
    assert isinstance(result, SourceRecord), result
    assert (result.siren, result.fields.legal_name, result.fields.active_status) == (
        DANONE,
        "DANONE",
        "A",
    )
    assert result.document
    assert not result.is_masked
    assert place.calls() == 1


@pytest.mark.parametrize("siret", [None, SEAT])
def test_the_same_company_has_the_same_record(place: Place, siret: str | None) -> None:
    assert place.fetch() == place.fetch(siret=siret)


def test_an_unknown_company_is_a_permanent_error(place: Place) -> None:
    result = place.fetch(place.stranger)
    assert isinstance(result, SourceError), result
    assert (result.error_code, result.retryable) == (ErrorCode.NOT_FOUND, False)
    assert result.http_status == place.unknown_status


@pytest.mark.parametrize("status", STATUSES)
def test_an_error_status_is_returned_as_a_value_without_a_retry(place: Place, status: int) -> None:
    place.strike(status, None)
    result = place.fetch()
    assert isinstance(result, SourceError), result
    assert (result.error_code, result.http_status) == (STATUSES[status], status)
    assert result.retryable is (status in {409, 429, 503})
    assert place.calls() == 1


def test_the_error_has_the_retry_after_of_the_source(place: Place) -> None:
    place.strike(429, 7.0)
    result = place.fetch()
    assert isinstance(result, SourceError)
    assert result.retry_after_seconds == 7.0


def test_the_check_passes_with_valid_access(place: Place) -> None:
    assert visited(place.registry, lambda one: one.check()) is None


def test_the_check_fails_with_a_reason_for_invalid_access(place: Place) -> None:
    with pytest.raises(PermanentError) as caught:
        visited(place.refusing, lambda one: one.check())
    assert str(caught.value).endswith(".")
    assert "wr0ng" not in str(caught.value)


# The body that asks is not told of itself, and a number with a wrong check digit is refused.
ODD_FOR_RCS = {"public", "nameless"}
NOT_TOLD = {ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN}
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
    sirens = {siren: kind for kind in KINDS for siren in outside.sirens(unlimited, 2, kind)}

    async def all_of_them(registry: Any) -> list[SourceRecord | SourceError]:
        return [await registry.fetch(siren, None) for siren in sirens]

    values = dict(
        zip(sirens, visited(CLIENTS[source][1](unlimited, "right"), all_of_them), strict=True)
    )
    refused = {
        (sirens[siren], one.error_code)
        for siren, one in values.items()
        if isinstance(one, SourceError)
    }
    assert {kind for kind, code in refused if code not in NOT_TOLD} <= (
        ODD_FOR_RCS if source == "rcs" else set()
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
