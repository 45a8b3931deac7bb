"""INPI's national register of companies over HTTP: `enrichment.ports.Registry`, behind a login of ours.

More than five logins in half a minute ban our address, five wrong passwords the account: one task logs in at a time,
the token serves all others, processes take turns, and a refused password is not tried again for a while.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote

import httpx

from automation_pipeline.clients.inpi_payloads import company_of, token_of
from automation_pipeline.clients.per_loop import PerLoop
from automation_pipeline.clients.registry_http import Answer, Registered, RegistryHttp, failed, raise_if_wrong
from automation_pipeline.clients.registry_payloads import NotUnderstoodError
from automation_pipeline.core.coordination import Rate, RateLimiter
from automation_pipeline.core.meter import Meter
from automation_pipeline.enrichment.domain.record import SourceError, SourceRecord
from automation_pipeline.enrichment.domain.vocabulary import ErrorCode

INPI = Registered("INPI's register", "inpi", "INPI_RNE_BASE_URL", "INPI_RNE_USERNAME and INPI_RNE_PASSWORD")
LOGIN_KEY = "enrichment:INPI_RNE:login"
LOGIN_RATE = Rate(4, 30.0)
LONGEST_LOGIN_TURN_SECONDS = 2.0
REFUSAL_HOLDS = timedelta(hours=1)
# La Poste: it will be there.
SOMEBODY_KNOWN = "356000000"


@dataclass(frozen=True)
class Account:
    username: str
    password: str = field(repr=False)


class InpiRegister:
    def __init__(  # noqa: PLR0913  what a connection needs, by name
        self,
        base_url: str,
        account: Account,
        *,
        now: Callable[[], datetime],
        limiter: RateLimiter,
        timeout_seconds: float = 5.0,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._account, self._now, self._limiter = account, now, limiter
        self._http = RegistryHttp(
            INPI, base_url, now=now, timeout_seconds=timeout_seconds, meter=meter, transport=transport
        )
        self._token: str | None = None
        self._refused: tuple[datetime, SourceError] | None = None
        self._login_locks = PerLoop(asyncio.Lock)

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
        token = self._token or await self._token_instead_of(None)
        if isinstance(token, SourceError):
            return token
        answer = await self._read(siren, token)
        if isinstance(answer, SourceError) or answer.status != 401:
            return answer
        token = await self._token_instead_of(token)
        return token if isinstance(token, SourceError) else await self._read(siren, token)

    async def _read(self, siren: str, token: str) -> Answer | SourceError:
        return await self._http.get(f"/api/companies/{quote(siren, safe='')}", token=token)

    async def _token_instead_of(self, old: str | None) -> str | SourceError:
        """Another task may have got it while this one waited."""
        async with self._login_locks.here():
            if self._token is not None and self._token != old:
                return self._token
            self._token = None
            said = self._recent_refusal() or await self._login()
            if isinstance(said, str):
                self._token = said
            elif said.error_code is ErrorCode.AUTH_ERROR and self._recent_refusal() is None:
                self._refused = (self._now(), said)
            return said

    def _recent_refusal(self) -> SourceError | None:
        if self._refused is None or self._now() - self._refused[0] >= REFUSAL_HOLDS:
            return None
        return self._refused[1]

    async def _login(self) -> str | SourceError:
        turn = await asyncio.to_thread(self._turn)
        if turn is None:
            return failed(ErrorCode.SOURCE_UNAVAILABLE, f"{INPI.name} was logged into too often for one more now.")
        await asyncio.sleep(turn)
        document = {"username": self._account.username, "password": self._account.password}
        answer = await self._http.post("/api/sso/login", document)
        if isinstance(answer, SourceError):
            return answer
        if answer.status == 404:  # not a company that is unknown
            return failed(ErrorCode.INTERNAL_ERROR, f"{INPI.name} has no login (check {INPI.address_setting}).", 404)
        if answer.status != 200:
            return self._http.refusal(answer)
        try:
            return token_of(answer.body)
        except NotUnderstoodError as error:
            return self._http.not_understood(str(error))

    def _turn(self) -> float | None:
        return self._limiter.reserve(LOGIN_KEY, LOGIN_RATE, max_wait_seconds=LONGEST_LOGIN_TURN_SECONDS)
