"""The client of the CRM gateway. It implements `FicheSource` of `fiches.models.fiches`."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from typing import Annotated, Literal, Self, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from automation_pipeline.clients.http import (
    MEGABYTE,
    BodyRefusedError,
    HttpAnswer,
    HttpClient,
    Observation,
    Payload,
    first_fault,
    without_nul,
)
from automation_pipeline.core.errors import NotFoundError, PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import (
    Backoff,
    Retrying,
    is_transient_status,
    retry_after_seconds,
)
from automation_pipeline.fiches.models.days import crm_instant
from automation_pipeline.fiches.models.fiches import (
    CrmFiche,
    Recording,
    SalesList,
    SalesListEntry,
    recording_uuid,
)
from automation_pipeline.fiches.models.sections import (
    Alerte,
    AutreContrat,
    Commentaire,
    Conjoint,
    Count,
    Document,
    ElementsSouscription,
    Enfant,
    Information,
    Key,
    Mail,
    Prospect,
    Reclamation,
    RendezVous,
    Section,
    Tarification,
    TextMap,
)


def _instant(text: object) -> object:
    return crm_instant(text) if isinstance(text, str) else text


def _id_text(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return (value.strip() or None) if isinstance(value, str) else value


Instant: TypeAlias = Annotated[datetime, BeforeValidator(_instant)]
OptionalInstant: TypeAlias = Annotated[
    datetime | None,
    BeforeValidator(lambda text: _instant(text) if str(text).strip() else None),
]
Name: TypeAlias = Annotated[Key, Field(min_length=1)]
FicheId: TypeAlias = Annotated[Key | None, BeforeValidator(_id_text)]


class RecordingPayload(Payload):
    call_id: Name
    start_time: Instant
    duration_seconds: Count
    direction: str
    from_number: str
    to_number: str
    answered: bool
    recording_url: str | None

    def to_recording(self) -> Recording:
        url = (self.recording_url or "").strip()
        return Recording(
            call_id=self.call_id,
            url=url,
            started_at=self.start_time,
            duration_seconds=self.duration_seconds,
            direction=self.direction,
            from_number=self.from_number,
            to_number=self.to_number,
            answered=self.answered,
            uuid=recording_uuid(url),
        )


class DetailsPayload(Section):
    """The details of a fiche. If `success` is false, there is no `information`."""

    success: bool
    message: str
    information: Information | None
    prospect: Prospect | None
    conjoint: Conjoint | None
    enfants: tuple[Enfant, ...]
    mails: tuple[Mail, ...]
    rendez_vous: tuple[RendezVous, ...]
    commentaires: tuple[Commentaire, ...]
    elements_souscription: ElementsSouscription | None
    tarification: tuple[Tarification, ...]
    reclamations: tuple[Reclamation, ...]
    autres_contrats: tuple[AutreContrat, ...]
    documents: tuple[Document, ...]
    alertes: tuple[Alerte, ...]
    raw_sections: TextMap
    recordings: tuple[RecordingPayload, ...]

    def to_details(self, information: Information) -> CrmFiche:
        return CrmFiche(
            information=information,
            prospect=self.prospect,
            conjoint=self.conjoint,
            enfants=self.enfants,
            mails=self.mails,
            rendez_vous=self.rendez_vous,
            commentaires=self.commentaires,
            elements_souscription=self.elements_souscription,
            tarification=self.tarification,
            reclamations=self.reclamations,
            autres_contrats=self.autres_contrats,
            documents=self.documents,
            alertes=self.alertes,
            raw_sections=self.raw_sections,
            recordings=tuple(recording.to_recording() for recording in self.recordings),
            rest=self.rest(),
        )


class RefusalPayload(Payload):
    """A response without success, which may lack whole sections."""

    success: Literal[False]
    message: str | None = None


class SummaryPayload(Payload):
    """A fiche of the sales list. The id has one of three names and is a string or a number."""

    fiche_id_camel: FicheId = Field(default=None, alias="ficheId")
    fiche_id: FicheId = None
    id: FicheId = None
    cle: str | None
    nom: str
    prenom: str
    telephone: str
    telephone_2: str | None
    email: str
    statut: str
    date_insertion: OptionalInstant
    date_modification: OptionalInstant
    recordings: tuple[RecordingPayload, ...] = ()

    @property
    def any_id(self) -> str | None:
        return self.fiche_id_camel or self.fiche_id or self.id

    @model_validator(mode="after")
    def _require_id(self) -> Self:
        if self.any_id is None:
            raise ValueError("has no id")
        return self

    def to_summary(self) -> SalesListEntry:
        return SalesListEntry(
            fiche_id=str(self.any_id),
            cle=self.cle,
            nom=self.nom,
            prenom=self.prenom,
            telephone=self.telephone,
            telephone_2=self.telephone_2,
            email=self.email,
            statut=self.statut,
            inserted_at=self.date_insertion,
            modified_at=self.date_modification,
            recordings=tuple(recording.to_recording() for recording in self.recordings),
        )


class SalesPayload(Payload):
    """`success` is usually absent. If it is false, the fiches do not count."""

    success: bool = True
    message: str | None = None
    fiches: tuple[SummaryPayload, ...]
    total: Count

    @property
    def missing(self) -> int:
        """How many of the fiches in `total` the CRM did not send."""
        return max(self.total - len(self.fiches), 0)

    def to_sales_list(self, day: date) -> SalesList:
        by_id: dict[str, SalesListEntry] = {}
        for payload in self.fiches:
            fiche = payload.to_summary()
            by_id.setdefault(fiche.fiche_id, fiche)
        return SalesList(day, listed=len(self.fiches), fiches=tuple(by_id.values()))


RETRYING = Retrying(
    attempts=3, backoff=Backoff(base_seconds=1, multiplier=2, cap_seconds=15, jitter=0.2)
)
CONNECT_SECONDS = 10.0
# The limit for a whole answer, as a multiple of the timeout for a single read.
TOTAL_FACTOR = 5
# The largest response is a sales list: 20 MB for a day with ten thousand fiches and their calls.
MAX_BYTES = 100 * MEGABYTE
SALE_STATUS = "53"

Kind = TypeVar("Kind", bound=BaseModel)


def api_root(base_url: str) -> str:
    """The base URL with exactly one `/api` at its end."""
    return base_url.rstrip("/").removesuffix("/api") + "/api"


def authorization(token: str | None) -> dict[str, str]:
    token = (token or "").strip()
    if not token:
        return {}
    return {"Authorization": token if token.lower().startswith("bearer ") else f"Bearer {token}"}


def fiche_path(fiche_id: str) -> str:
    """The id is one path segment: dots are quoted too, because `..` would leave the folder."""
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
            Observation("crm", meter or Meter(), is_trusted=True),
            base_url=api_root(base_url),
            headers=authorization(token),
            timeout=httpx.Timeout(timeout_seconds, connect=min(timeout_seconds, CONNECT_SECONDS)),
            transport=transport,
            connections=connections,
        )

    async def details(self, fiche_id: str) -> CrmFiche:
        return await self._retrying.call(lambda: self._details_once(fiche_id))

    async def sales_list(self, day: date) -> SalesList:
        return await self._retrying.call(lambda: self._sales_list_once(day))

    async def check(self) -> None:
        with suppress(NotFoundError):
            await self._details_once("0")

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _details_once(self, fiche_id: str) -> CrmFiche:
        params = {"include_recordings": "true", "include_transcriptions": "false"}
        subject = f"fiche {fiche_id}"
        body = await self._get(fiche_path(fiche_id), params, subject)
        payload = _parse(DetailsPayload, body, subject)
        if not payload.success or payload.information is None:
            raise _declined_error(subject, payload.message)
        if payload.information.fiche_id != fiche_id:
            raise PermanentError(
                f"The CRM answered with fiche {payload.information.fiche_id} for {subject}."
            )
        return payload.to_details(payload.information)

    async def _sales_list_once(self, day: date) -> SalesList:
        params = {
            "start_date": day.isoformat(),
            "end_date": day.isoformat(),
            "status_id": SALE_STATUS,
            "include_recordings": "true",
            "include_transcriptions": "false",
        }
        subject = f"the sales list of {day}"
        try:
            body = await self._get("/fiches/sales-with-calls", params, subject)
        except NotFoundError:
            raise PermanentError(f"The CRM answered 404 for {subject}.") from None
        payload = _parse(SalesPayload, body, subject)
        if not payload.success:
            raise _declined_error(subject, payload.message)
        if payload.missing:
            raise TransientError(f"The CRM left {payload.missing} fiches out of {subject}.")
        return payload.to_sales_list(day)

    async def _get(self, path: str, params: dict[str, str], subject: str) -> bytes:
        try:
            async with asyncio.timeout(self._total_seconds):
                answer = await self._http.call(
                    self._http.build_request("GET", path, params=params), MAX_BYTES
                )
        except httpx.InvalidURL:
            raise PermanentError(
                f"The CRM cannot be asked for {subject}: its id does not fit into an address."
            ) from None
        except (TimeoutError, httpx.TimeoutException):
            raise TransientError(f"The CRM did not answer in time for {subject}.") from None
        except BodyRefusedError as error:
            raise PermanentError(
                f"The CRM's answer for {subject} cannot be read: {error}."
            ) from None
        except httpx.HTTPError as error:
            # Only the type's name: the error itself contains the URL and the headers.
            raise TransientError(
                f"The CRM could not be reached for {subject} ({type(error).__name__})."
            ) from None
        if answer.is_success:
            return answer.body
        raise self._refusal(answer, subject)

    def _refusal(self, answer: HttpAnswer, subject: str) -> Exception:
        status = answer.status
        if status == 404:
            return NotFoundError(f"The CRM does not know {subject}.")
        if status in {401, 403}:
            return PermanentError(f"The CRM refused the token for {subject} (status {status}).")
        if is_transient_status(status):
            wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
            return TransientError(
                f"The CRM answered {status} for {subject}.", retry_after_seconds=wait
            )
        return PermanentError(f"The CRM answered {status} for {subject}.")


def _parse(kind: type[Kind], body: bytes, subject: str) -> Kind:
    document = without_nul(body)
    try:
        return kind.model_validate_json(document)
    except ValidationError as error:
        try:
            refusal = RefusalPayload.model_validate_json(document)
        except ValidationError:
            raise _format_error(subject, error) from None
        raise _declined_error(subject, refusal.message) from None


def _declined_error(subject: str, message: str | None) -> Exception:
    return PermanentError(f"The CRM declined to give {subject}: {message or 'it gives no reason.'}")


def _format_error(subject: str, error: ValidationError) -> Exception:
    """Truncated JSON and the error page of a gateway are transient errors."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        # The parser's message for a document that ends too early.
        what = "is cut short" if "EOF while parsing" in first["msg"] else "is not JSON"
        return TransientError(f"The CRM's answer for {subject} {what}.")
    where = first_fault(error)
    return PermanentError(f"The CRM's answer for {subject} has an unexpected value at {where}.")
