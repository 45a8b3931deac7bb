"""The CRM client with a fixed clock and a recorded sleep, on the simulator or a mock transport."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from random import Random
from typing import Any

import httpx
import pytest

from automation_pipeline.clients.crm import CrmClient
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.retry import Backoff, Retrying
from automation_pipeline.fiches.models.fiches import CrmFiche, SalesList
from automation_pipeline.simulator import Kind, World
from automation_pipeline_tests.fakes.crm import INFORMATION as INFORMATION_OF_A_FICHE
from automation_pipeline_tests.simulator_control import TOKEN

Answer = Callable[[httpx.Request], httpx.Response]

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
DAY = World(vary=False).day(date(2026, 2, 3))
SOLD = next(sold for sold in DAY if sold.kind is Kind.ORDINARY)
FICHE = SOLD.id

URL = "https://records.example.test/t/0a1b2c3d-1111-4222-8333-444455556666-03-02-26-10h14-33100000001-33600000001.mp3"
RECORDING = {
    "call_id": "880001",
    "start_time": "2026-02-03T09:14:05.120000+00:00",
    "duration_seconds": 742,
    "direction": "out",
    "from_number": "33100000001",
    "to_number": "33600000001",
    "answered": True,
    "recording_url": URL,
}
INFORMATION = INFORMATION_OF_A_FICHE.model_dump(mode="json") | {"fiche_id": FICHE}
GOOD = {
    "success": True,
    "message": "Fiche lue",
    "information": INFORMATION,
    "prospect": None,
    "conjoint": None,
    "enfants": [],
    "mails": [],
    "rendez_vous": [],
    "commentaires": [],
    "elements_souscription": None,
    "tarification": [],
    "reclamations": [],
    "autres_contrats": [],
    "documents": [],
    "alertes": [],
    "raw_sections": {},
    "recordings": [RECORDING],
}
SALE = {
    "id": FICHE,
    "cle": "5f0c77aa91e34b0c8d2e1f6a7b8c9d00",
    "nom": "MARTEL",
    "prenom": "Odile",
    "telephone": "0600000001",
    "telephone_2": None,
    "email": "odile.martel@example.test",
    "statut": "Vente",
    "date_insertion": "03/02/2026 10:12",
    "date_modification": None,
    "recordings": [RECORDING],
}
LIST = {"fiches": [SALE], "total": 1}
SOLD_ON = date(2026, 2, 3)


class RecordedSleep:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Crm:
    """The client with a fixed clock, a sleep that records waits, and one call at a time."""

    def __init__(
        self,
        url: str,
        token: str = TOKEN,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_seconds: float = 60,
    ) -> None:
        self.url, self.token = url, token
        self._transport = transport
        self._timeout_seconds = timeout_seconds
        self.waits = RecordedSleep()

    def details(self, fiche_id: str = FICHE) -> CrmFiche:
        return asyncio.run(self._with_client(lambda client: client.details(fiche_id)))

    def sales_list(self, day: date = SOLD_ON) -> SalesList:
        return asyncio.run(self._with_client(lambda client: client.sales_list(day)))

    def check(self) -> None:
        asyncio.run(self._with_client(lambda client: client.check()))

    def error(self, fiche_id: str = FICHE) -> AutomationError:
        with pytest.raises(AutomationError) as caught:
            self.details(fiche_id)
        return caught.value

    def list_error(self, day: date = SOLD_ON) -> AutomationError:
        with pytest.raises(AutomationError) as caught:
            self.sales_list(day)
        return caught.value

    async def _with_client(self, act: Callable[[CrmClient], Any]) -> Any:
        backoff = Backoff(base_seconds=1, multiplier=2, cap_seconds=15)
        retrying = Retrying(attempts=3, backoff=backoff, random=Random(1), sleep=self.waits)
        client = CrmClient(
            self.url,
            self.token,
            now=lambda: NOW,
            retrying=retrying,
            timeout_seconds=self._timeout_seconds,
            transport=self._transport,
        )
        try:
            return await act(client)
        finally:
            await client.aclose()


def crm_with_answer(answer: Answer) -> Crm:
    """The client on a mock transport with the given answer."""
    return Crm("http://crm.test", transport=httpx.MockTransport(answer))


def crm_with_document(document: object) -> Crm:
    return crm_with_answer(lambda _: httpx.Response(200, content=json.dumps(document).encode()))
