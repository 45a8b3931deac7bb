"""What the processes of the relay's tests do, each with its own connection to the database and to
the receiver."""

import asyncio
import os
import signal
from collections.abc import Mapping
from datetime import UTC, datetime

from automation_pipeline.clients.webhooks import WebhookClient
from automation_pipeline.core.webhooks import WebhookAnswer
from automation_pipeline_tests.automation.post import a_post_office, relay
from automation_pipeline_tests.outside import NO_CERTIFICATES
from automation_pipeline_tests.storage.processes import opened


def client(origin: str) -> WebhookClient:
    return WebhookClient(
        now=lambda: datetime.now(UTC), allowed_origins=[origin], verify=NO_CERTIFICATES
    )


class DiesAfterwards:
    """Sends, and is killed before anybody can write it down."""

    def __init__(self, inner: WebhookClient) -> None:
        self._inner = inner

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        await self._inner.send(url, body, headers)
        os.kill(os.getpid(), signal.SIGKILL)
        return await asyncio.Future()


def relay_all(database_url: str, origin: str) -> int:
    with opened(database_url) as database:
        return relay(a_post_office(client(origin)), database).messages


def relay_and_die(database_url: str, origin: str, hold_seconds: float) -> None:
    with opened(database_url) as database:
        relay(a_post_office(DiesAfterwards(client(origin))), database, hold_seconds)  # type: ignore[arg-type]
