"""The clients of two registers of companies, Recherche d'entreprises and API Entreprise, and the base
that `clients.inpi` shares with them. They implement `enrichment.models.Registry`."""

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, NotRequired, TypedDict, Unpack, cast
from urllib.parse import quote

import httpx
from pydantic import SecretStr
from pydantic_core import from_json

from automation_pipeline.clients.http import (
    MEGABYTE,
    BodyRefusedError,
    HttpClient,
    Observation,
    PerLoop,
    without_nul,
)
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.enrichment.models import (
    CompanyFields,
    ErrorCode,
    SourceError,
    SourceRecord,
)
from automation_pipeline.enrichment.rules import normalisation as normal

# --- Answers

Document = dict[str, object]
Scalar = str | int | float | bool | None


class RegistryFormatError(Exception):
    """The response is not in the agreed format. The message does not quote the response."""


class AnswerObject:
    """An object of an answer, whose values are read one by one. Missing values are None; a value of
    another type raises RegistryFormatError."""

    def __init__(
        self, values: object, path: tuple[str, ...] = (), read: list[object] | None = None
    ) -> None:
        if not isinstance(values, dict):
            raise _unexpected(path)
        self._values, self._path = cast("Document", values), path
        self._read = [] if read is None else read

    @property
    def is_masked(self) -> bool:
        """Whether the register has masked any value that was read, in this or another object of the
        answer."""
        return any(map(normal.is_masked, self._read))

    def has(self, name: str) -> bool:
        """Whether the value is present and not `[]`, which INPI sends for an empty object."""
        return self._values.get(name) not in (None, [])

    def value(self, name: str) -> Scalar:
        value = self._values.get(name)
        if isinstance(value, dict | list):
            raise _unexpected((*self._path, name))
        self._read.append(value)
        return cast("Scalar", value)

    def text(self, name: str) -> str | None:
        return normal.text(self.value(name))

    def at(self, *names: str) -> "AnswerObject":
        section = self
        for name in names:
            section = section.required(name) if section.has(name) else section._inner(name, {})
        return section

    def required(self, name: str) -> "AnswerObject":
        return self._inner(name, self._values.get(name))

    def entries(self, name: str, max_length: int, default: object = None) -> list[object]:
        found = self._values.get(name, default)
        if not isinstance(found, list) or len(cast("list[object]", found)) > max_length:
            raise _unexpected((*self._path, name))
        entries = cast("list[object]", found)
        self._read.extend(entries)
        return entries

    def objects(self, name: str, max_length: int, default: object = None) -> list["AnswerObject"]:
        found = self.entries(name, max_length, default)
        return [self._inner(f"{name}.{number}", entry) for number, entry in enumerate(found)]

    def _inner(self, name: str, values: object) -> "AnswerObject":
        return AnswerObject(values, (*self._path, name), self._read)


def _unexpected(path: tuple[str, ...]) -> RegistryFormatError:
    return RegistryFormatError(f"unexpected value at {'.'.join(path) or 'its top level'}")


def parse_answer(body: bytes | None) -> tuple[AnswerObject, Document]:
    """The document in two forms: to read, and to store."""
    if body is None:
        raise RegistryFormatError("it is larger than 1 MB, or compressed")
    try:
        document = cast("Document", from_json(without_nul(body), allow_inf_nan=False))
        # A number such as 1e999 becomes infinity, which the database cannot store.
        json.dumps(document, allow_nan=False)
    except ValueError:
        raise RegistryFormatError("it is not JSON") from None
    return AnswerObject(document), document


