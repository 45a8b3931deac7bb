"""HTTPS_CALL: one request to an address that somebody chose."""

import json
from collections.abc import Callable, Mapping
from typing import cast

from automation_pipeline.core.addresses import origin_of
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import parse
from automation_pipeline.org_jobs.domain.endings import AttemptEnd, succeeded
from automation_pipeline.org_jobs.domain.failures import VALIDATION
from automation_pipeline.org_jobs.domain.https_payload import HttpsCallPayload
from automation_pipeline.org_jobs.domain.retry_policy import FAILED
from automation_pipeline.org_jobs.domain.secrets import secrets_of, variable_of, with_secrets
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.ports import AskedJob, HttpsAnswer, HttpsCaller, HttpsRequest

KEY_HEADER = "Idempotency-Key"
# Refusals that are about the moment, not about the request.
_PASSING = frozenset({408, 425, 429})


class HttpsCall:
    """The key of the run goes along as Idempotency-Key, the same in all its attempts: a receiver that has done it, and
    whose answer got lost, can tell that it is asked for the same again. What the receiver refuses, or sends elsewhere,
    is not tried again; what it fails at is."""

    def __init__(self, open_caller: Callable[[], HttpsCaller], environment: Mapping[str, str]) -> None:
        self._open_caller, self._environment = open_caller, environment

    async def work(self, asked: AskedJob) -> AttemptEnd:
        payload = parse(HttpsCallPayload, asked.payload, "The stored payload is refused")
        request = _request(payload, asked, self._environment)
        return _end(payload, origin_of(request.url), await self._open_caller().call(request))


def _request(payload: HttpsCallPayload, asked: AskedJob, environment: Mapping[str, str]) -> HttpsRequest:
    secrets = secrets_of(asked.payload, asked.org_id, environment)
    _refuse_unsendable(secrets, asked.org_id)
    filled = cast("dict[str, object]", with_secrets(asked.payload, secrets))
    headers = {KEY_HEADER: asked.key, **cast("dict[str, str]", filled.get("headers", {}))}
    body = None
    if payload.body is not None:
        body = json.dumps(filled["body"], ensure_ascii=False, separators=(",", ":")).encode()
        if "content-type" not in map(str.lower, headers):
            headers["Content-Type"] = "application/json"
    return HttpsRequest(
        method=payload.method,
        url=str(filled["url"]),
        headers=headers,
        body=body,
        timeout_seconds=payload.timeout_seconds,
        secrets=tuple(secrets.values()),
    )


def _refuse_unsendable(secrets: Mapping[str, str], org_id: str) -> None:
    for name, secret in secrets.items():
        if not (secret.isascii() and secret.isprintable()):
            raise InvalidInputError(f"{variable_of(org_id, name)} holds characters that cannot be sent.")


def _end(payload: HttpsCallPayload, origin: str, answer: HttpsAnswer) -> AttemptEnd:
    result = {"status": answer.status, "text": answer.text}
    if payload.is_good(answer.status):
        return succeeded(result)
    is_for_good = 300 <= answer.status < 500 and answer.status not in _PASSING
    return AttemptEnd(
        status=RunState.FAILED,
        error_code=VALIDATION if is_for_good else FAILED,
        error=f"{origin} answered {answer.status}.",
        result=result,
    )
