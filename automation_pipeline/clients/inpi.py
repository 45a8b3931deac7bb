"""The client of INPI's national register of companies, with its login. It implements
`enrichment.models.Registry`."""

import asyncio
import os
import socket
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Unpack
from urllib.parse import quote

from pydantic import SecretStr

from automation_pipeline.clients.http import PerLoop
from automation_pipeline.clients.registries import (
    AnswerObject,
    ConnectionOptions,
    RegistryCallError,
    RegistryClient,
    RegistryFormatError,
    RegistryInfo,
    call_error,
    check_error,
    parse_answer,
)
from automation_pipeline.core.coordination import Claim, Rate, RateLimiter
from automation_pipeline.enrichment.models import (
    CompanyFields,
    ErrorCode,
    SharedLogin,
    SourceError,
    SourceRecord,
)
from automation_pipeline.enrichment.rules import normalisation as normal

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
# La Poste.
PROBE_SIREN = "356000000"
MAX_FIRST_NAMES = 100
# A company, a sole trader and a farm have the same format.
_ENTITIES = {"M": "personneMorale", "P": "personnePhysique", "E": "exploitation"}


@dataclass(frozen=True)
class Account:
    username: str
    password: str = field(repr=False)


class InpiRegister(RegistryClient):
    """Gets and renews the token by itself. `shared` shares the token between processes; without it,
    each instance logs in separately, which a check of the password requires."""

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
        self._account, self._limiter, self._shared = account, limiter, shared
        self._token: SecretStr | None = None
        self._refused: tuple[datetime, SourceError] | None = None
        self._locks = PerLoop(asyncio.Lock)

    async def _record(self, siren: str, siret: str | None) -> SourceRecord:
        _ = siret  # INPI has companies only
        path = f"/api/companies/{quote(siren, safe='')}"
        token = self._token or await self._token_instead_of(None)
        answer = await self.send("GET", path, token=token.get_secret_value())
        if answer.status == 401:
            token = await self._token_instead_of(token)
            answer = await self.send("GET", path, token=token.get_secret_value())
        if answer.status != 200:
            raise self.refusal(answer)
        return formality_record(answer.body, siren)

    async def check(self) -> None:
        result = await self.fetch(PROBE_SIREN, None)
        if isinstance(result, SourceError) and result.error_code is not ErrorCode.NOT_FOUND:
            raise check_error(result)

    async def _token_instead_of(self, old: SecretStr | None) -> SecretStr:
        """A token other than `old`, which INPI refused. Another task may have renewed it while this one
        waited for the lock."""
        async with self._locks.current():
            if self._token is not None and self._token != old:
                return self._token
            self._token = None
            if self._refused is not None and self._now() - self._refused[0] < REFUSAL_HOLDS:
                raise RegistryCallError(self._refused[1])
            try:
                self._token = SecretStr(await self._shared_or_new(old))
            except RegistryCallError as failure:
                if _is_refusal(failure):
                    self._refused = (self._now(), failure.error)
                raise
            return self._token

    async def _shared_or_new(self, old: SecretStr | None) -> str:
        if self._shared is None:
            return await self._log_in()
        if old is not None:
            await asyncio.to_thread(self._shared.tokens.discard, old.get_secret_value())
        claim_seconds = MAX_LOGIN_WAIT_SECONDS + self._timeout_seconds + 1.0
        loop = asyncio.get_running_loop()
        until = loop.time() + WAIT_FOR_OTHERS_SECONDS
        while True:
            found = await asyncio.to_thread(_token_or_claim, self._shared, claim_seconds)
            if isinstance(found, Claim):
                return await self._log_in_for_all(self._shared, found)
            if found is not None:
                return found
            if loop.time() >= until:
                raise _login_deferred("another process is logging in, or was refused just now")
            await asyncio.sleep(POLL_SECONDS)

    async def _log_in_for_all(self, shared: SharedLogin, claim: Claim) -> str:
        is_refused = False
        try:
            token = await self._log_in()
            await asyncio.to_thread(shared.tokens.store, token, self._now() + TOKEN_LIFETIME)
        except RegistryCallError as failure:
            is_refused = _is_refusal(failure)
            raise
        finally:
            if is_refused:  # the claim is kept, so that no process tries the password again soon
                await asyncio.to_thread(shared.claims.extend, claim, REFUSAL_BLOCKS_OTHERS_SECONDS)
            else:
                await asyncio.to_thread(shared.claims.release, claim)
        return token

    async def _log_in(self) -> str:
        wait = await asyncio.to_thread(
            self._limiter.reserve, LOGIN_KEY, LOGIN_RATE, max_wait_seconds=MAX_LOGIN_WAIT_SECONDS
        )
        if wait is None:
            raise _login_deferred("there were too many logins")
        await asyncio.sleep(wait)
        document = {"username": self._account.username, "password": self._account.password}
        answer = await self.send("POST", "/api/sso/login", json=document)
        if answer.status == 404:  # the route is missing: not an unknown company
            message = f"{INPI.name} has no login (check {INPI.address_setting})."
            raise call_error(ErrorCode.INTERNAL_ERROR, message, 404)
        if answer.status != 200:
            raise self.refusal(answer)
        return token_of(answer.body)


