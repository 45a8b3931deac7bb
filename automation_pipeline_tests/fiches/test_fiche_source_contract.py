"""`fiches.ports.FicheSource`, sentence by sentence, on the fake and on the CRM client against the simulator."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

import pytest

from automation_pipeline.clients.crm import CrmClient
from automation_pipeline.clients.retrying import Retrying
from automation_pipeline.core.errors import AutomationError, NotFoundError, PermanentError, TransientError
from automation_pipeline.core.retry import Backoff
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.simulator import Kind, World
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche, recording
from automation_pipeline_tests.outside import TOKEN, fault

Result = TypeVar("Result")

DAY = World(vary=False).day(date(2026, 2, 3))
ORDINARY = [sold for sold in DAY if sold.kind is Kind.ORDINARY]
KNOWN, BUSY, BROKEN = (sold.id for sold in ORDINARY[:3])
MISSING = next(sold.id for sold in DAY if sold.kind is Kind.MISSING)
SILENT = next(sold.id for sold in DAY if sold.kind is Kind.NO_RECORDINGS)
NO_URL = next(sold.id for sold in DAY if sold.kind is Kind.NO_URL)
AT_ONCE = Retrying(attempts=3, backoff=Backoff(base_seconds=0, cap_seconds=0))


@dataclass(frozen=True)
class Place:
    """A source with a good and a bad world behind it."""

    opened: Callable[[], FicheSource]
    refusing: Callable[[], FicheSource]

    def ask(self, question: Callable[[FicheSource], Awaitable[Result]], *, refused: bool = False) -> Result:
        async def asked() -> Result:
            source = self.refusing() if refused else self.opened()
            try:
                return await question(source)
            finally:
                if isinstance(source, CrmClient):
                    await source.aclose()

        return asyncio.run(asked())

    def error(self, question: Callable[[FicheSource], Awaitable[object]], *, refused: bool = False) -> AutomationError:
        with pytest.raises(AutomationError) as caught:
            self.ask(question, refused=refused)
        return caught.value


@pytest.fixture(params=["fake", "crm"])
def place(request: pytest.FixtureRequest) -> Place:
    return in_memory() if request.param == "fake" else over_http(request.getfixturevalue("simulated"))


def in_memory() -> Place:
    known = fiche(KNOWN, recording(f"{KNOWN}01"), groupe=ORDINARY[0].groupe)
    source = FakeFicheSource([known, fiche(SILENT), fiche(NO_URL, recording(f"{NO_URL}01", url=""))])
    source.fail_always(BUSY, TransientError("The CRM answered 503."))
    source.fail_always(BROKEN, PermanentError("The CRM's answer cannot be understood."))
    refusing = FakeFicheSource([known])
    refusing.refuse_everything(PermanentError("The CRM refused our token."))
    return Place(lambda: source, lambda: refusing)


def over_http(url: str) -> Place:
    fault(
        url,
        {"route": "crm.details", "item": BUSY, "status": 503},
        {"route": "crm.details", "item": BROKEN, "body": "wrong_types"},
    )

    def client(token: str) -> FicheSource:
        return CrmClient(url, token, now=lambda: datetime.now(UTC), retrying=AT_ONCE)

    return Place(lambda: client(TOKEN), lambda: client("another"))


def test_a_known_fiche_is_told_whole(place: Place) -> None:
    details = place.ask(lambda source: source.details(KNOWN))
    assert (details.fiche_id, details.groupe) == (KNOWN, ORDINARY[0].groupe)
    assert details.prospect_nom
    assert details.recordings


def test_its_instants_are_in_utc(place: Place) -> None:
    for call in place.ask(lambda source: source.details(KNOWN)).recordings:
        assert call.started_at.utcoffset() == timedelta(0)


def test_its_payload_is_kept_without_the_recordings(place: Place) -> None:
    payload = place.ask(lambda source: source.details(KNOWN)).payload
    assert "recordings" not in payload
    assert "information" in payload


def test_a_fiche_without_calls_has_no_recordings(place: Place) -> None:
    assert place.ask(lambda source: source.details(SILENT)).recordings == ()


def test_an_audio_that_is_not_available_is_an_empty_url(place: Place) -> None:
    assert place.ask(lambda source: source.details(NO_URL)).recordings[0].url == ""


def test_asking_twice_gives_the_same_answer(place: Place) -> None:
    assert place.ask(lambda source: source.details(KNOWN)) == place.ask(lambda source: source.details(KNOWN))


@pytest.mark.parametrize("fiche_id", [MISSING, "0", "404404", "../health", "a b/ü?#%"])
def test_an_unknown_fiche_is_not_found(place: Place, fiche_id: str) -> None:
    assert isinstance(place.error(lambda source: source.details(fiche_id)), NotFoundError)


def test_an_answer_that_another_attempt_may_give_is_transient(place: Place) -> None:
    assert isinstance(place.error(lambda source: source.details(BUSY)), TransientError)


def test_an_answer_that_no_attempt_will_give_is_permanent_and_not_a_missing_fiche(place: Place) -> None:
    error = place.error(lambda source: source.details(BROKEN))
    assert isinstance(error, PermanentError)
    assert not isinstance(error, NotFoundError)


def test_a_check_says_nothing_when_all_is_well(place: Place) -> None:
    place.ask(lambda source: source.check())


def test_a_refused_token_is_a_permanent_error_of_a_check_and_of_a_fiche(place: Place) -> None:
    for error in (
        place.error(lambda source: source.check(), refused=True),
        place.error(lambda source: source.details(KNOWN), refused=True),
    ):
        assert isinstance(error, PermanentError)
        assert not isinstance(error, NotFoundError)


def test_many_may_be_asked_at_once(place: Place) -> None:
    async def all_of(source: FicheSource) -> list[str]:
        found = await asyncio.gather(*(source.details(fiche_id) for fiche_id in [KNOWN, SILENT, NO_URL] * 5))
        return [details.fiche_id for details in found]

    assert place.ask(all_of) == [KNOWN, SILENT, NO_URL] * 5
