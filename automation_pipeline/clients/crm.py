"""The CRM gateway over HTTP: `fiches.ports.FicheSource`."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from typing import TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from automation_pipeline.clients.crm_payloads import DetailsPayload, RefusalPayload, SalesPayload, without_nul
from automation_pipeline.clients.http import MEGABYTE, Answer, BodyRefusedError, HttpClient, Observation
from automation_pipeline.core.errors import NotFoundError, PermanentError, TransientError
from automation_pipeline.core.meter import Meter
from automation_pipeline.core.retry import Backoff, retry_after_seconds
from automation_pipeline.core.retrying import Retrying
from automation_pipeline.fiches.domain.fiche import FicheDetails
from automation_pipeline.fiches.domain.sales import SalesList

RETRYING = Retrying(attempts=3, backoff=Backoff(base_seconds=1, multiplier=2, cap_seconds=15, jitter=0.2))
CONNECT_SECONDS = 10.0
# A whole answer may take so many times as long as one silence in it.
TOTAL_FACTOR = 5
# A sales list is the largest: of a day with ten thousand fiches and their calls it has 20 MB.
MOST_BYTES = 100 * MEGABYTE
SALE_STATUS = "53"

Payload = TypeVar("Payload", bound=BaseModel)


class CrmUnavailableError(TransientError):
    """The CRM gave no usable answer this time."""


class CrmAccessError(PermanentError):
    """The CRM does not accept our token."""


class CrmAnswerError(PermanentError):
    """The CRM answered something that we cannot understand or that refuses the request."""


class CrmTruncatedError(CrmUnavailableError):
    """The CRM's answer ends in the middle."""


class CrmMalformedError(CrmUnavailableError):
    """The CRM's answer is not JSON: a page of some gateway, as a rule."""


class CrmMistypedError(CrmAnswerError):
    """The CRM's answer is not made as agreed."""


class CrmIncompleteListError(CrmUnavailableError):
    """The CRM sent fewer fiches than it says there are."""


class CrmDeclinedError(CrmAnswerError):
    """The CRM says that it did not succeed."""


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
    def __init__(  # noqa: PLR0913  what a connection needs, by name
        self,
        base_url: str,
        token: str | None,
        *,
        now: Callable[[], datetime],
        connections: int = 100,
        timeout_seconds: float = 60,
        retrying: Retrying = RETRYING,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.at_once = connections
        self._now = now
        self._retrying = retrying
        self._total_seconds = TOTAL_FACTOR * timeout_seconds
        self._http = HttpClient(
            Observation("crm", meter or Meter(), tells_id=True),
            base_url=api_root(base_url),
            headers=authorization(token),
            timeout=httpx.Timeout(timeout_seconds, connect=min(timeout_seconds, CONNECT_SECONDS)),
            transport=transport,
            connections=connections,
        )

    async def details(self, fiche_id: str) -> FicheDetails:
        return await self._retrying.call(lambda: self._details_once(fiche_id))

    async def sales_list(self, day: date) -> SalesList:
        return await self._retrying.call(lambda: self._sales_list_once(day))

    async def check(self) -> None:
        with suppress(CrmFicheNotFoundError):
            await self._details_once("0")

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _details_once(self, fiche_id: str) -> FicheDetails:
        wanted = {"include_recordings": "true", "include_transcriptions": "false"}
        subject = f"fiche {fiche_id}"
        body = await self._get(path_of(fiche_id), wanted, subject)
        payload = _understood(DetailsPayload, body, subject)
        if not payload.success or payload.information is None:
            raise _declined(subject, payload.message)
        if payload.information.fiche_id != fiche_id:
            raise CrmAnswerError(f"The CRM answered with fiche {payload.information.fiche_id} for {subject}.")
        return payload.to_details(payload.information)

    async def _sales_list_once(self, day: date) -> SalesList:
        wanted = {
            "start_date": day.isoformat(),
            "end_date": day.isoformat(),
            "status_id": SALE_STATUS,
            "include_recordings": "true",
            "include_transcriptions": "false",
        }
        subject = f"the sales list of {day}"
        try:
            body = await self._get("/fiches/sales-with-calls", wanted, subject)
        except CrmFicheNotFoundError:
            raise CrmAnswerError(f"The CRM answered 404 for {subject}.") from None
        payload = _understood(SalesPayload, body, subject)
        if not payload.success:
            raise _declined(subject, payload.message)
        if payload.missing:
            raise CrmIncompleteListError(f"The CRM left {payload.missing} fiches out of {subject}.")
        return payload.to_sales_list(day)

    async def _get(self, path: str, params: dict[str, str], subject: str) -> bytes:
        try:
            async with asyncio.timeout(self._total_seconds):
                answer = await self._http.call(self._http.build_request("GET", path, params=params), MOST_BYTES)
        except httpx.InvalidURL:
            raise CrmAnswerError(
                f"The CRM cannot be asked for {subject}: its id does not fit into an address."
            ) from None
        except (TimeoutError, httpx.TimeoutException):
            raise CrmUnavailableError(f"The CRM did not answer in time for {subject}.") from None
        except BodyRefusedError as error:
            raise CrmAnswerError(f"The CRM's answer for {subject} cannot be read: {error}.") from None
        except httpx.HTTPError as error:
            # Only the kind: the error itself carries the URL and the headers.
            raise CrmUnavailableError(f"The CRM could not be reached for {subject} ({type(error).__name__}).") from None
        if answer.is_success:
            return answer.body
        raise self._refusal(answer, subject)

    def _refusal(self, answer: Answer, subject: str) -> Exception:
        status = answer.status
        if status == 404:
            return CrmFicheNotFoundError(f"The CRM does not know {subject}.")
        if status in {401, 403}:
            return CrmAccessError(f"The CRM refused our token for {subject} (status {status}).")
        if status in {408, 429} or status >= 500:
            wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
            return CrmUnavailableError(f"The CRM answered {status} for {subject}.", retry_after_seconds=wait)
        return CrmAnswerError(f"The CRM answered {status} for {subject}.")


def _understood(kind: type[Payload], body: bytes, subject: str) -> Payload:
    document = without_nul(body)
    try:
        return kind.model_validate_json(document)
    except ValidationError as error:
        raise _refused(document, subject) or _not_understood(subject, error) from None


def _refused(document: bytes, subject: str) -> Exception | None:
    try:
        refusal = RefusalPayload.model_validate_json(document)
    except ValidationError:
        return None
    return _declined(subject, refusal.message)


def _declined(subject: str, message: str | None) -> Exception:
    return CrmDeclinedError(f"The CRM declined to give {subject}: {message or 'it says no reason.'}")


def _not_understood(subject: str, error: ValidationError) -> Exception:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        # The parser's own words for an answer that stops before its end.
        cut = "EOF while parsing" in first["msg"]
        kind, what = (CrmTruncatedError, "is cut short") if cut else (CrmMalformedError, "is not JSON")
        return kind(f"The CRM's answer for {subject} {what}.")
    where = ".".join(str(part) for part in first["loc"]) or "its top level"
    return CrmMistypedError(f"The CRM's answer for {subject} has an unexpected value at {where}.")
