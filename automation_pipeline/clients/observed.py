"""The HTTP client that all of ours share: each call is counted by its answer, and told at the level of debugging."""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TypedDict, Unpack

import httpx

from automation_pipeline.clients.connections import straight
from automation_pipeline.core.correlation import correlation_id
from automation_pipeline.core.logs import log
from automation_pipeline.core.meter import Meter

REQUEST_ID = "X-Request-Id"

_log = log(__name__)


@dataclass(frozen=True)
class Observation:
    """Whose calls are counted, and where. `tells_id`: the provider is ours to tell which request its call belongs to;
    a host whose address somebody else chose is told nothing, and its path, which may be a secret, is not logged."""

    provider: str
    meter: Meter
    tells_id: bool = False


class Options(TypedDict, total=False):
    base_url: str
    headers: dict[str, str]
    timeout: httpx.Timeout
    trust_env: bool


class ObservedClient(httpx.AsyncClient):
    """A redirect that is followed by hand is a call of its own. `connections`: at once, unless `transport` says."""

    def __init__(
        self,
        observation: Observation,
        *,
        connections: int = 100,
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._way = transport or straight(connections)
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        super().__init__(transport=self._way, limits=limits, **options)
        self._observation = observation

    async def send(self, request: httpx.Request, *, stream: bool = False, **more: object) -> httpx.Response:
        given = correlation_id()
        if given is not None and self._observation.tells_id:
            request.headers.setdefault(REQUEST_ID, given)
        began, status = time.perf_counter(), "error"
        try:
            answer = await self._sent(request, stream=stream, **more)
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        except Exception as error:  # whatever it is: counted, and raised on
            status = type(error).__name__
            raise
        else:
            status = str(answer.status_code)
        finally:
            self._tell(request, status, time.perf_counter() - began)
        return answer

    async def _sent(self, request: httpx.Request, *, stream: bool, **more: object) -> httpx.Response:
        """Past what httpx does for every call and ours have no use for: cookies, hooks, redirects that are followed."""
        if self._way is None or request.url.userinfo:
            return await super().send(request, stream=stream, **more)  # pyright: ignore[reportArgumentType]  its own options
        try:
            answer = await self._way.handle_async_request(request)
            await self._take(answer, request, stream=stream)
        except httpx.RequestError as error:
            error.request = request
            raise
        return answer

    async def _take(self, answer: httpx.Response, request: httpx.Request, *, stream: bool) -> None:
        answer.request = request
        answer.default_encoding = self._default_encoding
        try:
            if answer.has_redirect_location:
                answer.next_request = self._build_redirect_request(request, answer)
            if not stream:
                await answer.aread()
        except BaseException:  # a cancellation too
            await answer.aclose()
            raise

    def _tell(self, request: httpx.Request, status: str, seconds: float) -> None:
        provider, meter = self._observation.provider, self._observation.meter
        meter.count("provider_calls_total", provider=provider, status=status)
        meter.count("provider_call_seconds_total", seconds, provider=provider)
        if not _log.isEnabledFor(logging.DEBUG):
            return
        path = {"path": request.url.path} if self._observation.tells_id else {}
        _log.debug(
            "Called a provider",
            provider=provider,
            method=request.method,
            host=request.url.host,
            **path,
            status=status,
            seconds=round(seconds, 3),
        )