def without_entries(names: Collection[str], value: object) -> object:
    """The document without the entries of these names, at any depth."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return {name: without_entries(names, inner) for name, inner in entries if name not in names}
    if isinstance(value, list):
        return [without_entries(names, inner) for inner in cast("list[object]", value)]
    return value


# --- Calls

MAX_BYTES = MEGABYTE
USER_AGENT = "automation-pipeline (company enrichment)"

_BY_STATUS: Mapping[int, tuple[ErrorCode, str]] = {
    400: (ErrorCode.INTERNAL_ERROR, "refuses the request"),
    401: (ErrorCode.AUTH_ERROR, "does not accept the credentials"),
    403: (ErrorCode.FORBIDDEN, "does not permit the request"),
    404: (ErrorCode.NOT_FOUND, "does not know the company"),
    408: (ErrorCode.SOURCE_UNAVAILABLE, "gave up waiting for the request"),
    409: (ErrorCode.SOURCE_UNAVAILABLE, "is still busy with the same request"),
    422: (ErrorCode.INTERNAL_ERROR, "refuses the request"),
    429: (ErrorCode.RATE_LIMIT, "was called too often"),
    451: (ErrorCode.FORBIDDEN, "must not answer for legal reasons"),
}
_RETRYABLE = frozenset(
    {ErrorCode.TIMEOUT, ErrorCode.SOURCE_UNAVAILABLE, ErrorCode.RATE_LIMIT, ErrorCode.UPSTREAM_5XX}
)


@dataclass(frozen=True)
class RegistryInfo:
    """The names of a register: in messages, in metrics, and of its settings."""

    name: str
    provider: str
    address_setting: str
    access_settings: str


@dataclass(frozen=True)
class RegistryAnswer:
    """`body` is None if it is larger than MAX_BYTES or compressed."""

    status: int
    body: bytes | None
    retry_after_seconds: float | None = None


class RegistryCallError(Exception):
    """A call that failed, with the value that `RegistryClient.fetch` returns for it."""

    def __init__(self, error: SourceError) -> None:
        super().__init__(error.message)
        self.error = error


def call_error(
    code: ErrorCode, message: str, status: int | None = None, retry_after: float | None = None
) -> RegistryCallError:
    return RegistryCallError(
        SourceError(
            error_code=code,
            message=message,
            http_status=status,
            retryable=code in _RETRYABLE,
            retry_after_seconds=retry_after,
        )
    )


def check_error(error: SourceError) -> AutomationError:
    """The error that `check` of a client raises."""
    if error.retryable:
        return TransientError(error.message, retry_after_seconds=error.retry_after_seconds)
    return PermanentError(error.message)


class ConnectionOptions(TypedDict):
    now: Callable[[], datetime]
    timeout_seconds: NotRequired[float]
    meter: NotRequired[Meter | None]
    transport: NotRequired[httpx.AsyncBaseTransport | None]


class RegistryClient(ABC):
    """The base of the clients. It has connections per event loop."""

    info: ClassVar[RegistryInfo]

    def __init__(
        self,
        base_url: str,
        *,
        now: Callable[[], datetime],
        timeout_seconds: float = 5.0,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._now, self._timeout_seconds = now, timeout_seconds
        observation = Observation(self.info.provider, meter or Meter(), is_trusted=True)
        self._clients = PerLoop(
            lambda: HttpClient(
                observation,
                headers={"Accept": "application/json", "User-Agent": USER_AGENT},
                timeout=httpx.Timeout(timeout_seconds, pool=None),
                transport=transport,
            )
        )

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError:
        try:
            return await self._record(siren, siret)
        except RegistryCallError as failure:
            return failure.error
        except RegistryFormatError as problem:
            message = f"The answer of {self.info.name} is not understood: {problem}."
            return call_error(ErrorCode.INTERNAL_ERROR, message, 200).error

    @abstractmethod
    async def _record(self, siren: str, siret: str | None) -> SourceRecord:
        """Raises RegistryCallError or RegistryFormatError."""

    async def aclose(self) -> None:
        client = self._clients.pop()
        if client is not None:
            await client.aclose()

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> RegistryAnswer:
        """Return any response. Raises RegistryCallError without a response. No error is chained,
        because httpx's errors contain the headers with the token."""
        name, setting = self.info.name, self.info.address_setting
        headers = {"Authorization": f"Bearer {token}"} if token else None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                client, url = self._clients.current(), self._base_url + path
                request = client.build_request(
                    method, url, params=params, json=json, headers=headers
                )
                answer = await client.call(request, MAX_BYTES)
        except (TimeoutError, httpx.TimeoutException):
            message = f"{name} did not answer within {self._timeout_seconds:g} s."
            raise call_error(ErrorCode.TIMEOUT, message) from None
        except BodyRefusedError:
            return RegistryAnswer(200, None)
        except httpx.HTTPError as error:
            message = f"{name} could not be reached ({type(error).__name__}; check {setting})."
            raise call_error(ErrorCode.SOURCE_UNAVAILABLE, message) from None
        except (UnicodeError, httpx.InvalidURL):
            message = f"{name} cannot be looked up (check {setting})."
            raise call_error(ErrorCode.SOURCE_UNAVAILABLE, message) from None
        wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
        return RegistryAnswer(answer.status, answer.body, wait)

    def refusal(self, answer: RegistryAnswer, hint: str = "") -> RegistryCallError:
        status, info = answer.status, self.info
        if status in _BY_STATUS:
            code, problem = _BY_STATUS[status]
        elif status >= 500:
            code, problem = ErrorCode.UPSTREAM_5XX, "reports a server error"
        else:
            code, problem = ErrorCode.INTERNAL_ERROR, "gave an unexpected answer"
            hint = hint or f"check {info.address_setting}"
        if code is ErrorCode.AUTH_ERROR:
            hint = hint or f"check {info.access_settings}"
        message = f"{info.name} {problem} (status {status}{'; ' if hint else ''}{hint})."
        return call_error(code, message, status, answer.retry_after_seconds)


