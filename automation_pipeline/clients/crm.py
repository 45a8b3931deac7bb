"""The CRM gateway over HTTP: `fiches.ports.FicheSource`."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from automation_pipeline.clients.crm_payloads import DetailsPayload, without_nul
from automation_pipeline.clients.retrying import Retrying
from automation_pipeline.core.errors import NotFoundError, PermanentError, TransientError
from automation_pipeline.core.retry import Backoff, retry_after_seconds
from automation_pipeline.fiches.domain.fiche import FicheDetails

RETRYING = Retrying(attempts=3, backoff=Backoff(base_seconds=1, multiplier=2, cap_seconds=15, jitter=0.2))
TIMEOUT = httpx.Timeout(60, connect=10)


class CrmUnavailableError(TransientError):
    """The CRM gave no usable answer this time."""


class CrmAccessError(PermanentError):
    """The CRM does not accept our token."""


class CrmAnswerError(PermanentError):
    """The CRM answered something that we cannot understand or that refuses the request."""


class CrmFicheNotFoundError(NotFoundError):
    """The CRM does not know the fiche."""


def api_root(base_url: str) -> str:
    """Exactly one `/api` at the end, whatever was configured."""
    return base_url.rstrip("/").removesuffix("/api") + "/api"


def authorization(token: str | None) -> dict[str, str]:
    token = (token or "").strip()
    if not token:
        return {}
    return {"Authorization": token if token.lower().startswith("bearer ") else f"Bearer {token}"}


def path_of(fiche_id: str) -> str:
    """The id as one segment of a path, whatever it holds; dots are quoted too, for `..` would climb."""
    return f"/fiches/by-id/{quote(fiche_id, safe='').replace('.', '%2E')}"


class CrmClient:
    def __init__(
        self,
        base_url: str,
        token: str | None,
        *,
        now: Callable[[], datetime],
        connections: int = 100,
        retrying: Retrying = RETRYING,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._now = now
        self._retrying = retrying
        self._http = httpx.AsyncClient(
            base_url=api_root(base_url),
            headers=authorization(token),
            timeout=TIMEOUT,
            transport=transport,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )

    async def details(self, fiche_id: str) -> FicheDetails:
        return await self._retrying.call(lambda: self._details_once(fiche_id))

    async def check(self) -> None:
        with suppress(CrmFicheNotFoundError):
            await self._details_once("0")

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _details_once(self, fiche_id: str) -> FicheDetails:
        wanted = {"include_recordings": "true", "include_transcriptions": "false"}
        subject = f"fiche {fiche_id}"
        body = await self._get(path_of(fiche_id), wanted, subject)
        try:
            payload = DetailsPayload.model_validate_json(without_nul(body))
        except ValidationError as error:
            raise _not_understood(subject, error) from None
        if not payload.success or payload.information is None:
            raise CrmAnswerError(f"The CRM declined to give {subject}: {payload.message}")
        if payload.information.fiche_id != fiche_id:
            raise CrmAnswerError(f"The CRM answered with fiche {payload.information.fiche_id} for {subject}.")
        return payload.to_details(payload.information)

    async def _get(self, path: str, params: dict[str, str], subject: str) -> bytes:
        try:
            answer = await self._http.get(path, params=params)
        except httpx.InvalidURL:
            raise CrmAnswerError(
                f"The CRM cannot be asked for {subject}: its id does not fit into an address."
            ) from None
        except httpx.TimeoutException:
            raise CrmUnavailableError(f"The CRM did not answer in time for {subject}.") from None
        except httpx.HTTPError as error:
            # Only the kind: the error itself carries the URL and the headers.
            raise CrmUnavailableError(f"The CRM could not be reached for {subject} ({type(error).__name__}).") from None
        if answer.is_success:
            return answer.content
        raise self._refusal(answer, subject)

    def _refusal(self, answer: httpx.Response, subject: str) -> Exception:
        status = answer.status_code
        if status == 404:
            return CrmFicheNotFoundError(f"The CRM does not know {subject}.")
        if status in {401, 403}:
            return CrmAccessError(f"The CRM refused our token for {subject} (status {status}).")
        if status in {408, 429} or status >= 500:
            wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
            return CrmUnavailableError(f"The CRM answered {status} for {subject}.", retry_after_seconds=wait)
        return CrmAnswerError(f"The CRM answered {status} for {subject}.")


def _not_understood(subject: str, error: ValidationError) -> Exception:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return CrmUnavailableError(f"The CRM's answer for {subject} is not complete JSON.")
    where = ".".join(str(part) for part in first["loc"]) or "its top level"
    return CrmAnswerError(f"The CRM's answer for {subject} has an unexpected value at {where}.")
