"""The contract of the port `FicheSource`, for the fake and for the CRM client against the simulator."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

import pytest

from automation_pipeline.clients.crm import CrmClient
from automation_pipeline.core.errors import (
    AutomationError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.retry import Backoff, Retrying
from automation_pipeline.fiches.models.fiches import FicheSource
from automation_pipeline.simulator import Kind, World
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche, recording, summary
from automation_pipeline_tests.simulator_control import TOKEN, add_faults

Result = TypeVar("Result")

SOLD_ON, BUSY_DAY, BROKEN_DAY = date(2026, 2, 3), date(2026, 2, 4), date(2026, 2, 5)
QUIET_DAY = date(1999, 12, 31)  # before the first day of the simulator
DAY = World(vary=False).day(SOLD_ON)
ORDINARY = [sold for sold in DAY if sold.kind is Kind.ORDINARY]
KNOWN, BUSY, BROKEN = (sold.id for sold in ORDINARY[:3])
MISSING = next(sold.id for sold in DAY if sold.kind is Kind.MISSING)
NO_RECORDINGS = next(sold.id for sold in DAY if sold.kind is Kind.NO_RECORDINGS)
NO_URL = next(sold.id for sold in DAY if sold.kind is Kind.NO_URL)
AT_ONCE = Retrying(attempts=3, backoff=Backoff(base_seconds=0, cap_seconds=0))


@dataclass(frozen=True)
class Harness:
    """Opens the source under test, and one with invalid credentials."""

    working: Callable[[], FicheSource]
    refusing: Callable[[], FicheSource]

    def call(
        self, method: Callable[[FicheSource], Awaitable[Result]], *, refused: bool = False
    ) -> Result:
        async def call_and_close() -> Result:
            source = self.refusing() if refused else self.working()
            try:
                return await method(source)
            finally:
                if isinstance(source, CrmClient):
                    await source.aclose()

        return asyncio.run(call_and_close())

    def error(
        self, method: Callable[[FicheSource], Awaitable[object]], *, refused: bool = False
    ) -> AutomationError:
        with pytest.raises(AutomationError) as caught:
            self.call(method, refused=refused)
        return caught.value


@pytest.fixture(params=["fake", "crm"])
def harness(request: pytest.FixtureRequest) -> Harness:
    return (
        in_memory()
        if request.param == "fake"
        else over_http(request.getfixturevalue("simulator_url"))
    )


def in_memory() -> Harness:
    known = fiche(KNOWN, recording(f"{KNOWN}01"), groupe=ORDINARY[0].groupe)
    source = FakeFicheSource(
        [known, fiche(NO_RECORDINGS), fiche(NO_URL, recording(f"{NO_URL}01", url=""))]
    )
    source.set_sales(
        SOLD_ON, *(summary(s.id, *(recording(call.call_id) for call in s.recordings)) for s in DAY)
    )
    source.fail_always(BUSY_DAY.isoformat(), TransientError("The CRM answered 503."))
    source.fail_always(
        BROKEN_DAY.isoformat(), PermanentError("The CRM's answer cannot be understood.")
    )
    source.fail_always(BUSY, TransientError("The CRM answered 503."))
    source.fail_always(BROKEN, PermanentError("The CRM's answer cannot be understood."))
    refusing = FakeFicheSource([known])
    refusing.refuse_everything(PermanentError("The CRM refused the token."))
    return Harness(lambda: source, lambda: refusing)


def over_http(url: str) -> Harness:
    add_faults(
        url,
        {"route": "crm.details", "item": BUSY, "status": 503},
        {"route": "crm.details", "item": BROKEN, "body": "wrong_types"},
        {"route": "crm.sales_list", "item": BUSY_DAY.isoformat(), "status": 503},
        {"route": "crm.sales_list", "item": BROKEN_DAY.isoformat(), "body": "wrong_types"},
    )

    def client(token: str) -> FicheSource:
        return CrmClient(url, token, now=lambda: datetime.now(UTC), retrying=AT_ONCE)

    return Harness(lambda: client(TOKEN), lambda: client("another"))


def test_a_known_fiche_is_returned_with_all_details(harness: Harness) -> None:
    details = harness.call(lambda source: source.details(KNOWN))
    assert (details.fiche_id, details.information.groupe) == (KNOWN, ORDINARY[0].groupe)
    assert details.prospect is not None
    assert details.prospect.nom
    assert details.recordings


def test_recording_times_are_in_utc(harness: Harness) -> None:
    for call in harness.call(lambda source: source.details(KNOWN)).recordings:
        assert call.started_at.utcoffset() == timedelta(0)


def test_all_sections_of_a_fiche_are_returned(harness: Harness) -> None:
    details = harness.call(lambda source: source.details(KNOWN))
    assert details.information.fiche_id == KNOWN
    assert details.information.modules
    assert details.rest == {}


def test_the_sales_of_a_day_are_listed_with_their_recordings(harness: Harness) -> None:
    sales = harness.call(lambda source: source.sales_list(SOLD_ON))
    assert (sales.day, sales.listed) == (SOLD_ON, len(DAY))
    assert [fiche.fiche_id for fiche in sales.fiches] == [sold.id for sold in DAY]
    assert [len(fiche.recordings) for fiche in sales.fiches] == [
        len(sold.recordings) for sold in DAY
    ]


def test_a_day_without_sales_returns_an_empty_list(harness: Harness) -> None:
    sales = harness.call(lambda source: source.sales_list(QUIET_DAY))
    assert (sales.day, sales.listed, sales.fiches) == (QUIET_DAY, 0, ())


def test_a_failed_sales_list_raises_instead_of_returning_an_empty_list(harness: Harness) -> None:
    assert isinstance(harness.error(lambda source: source.sales_list(BUSY_DAY)), TransientError)
    error = harness.error(lambda source: source.sales_list(BROKEN_DAY))
    assert isinstance(error, PermanentError)
    assert not isinstance(error, NotFoundError)


def test_the_source_declares_its_concurrency(harness: Harness) -> None:
    async def concurrency(source: FicheSource) -> int:
        return source.at_once

    assert harness.call(concurrency) >= 1


def test_a_fiche_without_calls_has_no_recordings(harness: Harness) -> None:
    assert harness.call(lambda source: source.details(NO_RECORDINGS)).recordings == ()


def test_unavailable_audio_has_an_empty_url(harness: Harness) -> None:
    assert harness.call(lambda source: source.details(NO_URL)).recordings[0].url == ""


def test_repeated_calls_return_the_same_details(harness: Harness) -> None:
    assert harness.call(lambda source: source.details(KNOWN)) == harness.call(
        lambda source: source.details(KNOWN)
    )


@pytest.mark.parametrize("fiche_id", [MISSING, "0", "404404", "../health", "a b/ü?#%"])
def test_an_unknown_fiche_is_not_found(harness: Harness, fiche_id: str) -> None:
    assert isinstance(harness.error(lambda source: source.details(fiche_id)), NotFoundError)


def test_a_temporary_failure_is_transient(harness: Harness) -> None:
    assert isinstance(harness.error(lambda source: source.details(BUSY)), TransientError)


def test_an_invalid_answer_is_permanent_and_not_a_missing_fiche(
    harness: Harness,
) -> None:
    error = harness.error(lambda source: source.details(BROKEN))
    assert isinstance(error, PermanentError)
    assert not isinstance(error, NotFoundError)


def test_check_passes_if_the_source_is_reachable(harness: Harness) -> None:
    harness.call(lambda source: source.check())


def test_a_refused_token_is_a_permanent_error_in_every_method(harness: Harness) -> None:
    for error in (
        harness.error(lambda source: source.check(), refused=True),
        harness.error(lambda source: source.details(KNOWN), refused=True),
        harness.error(lambda source: source.sales_list(SOLD_ON), refused=True),
    ):
        assert isinstance(error, PermanentError)
        assert not isinstance(error, NotFoundError)


def test_concurrent_calls_return_their_own_fiches(harness: Harness) -> None:
    async def fetch_all(source: FicheSource) -> list[str]:
        found = await asyncio.gather(
            *(source.details(fiche_id) for fiche_id in [KNOWN, NO_RECORDINGS, NO_URL] * 5)
        )
        return [details.fiche_id for details in found]

    assert harness.call(fetch_all) == [KNOWN, NO_RECORDINGS, NO_URL] * 5
