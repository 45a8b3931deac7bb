"""The Recherche d'entreprises of the state over HTTP: `enrichment.ports.Registry`. It wants no credentials.

One call tells all that we read. `minimal` with `include` leaves out the officers, whom no field of ours is about:
their names never come here, and a second pass for them would halve what seven calls a second allow.
"""

from collections.abc import Callable
from datetime import datetime

import httpx

from automation_pipeline.clients.company_search_payloads import company_of
from automation_pipeline.clients.registry_http import Answer, Registered, RegistryHttp, failed, raise_if_wrong
from automation_pipeline.clients.registry_payloads import NotUnderstoodError
from automation_pipeline.core.meter import Meter
from automation_pipeline.enrichment.domain.record import SourceError, SourceRecord
from automation_pipeline.enrichment.domain.vocabulary import ErrorCode

SEARCH = Registered(
    "the Recherche d'entreprises",
    "company_search",
    "RECHERCHE_ENTREPRISES_BASE_URL",
    "RECHERCHE_ENTREPRISES_BASE_URL",
)
INCLUDED = "siege,complements,finances"
# The state's own IT directorate, which publishes the service.
SOMEBODY_KNOWN = "130025265"


class CompanySearch:
    def __init__(
        self,
        base_url: str,
        *,
        now: Callable[[], datetime],
        timeout_seconds: float = 5.0,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = RegistryHttp(
            SEARCH, base_url, now=now, timeout_seconds=timeout_seconds, meter=meter, transport=transport
        )

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError:
        """With a SIRET, the establishment is asked for: NOT_FOUND then says that the register does not know it."""
        answer = await self._ask(siren, siret)
        if isinstance(answer, SourceError):
            return answer
        if answer.status != 200:
            return self._http.refusal(answer)
        try:
            company = company_of(answer.body, siren, siret)
        except NotUnderstoodError as error:
            return self._http.not_understood(str(error))
        what = "company" if siret is None else "establishment"
        return company or failed(ErrorCode.NOT_FOUND, f"{SEARCH.name} does not know the {what}.", 200)

    async def check(self) -> None:
        said = await self.fetch(SOMEBODY_KNOWN, None)
        is_unknown = isinstance(said, SourceError) and said.error_code is ErrorCode.NOT_FOUND
        if isinstance(said, SourceError) and not (is_unknown and said.http_status == 200):
            raise_if_wrong(said)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _ask(self, siren: str, siret: str | None) -> Answer | SourceError:
        included = INCLUDED if siret is None else f"{INCLUDED},matching_etablissements"
        wanted = {"q": siret or siren, "page": "1", "per_page": "1", "minimal": "true", "include": included}
        return await self._http.get("/search", wanted)