# --- Recherche d'entreprises, which needs no credentials

SEARCH = RegistryInfo(
    "the Recherche d'entreprises",
    "company_search",
    "RECHERCHE_ENTREPRISES_BASE_URL",
    "RECHERCHE_ENTREPRISES_BASE_URL",
)
INCLUDED = "siege,complements,finances"
# The government's IT directorate, which publishes the service.
SEARCH_PROBE_SIREN = "130025265"
MAX_RESULTS = 25
MAX_ESTABLISHMENTS = 100
# These depend on the query, or change daily although the company does not.
_VOLATILE_IN_SEARCH = (
    "score",
    "matching_etablissements",
    "date_mise_a_jour",
    "date_mise_a_jour_insee",
    "date_mise_a_jour_rne",
)


class CompanySearch(RegistryClient):
    info = SEARCH

    async def _record(self, siren: str, siret: str | None) -> SourceRecord:
        params = {
            "q": siret or siren,
            "page": "1",
            "per_page": "1",
            "minimal": "true",
            "include": INCLUDED if siret is None else f"{INCLUDED},matching_etablissements",
        }
        answer = await self.send("GET", "/search", params=params)
        if answer.status != 200:
            raise self.refusal(answer)
        company = search_record(answer.body, siren, siret)
        if company is None:
            what = "company" if siret is None else "establishment"
            raise call_error(ErrorCode.NOT_FOUND, f"{SEARCH.name} does not know the {what}.", 200)
        return company

    async def check(self) -> None:
        result = await self.fetch(SEARCH_PROBE_SIREN, None)
        if isinstance(result, SourceError) and (
            result.error_code is not ErrorCode.NOT_FOUND or result.http_status != 200
        ):
            raise check_error(result)


def search_record(body: bytes | None, siren: str, siret: str | None = None) -> SourceRecord | None:
    """None if the first result is another company or lacks the establishment. Raises
    RegistryFormatError if the answer has another format."""
    answer, _ = parse_answer(body)
    results = answer.objects("results", MAX_RESULTS)
    if not results or results[0].text("siren") != siren:
        return None
    company, seat = results[0], results[0].at("siege")
    establishments = [
        seat,
        *company.objects("matching_etablissements", MAX_ESTABLISHMENTS, default=[]),
    ]
    chosen = next((one for one in establishments if one.text("siret") == siret), None)
    if siret and chosen is None:
        return None
    fields = _fields_of_result(company, seat)
    is_partly_published = company.text("statut_diffusion") in {"P", "N"}
    document = without_entries(_VOLATILE_IN_SEARCH, answer.entries("results", MAX_RESULTS)[0])
    warnings = ()
    if siret and chosen and chosen.text("etat_administratif") == "F":
        closed_on = normal.day(chosen.value("date_fermeture"))
        since = f" since {closed_on}" if closed_on else ""
        warnings = (f"The establishment {siret} is closed{since}.",)
    return SourceRecord(
        siren=siren,
        fields=fields,
        document=cast("Document", document),
        is_masked=is_partly_published or company.is_masked,
        warnings=warnings,
    )


def _fields_of_result(company: AnswerObject, seat: AnswerObject) -> CompanyFields:
    whole_name, naf = company.text("nom_complet"), company.value("activite_principale")
    postal_code, town = seat.value("code_postal"), seat.text("libelle_commune")
    # Only a foreign seat names its country.
    abroad = seat.value("libelle_pays_etranger")
    country = "FR" if normal.text(postal_code) or town else None
    # The parts of the street if it is given, else the whole address without the town.
    street, address = seat.text("libelle_voie"), seat.text("adresse")
    if street:
        parts = ("numero_voie", "indice_repetition", "type_voie", "libelle_voie")
        address = normal.line(*map(seat.value, parts))
    elif address and (end := normal.line(postal_code, town)):
        address = address.removesuffix(end).rstrip(" ,") or None
    return CompanyFields(
        siret=seat.text("siret"),
        legal_name=company.text("nom_raison_sociale") or whole_name,
        trade_name=whole_name,
        brand_name=company.text("sigle"),
        legal_form=company.text("nature_juridique"),
        creation_date=normal.day(company.value("date_creation")),
        active_status=company.text("etat_administratif"),
        address_line1=address,
        address_line2=seat.text("complement_adresse"),
        postal_code=normal.postal_code(postal_code, abroad),
        city=town or seat.text("libelle_commune_etranger"),
        country_code=normal.country(abroad) if normal.text(abroad) else country,
        naf_code=normal.naf(naf),
        naf_label=company.text("libelle_activite_principale") or normal.naf_label(naf),
        headcount_range=company.text("tranche_effectif_salarie"),
    )


