"""Idempotency keys: a repeated request gets the response of the first one."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Header
from starlette.requests import Request
from starlette.responses import Response

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.idempotency import Answered, claim_key, keep_answer

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="A repeated request with the same key gets the same response, without repeated work. "
        "Keys are kept for 7 days.",
    ),
]


@dataclass(frozen=True)
class Idempotent:
    """Calls `work` at most once per key. The work and its response are stored in one transaction.
    Without a key, each call does the work."""

    caller: str
    key: str | None
    request: bytes
    services: Services

    def __call__(self, work: Callable[[], Response]) -> Response:
        if self.key is None:
            return work()
        fingerprint = hashlib.sha256(self.request).hexdigest()
        with self.services.database.single_transaction() as session:
            stored = claim_key(session, self.caller, self.key, fingerprint)
            if stored is None:
                response = work()
                text = bytes(response.body).decode()
                answer = Answered(fingerprint, response.status_code, text)
                keep_answer(session, self.caller, self.key, answer)
                return response
        if stored.fingerprint != fingerprint:
            raise ConflictError("The Idempotency-Key was used for another request before")
        return Response(
            stored.answer,
            stored.status,
            headers={"Idempotent-Replay": "true"},
            media_type="application/json",
        )


async def get_idempotent(request: Request, idempotency_key: IdempotencyKey = None) -> Idempotent:
    services = cast("Services", request.app.state.services)
    caller = cast("Caller", request.state.caller)
    url = request.url
    parts = [request.method.encode(), url.path.encode(), url.query.encode(), await request.body()]
    return Idempotent(caller.id, idempotency_key, b"\0".join(parts), services)


OncePerKey = Annotated[Idempotent, Depends(get_idempotent)]