def _is_refusal(failure: RegistryCallError) -> bool:
    return failure.error.error_code is ErrorCode.AUTH_ERROR


def _token_or_claim(shared: SharedLogin, seconds: float) -> str | Claim | None:
    """The shared token, or the claim to get one. None if another process holds the claim."""
    token = shared.tokens.current()
    if token is not None:
        return token
    claim = shared.claims.take(LOGIN_CLAIM, f"{socket.gethostname()}:{os.getpid()}", seconds)
    token = shared.tokens.current()
    if claim is None or token is None:
        return claim or token
    shared.claims.release(claim)  # another process was faster
    return token


def _login_deferred(why: str) -> RegistryCallError:
    message = f"The login at {INPI.name} has to wait: {why}."
    return RegistryCallError(
        SourceError(error_code=ErrorCode.RATE_LIMIT, message=message, retryable=True, is_local=True)
    )


def token_of(body: bytes | None) -> str:
    token = str(parse_answer(body)[0].value("token") or "").strip()
    if not (token and token.isascii() and token.isprintable()):
        raise RegistryFormatError("it holds no token")
    return token


def formality_record(body: bytes | None, siren: str) -> SourceRecord:
    """Raises RegistryFormatError if the answer has another format or is about another company."""
    answer, document = parse_answer(body)
    formality = answer.required("formality")
    content = formality.required("content")
    if (answer.text("siren") or formality.text("siren")) != siren:
        raise RegistryFormatError("it is about another company")
    fields = _fields_of_formality(formality, content)
    # A company that objects to commercial use is also published only in part.
    is_masked = formality.value("diffusionCommerciale") is False or formality.is_masked
    return SourceRecord(siren=siren, fields=fields, document=document, is_masked=is_masked)


def _fields_of_formality(formality: AnswerObject, content: AnswerObject) -> CompanyFields:
    entity = _entity(content, formality.text("typePersonne"))
    enterprise = entity.at("identite", "entreprise")
    person = entity.at("identite", "entrepreneur", "descriptionPersonne")
    created = content.at("natureCreation")
    address = entity.at("adresseEntreprise", "adresse")
    street = ("numVoie", "indiceRepetition", "typeVoie", "voie")
    siren, nic = enterprise.text("siren"), enterprise.text("nicSiege")
    forms = (one.text("formeJuridique") for one in (created, enterprise, formality))
    ended_on = (
        entity.at("detailCessationEntreprise").value("dateRadiation"),
        enterprise.value("dateRad"),
    )
    is_known = "A" if entity.has("identite") else None
    return CompanyFields(
        siret=f"{siren}{nic.zfill(5)}" if siren and nic else None,
        legal_name=enterprise.text("denomination") or _name_of(person),
        trade_name=enterprise.text("nomCommercial"),
        brand_name=enterprise.text("sigle"),
        legal_form=next(filter(None, forms), None),
        creation_date=normal.day(created.value("dateCreation")),
        active_status="C" if any(map(normal.day, ended_on)) else is_known,
        address_line1=normal.line(*map(address.value, street)),
        address_line2=address.text("complementLocalisation"),
        postal_code=normal.postal_code(address.value("codePostal"), address.value("codePays")),
        city=address.text("commune"),
        country_code=normal.country(address.value("codePays")),
        naf_code=normal.naf(enterprise.value("codeApe")),
    )


def _entity(content: AnswerObject, kind: str | None) -> AnswerObject:
    """The entity of the given kind, else the first with an identity: others may be present but
    empty."""
    names = sorted(_ENTITIES, key=lambda name: name != kind)
    present = [content.at(_ENTITIES[name]) for name in names if content.has(_ENTITIES[name])]
    identified = [entity for entity in present if entity.has("identite")]
    return next(iter(identified or present), AnswerObject({}))


def _name_of(person: AnswerObject) -> str | None:
    last_name = person.text("nom")
    first_names = (
        person.entries("prenoms", MAX_FIRST_NAMES, default=[]) if person.has("prenoms") else []
    )
    return normal.line(*first_names[:1], last_name) if last_name else None
