"""Composition root: settings in, services out. The only module that knows which adapter serves which port.

Nothing is opened before it is asked for, and adapters that are not configured are not even imported.
"""

import asyncio
import os
import socket
from collections.abc import Coroutine
from functools import cache, cached_property
from typing import TypeVar

from automation_pipeline.core.clock import Clock, SystemClock
from automation_pipeline.core.coordination import Leases, RateLimiter
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import Settings, load_settings
from automation_pipeline.core.slots import Slots
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.leases import DatabaseLeases
from automation_pipeline.storage.rate_limits import DatabaseRateLimiter

Result = TypeVar("Result")


class Services:
    """Everything that stages need, one of each a process."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()

    @cached_property
    def database(self) -> Database:
        return Database(self.settings.database_url)

    @cached_property
    def leases(self) -> Leases:
        if self.settings.redis_url is None:
            return DatabaseLeases(self.database)
        from automation_pipeline.locks.redis_connection import connect  # noqa: PLC0415  only where Redis is used
        from automation_pipeline.locks.redis_leases import RedisLeases  # noqa: PLC0415  only where Redis is used

        return RedisLeases(connect(self.settings.redis_url))

    @cached_property
    def rate_limiter(self) -> RateLimiter:
        if self.settings.redis_url is None:
            return DatabaseRateLimiter(self.database)
        from automation_pipeline.locks.redis_connection import connect  # noqa: PLC0415  only where Redis is used
        from automation_pipeline.locks.redis_rate_limits import RedisRateLimiter  # noqa: PLC0415  only with Redis

        return RedisRateLimiter(connect(self.settings.redis_url))

    @cached_property
    def sales_list_slots(self) -> Slots:
        """Who may ask the CRM for a sales list, of all processes."""
        places = self.settings.fiche_sales_search_concurrency
        return Slots(self.leases, "crm-sales-list", places, owner=f"{socket.gethostname()}:{os.getpid()}")

    @cached_property
    def crm(self) -> FicheSource:
        if self.settings.fiche_api_base_url is None:
            raise PermanentError("FICHE_API_BASE_URL is not set: it is the address of the CRM gateway.")
        from automation_pipeline.clients.crm import CrmClient  # noqa: PLC0415  httpx only where it is used

        token = self.settings.fiche_api_auth_token
        return CrmClient(
            self.settings.fiche_api_base_url,
            token.get_secret_value() if token else None,
            now=self.clock.now,
            connections=self.settings.fiche_fetch_concurrency,
            timeout_seconds=self.settings.fiche_api_timeout_seconds,
        )

    @cached_property
    def _loop(self) -> asyncio.Runner:
        return asyncio.Runner()

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Run async work to its end. The loop lives as long as the process, and so do the clients' connections."""
        return self._loop.run(work)


@cache
def services() -> Services:
    """The services of this process, as its environment says."""
    return Services(load_settings())
