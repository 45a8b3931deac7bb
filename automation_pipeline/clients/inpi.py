"""INPI's national register of companies over HTTP: `enrichment.ports.Registry`, behind a login of ours."""

from collections.abc import Callable
from datetime import datetime
from urllib.parse import quote

import httpx

from automation_pipeline.clients.inpi_login import INPI, Account, InpiLogin
from automation_pipeline.clients.inpi_payloads import company_of
from automation_pipeline.clients.registry_http import Answer, RegistryHttp, raise_if_wrong
from automation_pipeline.clients.registry_payloads import NotUnderstoodError
from automation_pipeline.core.coordination import RateLimiter
from automation_pipeline.core.meter import Meter
from automation_pipeline.enrichment.domain.record import SourceError, SourceRecord
from automation_pipeline.enrichment.domain.vocabulary import ErrorCode
from automation_pipeline.enrichment.ports import SharedLogin

# La Poste: it will be there.
SOMEBODY_KNOWN = "356000000"


class InpiRegister:
    """Where the login is not `shared` it is its own, as a check of the password needs it."""

    def __init__(  # noqa: PLR0913  what a connection needs, by name
        self,
        base_url: str,
        account: Account,
        *,
        now: Callable[[], datetime],
        limiter: RateLimiter,
        shared: SharedLogin | None = None,
        timeout_seconds: float = 5.0,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = RegistryHttp(
            INPI, base_url, now=now, timeout_seconds=timeout_seconds, meter=meter, transport=transport
        )
        self._login = InpiLogin(
            account, self._http, now=now, limiter=limiter, timeout_seconds=timeout_seconds, shared=shared
        )

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError:
        _ = siret  # INPI tells of companies alone
        answer = await self._answer_about(siren)
        if isinstance(answer, SourceError):
            return answer
        if answer.status != 200:
            return self._http.refusal(answer)
        try:
            return company_of(answer.body, siren)
        except NotUnderstoodError as error:
            return self._http.not_understood(str(error))

    async def check(self) -> None:
        said = await self.fetch(SOMEBODY_KNOWN, None)
        if isinstance(said, SourceError) and said.error_code is not ErrorCode.NOT_FOUND:
            raise_if_wrong(said)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _answer_about(self, siren: str) -> Answer | SourceError:
        """A token that has expired is replaced once."""
        token = await self._login.token()
        if isinstance(token, SourceError):
            return token
        answer = await self._read(siren, token)
        if isinstance(answer, SourceError) or answer.status != 401:
            return answer
        token = await self._login.token_instead_of(token)
        return token if isinstance(token, SourceError) else await self._read(siren, token)

    async def _read(self, siren: str, token: str) -> Answer | SourceError:
        return await self._http.get(f"/api/companies/{quote(siren, safe='')}", token=token)
