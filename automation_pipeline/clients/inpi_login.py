"""The login at INPI's register, whose token serves all tasks and, where they share it, all processes.

More than five logins in half a minute ban our address, five wrong passwords the account: one logs in at a time, the
others look for the token meanwhile, and a refused password is not tried again for a while.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from automation_pipeline.clients.http import PerLoop
from automation_pipeline.clients.inpi_payloads import token_of
from automation_pipeline.clients.registry_http import Registered, RegistryHttp, failed
from automation_pipeline.clients.registry_payloads import NotUnderstoodError
from automation_pipeline.core.coordination import Claim, Rate, RateLimiter
from automation_pipeline.enrichment.domain.record import SourceError
from automation_pipeline.enrichment.domain.vocabulary import ErrorCode
from automation_pipeline.enrichment.ports import SharedLogin

INPI = Registered("INPI's register", "inpi", "INPI_RNE_BASE_URL", "INPI_RNE_USERNAME and INPI_RNE_PASSWORD")
LOGIN_KEY = "enrichment:INPI_RNE:login"
LOGIN_CLAIM = "inpi-login"
LOGIN_RATE = Rate(4, 30.0)
LONGEST_LOGIN_TURN_SECONDS = 2.0
LOOK_AGAIN_SECONDS = 0.1
LOOK_FOR_SECONDS = 2.0
REFUSAL_HOLDS = timedelta(hours=1)
# By then everybody has been told to leave INPI alone.
REFUSAL_HOLDS_OTHERS_SECONDS = 60.0
# INPI's lasts an hour.
TOKEN_SERVES = timedelta(minutes=55)


@dataclass(frozen=True)
class Account:
    username: str
    password: str = field(repr=False)


class InpiLogin:
    """`shared` is None where nobody else is to have the token, nor a token of somebody else is to be taken."""

    def __init__(
        self,
        account: Account,
        http: RegistryHttp,
        *,
        now: Callable[[], datetime],
        limiter: RateLimiter,
        timeout_seconds: float,
        shared: SharedLogin | None = None,
    ) -> None:
        self._account, self._http = account, http
        self._now, self._limiter, self._shared = now, limiter, shared
        self._longest_seconds = LONGEST_LOGIN_TURN_SECONDS + timeout_seconds + 1.0
        self._token: str | None = None
        self._refused: tuple[datetime, SourceError] | None = None
        self._locks = PerLoop(asyncio.Lock)

    async def token(self) -> str | SourceError:
        return self._token or await self.token_instead_of(None)

    async def token_instead_of(self, old: str | None) -> str | SourceError:
        """`old` was refused. Another task may have got a new one while this one waited."""
        async with self._locks.here():
            if self._token is not None and self._token != old:
                return self._token
            self._token = None
            said = self._recent_refusal() or await self._found_or_new(old)
            if isinstance(said, str):
                self._token = said
            elif said.error_code is ErrorCode.AUTH_ERROR and self._recent_refusal() is None:
                self._refused = (self._now(), said)
            return said

    def _recent_refusal(self) -> SourceError | None:
        if self._refused is None or self._now() - self._refused[0] >= REFUSAL_HOLDS:
            return None
        return self._refused[1]

    async def _found_or_new(self, old: str | None) -> str | SourceError:
        if self._shared is None:
            return await self._log_in()
        if old is not None:
            await asyncio.to_thread(self._shared.tokens.forget, old)
        loop = asyncio.get_running_loop()
        until = loop.time() + LOOK_FOR_SECONDS
        while True:
            found = await asyncio.to_thread(_token_or_turn, self._shared, self._longest_seconds)
            if isinstance(found, Claim):
                return await self._log_in_for_all(self._shared, found)
            if found is not None:
                return found
            if loop.time() >= until:
                return _not_now("another process is about to, or was refused just now")
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _log_in_for_all(self, shared: SharedLogin, claim: Claim) -> str | SourceError:
        said: str | SourceError | None = None
        try:
            said = await self._log_in()
            if isinstance(said, str):
                await asyncio.to_thread(shared.tokens.keep, said, self._now() + TOKEN_SERVES)
            return said
        finally:
            is_refused = isinstance(said, SourceError) and said.error_code is ErrorCode.AUTH_ERROR
            await asyncio.to_thread(_let_others, shared, claim, is_refused=is_refused)

    async def _log_in(self) -> str | SourceError:
        turn = await asyncio.to_thread(self._turn)
        if turn is None:
            return _not_now("it was logged into too often for one more")
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


def _token_or_turn(shared: SharedLogin, seconds: float) -> str | Claim | None:
    """What somebody has got, or the turn to get it. None: somebody is about to."""
    token = shared.tokens.current()
    if token is not None or shared.claims.holder(LOGIN_CLAIM) is not None:
        return token
    claim = shared.claims.take(LOGIN_CLAIM, f"{socket.gethostname()}:{os.getpid()}", seconds)
    if claim is None:
        return None
    token = shared.tokens.current()
    if token is None:
        return claim
    shared.claims.release(claim)  # somebody was quicker
    return token


def _let_others(shared: SharedLogin, claim: Claim, *, is_refused: bool) -> None:
    """Nobody tries a password again that was refused just now."""
    if is_refused:
        shared.claims.extend(claim, REFUSAL_HOLDS_OTHERS_SECONDS)
    else:
        shared.claims.release(claim)


def _not_now(why: str) -> SourceError:
    message = f"We do not log into {INPI.name} now: {why}."
    return SourceError(error_code=ErrorCode.RATE_LIMIT, message=message, retryable=True, is_ours=True)
