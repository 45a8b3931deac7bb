"""Idempotency keys: a repeated request gets the first answer."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Header
from starlette.requests import Request
from starlette.responses import Response

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.logs import log
from automation_pipeline.storage.idempotency import Answered, claim_key, keep_answer

# Beyond this number Dagster does the work.
AT_MOST = 20

_log = log(__name__)


class Attempts:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    async def wait_for(self, work: Coroutine[object, object, object], seconds: float) -> None:
        """Start the work and wait up to `seconds` for it. It continues afterwards, and its errors
        do not reach the caller."""
        if len(self._tasks) >= AT_MOST:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait({task}, timeout=seconds)

    async def end(self, seconds: float) -> None:
        """Cancel work that takes longer than `seconds` at shutdown. Another worker takes it over
        when its lease ends."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        left = tuple(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error(
                "An enrichment that the API began has failed; Dagster goes on with it",
                exc_info=error,
            )


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Under one key the work is done once; asking again answers the same. Kept for 7 days.",
    ),
]


@dataclass(frozen=True)
class Once:
    """`once(work)` returns the response of `work`. The work and its response are stored in one
    transaction. Without a key the work is simply done."""

    caller: str
    key: str | None
    request: bytes
    services: Services

    def __call__(self, work: Callable[[], Response]) -> Response:
        if self.key is None:
            return work()
        fingerprint = hashlib.sha256(self.request).hexdigest()
        with self.services.database.as_one() as session:
            before = claim_key(session, self.caller, self.key, fingerprint)
            if before is None:
                made = work()
                text = bytes(made.body).decode()
                keep_answer(
                    session, self.caller, self.key, Answered(fingerprint, made.status_code, text)
                )
                return made
        if before.fingerprint != fingerprint:
            raise ConflictError("The Idempotency-Key was used for another request before")
        return Response(
            before.answer,
            before.status,
            headers={"Idempotent-Replay": "true"},
            media_type="application/json",
        )


async def get_once(request: Request, idempotency_key: IdempotencyKey = None) -> Once:
    services, caller = (
        cast("Services", request.app.state.services),
        cast("Caller", request.state.caller),
    )
    said = [
        request.method.encode(),
        request.url.path.encode(),
        request.url.query.encode(),
        await request.body(),
    ]
    return Once(caller.id, idempotency_key, b"\0".join(said), services)


DoneOnce = Annotated[Once, Depends(get_once)]
