"""The client of API Entreprise, which gives extracts of the register of commerce. It implements
`enrichment.ports.Registry`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Unpack, cast
from urllib.parse import quote

from pydantic import Field

from automation_pipeline.clients.registries.calls import (
    ConnectionOptions,
    Document,
    LenientText,
    RegistryAnswer,
    RegistryCallError,
    RegistryClient,
    RegistryFormatError,
    RegistryInfo,
    RegistryPayload,
    check_error,
    has_masked_value,
    parse_answer,
    without_entries,
)
from automation_pipeline.enrichment.models import CompanyFields, SourceRecord
from automation_pipeline.enrichment.rules import normalisation as normal

_CODE = re.compile(r"[0-9]{5}")
_INSEE_FORM = re.compile(r"[0-9]{4}")
# These change daily although the extract does not.
_VOLATILE_FIELDS = ("date_extrait", "links", "meta")


class Coded(RegistryPayload):
    valeur: LenientText = None
    code: LenientText = None


class Main(RegistryPayload):
    code_ape: LenientText = None


class LegalPerson(RegistryPayload):
    denomination: LenientText = None
    forme_juridique: Coded | None = None


class NaturalPerson(RegistryPayload):
    nom: LenientText = None
    prenom: LenientText = None


class Extract(RegistryPayload):
    siren: LenientText
    date_immatriculation: LenientText = None
    date_radiation: LenientText = None
    nom_commercial: LenientText = None
    greffe: Coded | None = None
    etablissement_principal: Main | None = None
    personne_morale: LegalPerson | None = None
    personne_physique: NaturalPerson | None = None

    def fields(self) -> CompanyFields:
        company, person = (
            self.personne_morale or LegalPerson(),
            self.personne_physique or NaturalPerson(),
        )
        form = normal.text((company.forme_juridique or Coded()).code) or ""
        registry = normal.text((self.greffe or Coded()).valeur)
        return CompanyFields(
            legal_name=normal.text(company.denomination) or normal.line(person.prenom, person.nom),
            trade_name=normal.text(self.nom_commercial),
            # The register also has codes of its own, such as SASh.
            legal_form=form if _INSEE_FORM.fullmatch(form) else None,
            creation_date=normal.day(self.date_immatriculation),
            active_status="C" if normal.day(self.date_radiation) else "A",
            naf_code=normal.naf((self.etablissement_principal or Main()).code_ape),
            rcs_city=registry,
            registry_name=registry,
        )


class ExtractPayload(RegistryPayload):
    data: Extract


class ErrorMeta(RegistryPayload):
    retry_in: LenientText = None


class OneError(RegistryPayload):
    code: LenientText = None
    meta: ErrorMeta | None = None


class ErrorsPayload(RegistryPayload):
    errors: list[OneError] = Field(min_length=1)


def company_of(body: bytes | None, siren: str) -> SourceRecord:
    """Raises RegistryFormatError if the answer has another format or is about another company."""
    payload, document = parse_answer(ExtractPayload, body)
    if normal.text(payload.data.siren) != siren:
        raise RegistryFormatError("it is about another company")
    kept = cast("Document", without_entries(_VOLATILE_FIELDS, document))
    return SourceRecord(
        siren=siren,
        fields=payload.data.fields(),
        document=kept,
        is_masked=has_masked_value(payload.data),
    )


def errors_of(body: bytes | None) -> tuple[tuple[str, ...], float | None]:
    """The codes of the errors, and the seconds until a retry, as far as they can be read."""
    try:
        errors = parse_answer(ErrorsPayload, body)[0].errors
    except RegistryFormatError:
        return (), None
    codes = tuple(code for one in errors if _CODE.fullmatch(code := normal.text(one.code) or ""))
    return codes, _seconds((errors[0].meta or ErrorMeta()).retry_in)


def _seconds(value: LenientText) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1_000_000:
        return None
    return float(value)


RCS = RegistryInfo(
    "API Entreprise", "api_entreprise", "API_ENTREPRISE_BASE_URL", "API_ENTREPRISE_TOKEN"
)
# No company has this SIREN. If that is the only error, the register accepts the token and the
# purpose.
UNKNOWN_COMPANY = "000000000"
UNKNOWN, BAD_SIREN = "02003", "00301"
ADVICE: Mapping[str, str] = {
    "00201": "check API_ENTREPRISE_CONTEXT",
    "00202": "check API_ENTREPRISE_OBJECT",
    "00203": "check API_ENTREPRISE_RECIPIENT, which must not be the company that is asked for",
}


@dataclass(frozen=True)
class Purpose:
    """On whose behalf the request is made (the SIRET of a public body), why and in which context."""

    recipient: str
    context: str
    object: str


@dataclass(frozen=True)
class Bearer:
    token: str = field(repr=False)


class CommerceRegister(RegistryClient):
    info = RCS

    def __init__(
        self,
        base_url: str,
        bearer: Bearer,
        purpose: Purpose,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        super().__init__(base_url, **connection)
        self._bearer, self._purpose = bearer, purpose

    async def _record(self, siren: str, siret: str | None) -> SourceRecord:
        _ = siret  # the register has companies only
        answer = await self._fetch_extract(siren)
        if answer.status != 200:
            raise self._refusal(answer)
        return company_of(answer.body, siren)

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
        params = {
            "recipient": self._purpose.recipient,
            "context": self._purpose.context,
            "object": self._purpose.object,
        }
        return await self.send("GET", path, params=params, token=self._bearer.token)

    def _refusal(self, answer: RegistryAnswer) -> RegistryCallError:
        codes, wait = errors_of(answer.body)
        hints = [ADVICE.get(code, f"code {code}") for code in codes if code != BAD_SIREN] or codes
        hint = hints[0] if hints and answer.status in {400, 422} else ""
        return self.refusal(
            replace(answer, retry_after_seconds=answer.retry_after_seconds or wait), hint
        )
