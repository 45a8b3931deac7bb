"""Functions that relay tests run in separate processes, each with its own connections."""

import asyncio
import os
import signal
from collections.abc import Mapping
from datetime import UTC, datetime

from automation_pipeline.clients.webhooks import WebhookClient
from automation_pipeline.core.webhooks import WebhookAnswer
from automation_pipeline_tests.automation.post import delivery_services, relay
from automation_pipeline_tests.simulator_control import NO_CERTIFICATES
from automation_pipeline_tests.storage.processes import opened


def client(origin: str) -> WebhookClient:
    return WebhookClient(
        now=lambda: datetime.now(UTC), allowed_origins=[origin], verify=NO_CERTIFICATES
    )


class KillsProcessAfterSending:
    """Kills its process after sending and before the delivery is recorded."""

    def __init__(self, inner: WebhookClient) -> None:
        self._inner = inner

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        await self._inner.send(url, body, headers)
        os.kill(os.getpid(), signal.SIGKILL)
        return await asyncio.Future()


def relay_all(database_url: str, origin: str) -> int:
    with opened(database_url) as database:
        return relay(delivery_services(client(origin), attempt_seconds=30.0), database).messages


def relay_and_die(database_url: str, origin: str, hold_seconds: float) -> None:
    with opened(database_url) as database:
        relay(delivery_services(KillsProcessAfterSending(client(origin))), database, hold_seconds)  # type: ignore[arg-type]