# --- API Entreprise, which gives extracts of the register of commerce

RCS = RegistryInfo(
    "API Entreprise", "api_entreprise", "API_ENTREPRISE_BASE_URL", "API_ENTREPRISE_TOKEN"
)
# No company has this SIREN. If the answer has no other error, the register accepts the token and
# the purpose.
UNKNOWN_COMPANY = "000000000"
UNKNOWN, BAD_SIREN = "02003", "00301"
ADVICE: Mapping[str, str] = {
    "00201": "check API_ENTREPRISE_CONTEXT",
    "00202": "check API_ENTREPRISE_OBJECT",
    "00203": "check API_ENTREPRISE_RECIPIENT, which must not be the company that is asked for",
}
MAX_ERRORS = 1000
_CODE = re.compile(r"[0-9]{5}")
_INSEE_FORM = re.compile(r"[0-9]{4}")
# These change daily although the extract does not.
_VOLATILE_IN_EXTRACT = ("date_extrait", "links", "meta")


@dataclass(frozen=True)
class Purpose:
    """On whose behalf a request is made (the SIRET of a public body), in which context and why."""

    recipient: str
    context: str
    object: str


class CommerceRegister(RegistryClient):
    info = RCS

    def __init__(
        self, base_url: str, token: str, purpose: Purpose, **connection: Unpack[ConnectionOptions]
    ) -> None:
        super().__init__(base_url, **connection)
        self._token, self._purpose = SecretStr(token), purpose

    async def _record(self, siren: str, siret: str | None) -> SourceRecord:
        _ = siret  # the register has companies only
        answer = await self._fetch_extract(siren)
        if answer.status != 200:
            raise self._refusal(answer)
        return extract_record(answer.body, siren)

    async def check(self) -> None:
        try:
            answer = await self._fetch_extract(UNKNOWN_COMPANY)
        except RegistryCallError as failure:
            raise check_error(failure.error) from None
        codes, _ = errors_of(answer.body)
        if not codes or set(codes) - {UNKNOWN, BAD_SIREN}:
            raise check_error(self._refusal(answer).error)

    async def _fetch_extract(self, siren: str) -> RegistryAnswer:
        path = f"/v3/infogreffe/rcs/unites_legales/{quote(siren, safe='')}/extrait_kbis"
        token = self._token.get_secret_value()
        return await self.send("GET", path, params=vars(self._purpose), token=token)

    def _refusal(self, answer: RegistryAnswer) -> RegistryCallError:
        codes, wait = errors_of(answer.body)
        hints = [ADVICE.get(code, f"code {code}") for code in codes if code != BAD_SIREN] or codes
        hint = hints[0] if hints and answer.status in {400, 422} else ""
        return self.refusal(
            replace(answer, retry_after_seconds=answer.retry_after_seconds or wait), hint
        )


def extract_record(body: bytes | None, siren: str) -> SourceRecord:
    """Raises RegistryFormatError if the answer has another format or is about another company."""
    answer, document = parse_answer(body)
    extract = answer.required("data")
    if extract.text("siren") != siren:
        raise RegistryFormatError("it is about another company")
    company, person = extract.at("personne_morale"), extract.at("personne_physique")
    form = company.at("forme_juridique").text("code") or ""
    registry = extract.at("greffe").text("valeur")
    fields = CompanyFields(
        legal_name=company.text("denomination")
        or normal.line(person.value("prenom"), person.value("nom")),
        trade_name=extract.text("nom_commercial"),
        # The register also has codes of its own, such as SASh.
        legal_form=form if _INSEE_FORM.fullmatch(form) else None,
        creation_date=normal.day(extract.value("date_immatriculation")),
        active_status="C" if normal.day(extract.value("date_radiation")) else "A",
        naf_code=normal.naf(extract.at("etablissement_principal").value("code_ape")),
        rcs_city=registry,
        registry_name=registry,
    )
    kept = cast("Document", without_entries(_VOLATILE_IN_EXTRACT, document))
    return SourceRecord(siren=siren, fields=fields, document=kept, is_masked=extract.is_masked)


def errors_of(body: bytes | None) -> tuple[tuple[str, ...], float | None]:
    """The codes of the errors, and the seconds until a retry, as far as they can be read."""
    try:
        errors = parse_answer(body)[0].objects("errors", MAX_ERRORS)
        codes = [error.text("code") or "" for error in errors]
        wait = errors[0].at("meta").value("retry_in") if errors else None
    except RegistryFormatError:
        return (), None
    is_wait = type(wait) in {int, float} and 0 < cast("float", wait) < 1_000_000
    return tuple(filter(_CODE.fullmatch, codes)), float(cast("float", wait)) if is_wait else None
