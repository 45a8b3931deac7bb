"""Idempotency keys: a repeated request gets the first answer."""

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
        description="Under one key the work is done once; asking again answers the same. Kept for 7 days.",
    ),
]


@dataclass(frozen=True)
class Idempotent:
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


async def get_idempotent(request: Request, idempotency_key: IdempotencyKey = None) -> Idempotent:
    services, caller = (
        cast("Services", request.app.state.services),
        cast("Caller", request.state.caller),
    )
    result = [
        request.method.encode(),
        request.url.path.encode(),
        request.url.query.encode(),
        await request.body(),
    ]
    return Idempotent(caller.id, idempotency_key, b"\0".join(result), services)


OncePerKey = Annotated[Idempotent, Depends(get_idempotent)]
