"""The client of INPI's national register of companies, with its login. It implements
`enrichment.ports.Registry`."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, TypeVar, Unpack
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from automation_pipeline.clients.http import PerLoop
from automation_pipeline.clients.registries.calls import (
    ConnectionOptions,
    LenientText,
    RegistryCallError,
    RegistryClient,
    RegistryFormatError,
    RegistryInfo,
    RegistryPayload,
    call_error,
    check_error,
    has_masked_value,
    parse_answer,
)
from automation_pipeline.core.coordination import Claim, Rate, RateLimiter
from automation_pipeline.enrichment.models import (
    CompanyFields,
    ErrorCode,
    SourceError,
    SourceRecord,
)
from automation_pipeline.enrichment.ports import SharedLogin
from automation_pipeline.enrichment.rules import normalisation as normal

Kind = TypeVar("Kind", bound=BaseModel)


def _none_if_empty_list(value: object) -> object:
    return None if value == [] else value


# INPI writes an empty object as `[]`.
OptionalObject = Annotated[Kind | None, BeforeValidator(_none_if_empty_list)]


class LoginPayload(RegistryPayload):
    token: str


class InpiPayload(RegistryPayload):
    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel)


class Enterprise(InpiPayload):
    siren: LenientText = None
    denomination: LenientText = None
    nom_commercial: LenientText = None
    sigle: LenientText = None
    forme_juridique: LenientText = None
    code_ape: LenientText = None
    nic_siege: LenientText = None
    date_rad: LenientText = None


class PersonDescription(InpiPayload):
    nom: LenientText = None
    prenoms: list[LenientText] | None = None


class Entrepreneur(InpiPayload):
    description_personne: OptionalObject[PersonDescription] = None


class Identity(InpiPayload):
    entreprise: OptionalObject[Enterprise] = None
    entrepreneur: OptionalObject[Entrepreneur] = None


class PostalAddress(InpiPayload):
    code_pays: LenientText = None
    code_postal: LenientText = None
    commune: LenientText = None
    num_voie: LenientText = None
    indice_repetition: LenientText = None
    type_voie: LenientText = None
    voie: LenientText = None
    complement_localisation: LenientText = None


class Located(InpiPayload):
    adresse: OptionalObject[PostalAddress] = None


class Cessation(InpiPayload):
    date_radiation: LenientText = None


class LegalEntity(InpiPayload):
    """A company, a sole trader or a farm, which have the same format."""

    identite: OptionalObject[Identity] = None
    adresse_entreprise: OptionalObject[Located] = None
    detail_cessation_entreprise: OptionalObject[Cessation] = None


class Creation(InpiPayload):
    date_creation: LenientText = None
    forme_juridique: LenientText = None


class Content(InpiPayload):
    nature_creation: OptionalObject[Creation] = None
    personne_morale: OptionalObject[LegalEntity] = None
    personne_physique: OptionalObject[LegalEntity] = None
    exploitation: OptionalObject[LegalEntity] = None

    def entity(self, kind: str | None) -> LegalEntity:
        """The entity of the given kind, else the first with an identity: others may be present but
        empty."""
        named = {"M": self.personne_morale, "P": self.personne_physique, "E": self.exploitation}
        chosen = named.get(kind or "")
        if chosen and chosen.identite:
            return chosen
        present = [entity for entity in named.values() if entity]
        return next(
            (entity for entity in present if entity.identite),
            chosen or next(iter(present), LegalEntity()),
        )


class Formality(InpiPayload):
    siren: LenientText = None
    type_personne: LenientText = None
    diffusion_commerciale: bool | None = None
    forme_juridique: LenientText = None
    content: Content

    def fields(self) -> CompanyFields:
        content = self.content
        entity = content.entity(normal.text(self.type_personne))
        identity = entity.identite or Identity()
        enterprise = identity.entreprise or Enterprise()
        address = (entity.adresse_entreprise or Located()).adresse or PostalAddress()
        created = content.nature_creation or Creation()
        forms = (created.forme_juridique, enterprise.forme_juridique, self.forme_juridique)
        return CompanyFields(
            siret=_siret(enterprise),
            legal_name=normal.text(enterprise.denomination) or _name_of(identity.entrepreneur),
            trade_name=normal.text(enterprise.nom_commercial),
            brand_name=normal.text(enterprise.sigle),
            legal_form=next(filter(None, map(normal.text, forms)), None),
            creation_date=normal.day(created.date_creation),
            active_status=_activity(entity, enterprise),
            address_line1=normal.line(
                address.num_voie, address.indice_repetition, address.type_voie, address.voie
            ),
            address_line2=normal.text(address.complement_localisation),
            postal_code=normal.postal_code(address.code_postal, address.code_pays),
            city=normal.text(address.commune),
            country_code=normal.country(address.code_pays),
            naf_code=normal.naf(enterprise.code_ape),
        )


class InpiCompanyPayload(InpiPayload):
    siren: LenientText = None
    formality: Formality


def token_of(body: bytes | None) -> str:
    payload, _ = parse_answer(LoginPayload, body)
    token = payload.token.strip()
    if not (token and token.isascii() and token.isprintable()):
        raise RegistryFormatError("it holds no token")
    return token


def company_of(body: bytes | None, siren: str) -> SourceRecord:
    """Raises RegistryFormatError if the answer has another format or is about another company."""
    payload, document = parse_answer(InpiCompanyPayload, body)
    formality = payload.formality
    if (normal.text(payload.siren) or normal.text(formality.siren)) != siren:
        raise RegistryFormatError("it is about another company")
    # A company that objects to commercial use is also published only in part.
    is_masked = formality.diffusion_commerciale is False or has_masked_value(formality)
    return SourceRecord(
        siren=siren, fields=formality.fields(), document=document, is_masked=is_masked
    )


def _siret(enterprise: Enterprise) -> str | None:
    siren, nic = normal.text(enterprise.siren), normal.text(enterprise.nic_siege)
    return f"{siren}{nic.zfill(5)}" if siren and nic else None


def _name_of(entrepreneur: Entrepreneur | None) -> str | None:
    person = entrepreneur.description_personne if entrepreneur else None
    return (
        normal.line(*(person.prenoms or ())[:1], person.nom)
        if person and normal.text(person.nom)
        else None
    )


def _activity(entity: LegalEntity, enterprise: Enterprise) -> str | None:
    """`C` if it is struck off, else `A`; None if the entity has no identity."""
    cessation = entity.detail_cessation_entreprise or Cessation()
    if normal.day(cessation.date_radiation) or normal.day(enterprise.date_rad):
        return "C"
    return "A" if entity.identite else None


INPI = RegistryInfo(
    "INPI's register", "inpi", "INPI_RNE_BASE_URL", "INPI_RNE_USERNAME and INPI_RNE_PASSWORD"
)
LOGIN_KEY = "enrichment:INPI_RNE:login"
LOGIN_CLAIM = "inpi-login"
LOGIN_RATE = Rate(4, 30.0)
MAX_LOGIN_WAIT_SECONDS = 2.0
POLL_SECONDS = 0.1
WAIT_FOR_OTHERS_SECONDS = 2.0
REFUSAL_HOLDS = timedelta(hours=1)
# Long enough for every process to see the refusal.
REFUSAL_BLOCKS_OTHERS_SECONDS = 60.0
# A token of INPI is valid for an hour.
TOKEN_LIFETIME = timedelta(minutes=55)


@dataclass(frozen=True)
class Account:
    username: str
    password: str = field(repr=False)


class InpiLogin:
    """Gets and renews the token. `shared` shares it between processes; without it, each instance
    logs in separately. A failed login raises RegistryCallError or RegistryFormatError."""

    def __init__(
        self,
        account: Account,
        client: RegistryClient,
        *,
        now: Callable[[], datetime],
        limiter: RateLimiter,
        timeout_seconds: float,
        shared: SharedLogin | None = None,
    ) -> None:
        self._account, self._client = account, client
        self._now, self._limiter, self._shared = now, limiter, shared
        self._max_seconds = MAX_LOGIN_WAIT_SECONDS + timeout_seconds + 1.0
        self._token: str | None = None
        self._refused: tuple[datetime, RegistryCallError] | None = None
        self._locks = PerLoop(asyncio.Lock)

    async def token(self) -> str:
        return self._token or await self.token_instead_of(None)

    async def token_instead_of(self, old: str | None) -> str:
        """INPI refused `old`. Another task may have renewed it while this one waited for the lock."""
        async with self._locks.current():
            if self._token is not None and self._token != old:
                return self._token
            self._token = None
            if self._refused is not None and self._now() - self._refused[0] < REFUSAL_HOLDS:
                raise RegistryCallError(self._refused[1].error)
            try:
                self._token = await self._shared_or_new(old)
            except RegistryCallError as failure:
                if _is_refusal(failure):
                    self._refused = (self._now(), failure)
                raise
            return self._token

    async def _shared_or_new(self, old: str | None) -> str:
        if self._shared is None:
            return await self._log_in()
        if old is not None:
            await asyncio.to_thread(self._shared.tokens.forget, old)
        loop = asyncio.get_running_loop()
        until = loop.time() + WAIT_FOR_OTHERS_SECONDS
        while True:
            found = await asyncio.to_thread(_token_or_claim, self._shared, self._max_seconds)
            if isinstance(found, Claim):
                return await self._log_in_for_all(self._shared, found)
            if found is not None:
                return found
            if loop.time() >= until:
                raise _login_deferred("another process is about to, or was refused just now")
            await asyncio.sleep(POLL_SECONDS)

    async def _log_in_for_all(self, shared: SharedLogin, claim: Claim) -> str:
        is_refused = False
        try:
            token = await self._log_in()
            await asyncio.to_thread(shared.tokens.keep, token, self._now() + TOKEN_LIFETIME)
        except RegistryCallError as failure:
            is_refused = _is_refusal(failure)
            raise
        finally:
            await asyncio.to_thread(_release_login, shared, claim, is_refused=is_refused)
        return token

    async def _log_in(self) -> str:
        wait = await asyncio.to_thread(
            self._limiter.reserve, LOGIN_KEY, LOGIN_RATE, max_wait_seconds=MAX_LOGIN_WAIT_SECONDS
        )
        if wait is None:
            raise _login_deferred("it was logged into too often for one more")
        await asyncio.sleep(wait)
        document = {"username": self._account.username, "password": self._account.password}
        answer = await self._client.send("POST", "/api/sso/login", json=document)
        if answer.status == 404:  # the route is missing: not an unknown company
            message = f"{INPI.name} has no login (check {INPI.address_setting})."
            raise call_error(ErrorCode.INTERNAL_ERROR, message, 404)
        if answer.status != 200:
            raise self._client.refusal(answer)
        return token_of(answer.body)


def _is_refusal(failure: RegistryCallError) -> bool:
    return failure.error.error_code is ErrorCode.AUTH_ERROR


def _token_or_claim(shared: SharedLogin, seconds: float) -> str | Claim | None:
    """The shared token, or the claim to get one. None if another process holds the claim."""
    token = shared.tokens.current()
    if token is not None or shared.claims.holder(LOGIN_CLAIM) is not None:
        return token
    claim = shared.claims.take(LOGIN_CLAIM, f"{socket.gethostname()}:{os.getpid()}", seconds)
    if claim is None:
        return None
    token = shared.tokens.current()
    if token is None:
        return claim
    shared.claims.release(claim)  # another process was faster
    return token


def _release_login(shared: SharedLogin, claim: Claim, *, is_refused: bool) -> None:
    """After a refusal the claim stays, so that no process retries the same password immediately."""
    if is_refused:
        shared.claims.extend(claim, REFUSAL_BLOCKS_OTHERS_SECONDS)
    else:
        shared.claims.release(claim)


def _login_deferred(why: str) -> RegistryCallError:
    message = f"We do not log into {INPI.name} now: {why}."
    return RegistryCallError(
        SourceError(error_code=ErrorCode.RATE_LIMIT, message=message, retryable=True, is_ours=True)
    )


# La Poste.
PROBE_SIREN = "356000000"


class InpiRegister(RegistryClient):
    """Without a shared `login` the client logs in separately, which a check of the password requires."""

    info = INPI

    def __init__(
        self,
        base_url: str,
        account: Account,
        *,
        limiter: RateLimiter,
        shared: SharedLogin | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        super().__init__(base_url, **connection)
        self._login = InpiLogin(
            account,
            self,
            now=self._now,
            limiter=limiter,
            timeout_seconds=self._timeout_seconds,
            shared=shared,
        )

    async def _record(self, siren: str, siret: str | None) -> SourceRecord:
        """Renews an expired token once."""
        _ = siret  # INPI has companies only
        path = f"/api/companies/{quote(siren, safe='')}"
        token = await self._login.token()
        answer = await self.send("GET", path, token=token)
        if answer.status == 401:
            token = await self._login.token_instead_of(token)
            answer = await self.send("GET", path, token=token)
        if answer.status != 200:
            raise self.refusal(answer)
        return company_of(answer.body, siren)

    async def check(self) -> None:
        result = await self.fetch(PROBE_SIREN, None)
        if isinstance(result, SourceError) and result.error_code is not ErrorCode.NOT_FOUND:
            raise check_error(result)
