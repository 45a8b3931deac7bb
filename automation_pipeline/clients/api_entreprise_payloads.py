"""Answers of API Entreprise: the extract of the register of commerce, and the errors with their codes."""

import re
from typing import cast

from pydantic import Field

from automation_pipeline.clients.registry_payloads import Document, NotUnderstoodError, Payload, Said, read, without
from automation_pipeline.enrichment.domain import normalising as normal
from automation_pipeline.enrichment.domain.record import CompanyFields, SourceRecord

_CODE = re.compile(r"[0-9]{5}")
_INSEE_FORM = re.compile(r"[0-9]{4}")
# Today's date, whatever the extract says.
_CHANGES_BY_ITSELF = ("date_extrait", "links", "meta")


class Coded(Payload):
    valeur: Said = None
    code: Said = None


class Main(Payload):
    code_ape: Said = None


class LegalPerson(Payload):
    denomination: Said = None
    forme_juridique: Coded | None = None


class NaturalPerson(Payload):
    nom: Said = None
    prenom: Said = None


class Extract(Payload):
    siren: Said
    date_immatriculation: Said = None
    date_radiation: Said = None
    nom_commercial: Said = None
    greffe: Coded | None = None
    etablissement_principal: Main | None = None
    personne_morale: LegalPerson | None = None
    personne_physique: NaturalPerson | None = None

    def fields(self) -> CompanyFields:
        company, person = self.personne_morale or LegalPerson(), self.personne_physique or NaturalPerson()
        form = normal.text((company.forme_juridique or Coded()).code) or ""
        registry = normal.text((self.greffe or Coded()).valeur)
        return CompanyFields(
            legal_name=normal.text(company.denomination) or normal.line(person.prenom, person.nom),
            trade_name=normal.text(self.nom_commercial),
            # The register has codes of its own, such as SASh, which nobody else has.
            legal_form=form if _INSEE_FORM.fullmatch(form) else None,
            creation_date=normal.day(self.date_immatriculation),
            active_status="C" if normal.day(self.date_radiation) else "A",
            naf_code=normal.naf((self.etablissement_principal or Main()).code_ape),
            rcs_city=registry,
            registry_name=registry,
        )


class ExtractPayload(Payload):
    data: Extract


class ErrorMeta(Payload):
    retry_in: Said = None


class OneError(Payload):
    code: Said = None
    meta: ErrorMeta | None = None


class ErrorsPayload(Payload):
    errors: list[OneError] = Field(min_length=1)


def company_of(body: bytes | None, siren: str) -> SourceRecord:
    """NotUnderstoodError: the answer is not made as agreed, or is about somebody else."""
    payload, document = read(ExtractPayload, body)
    if normal.text(payload.data.siren) != siren:
        raise NotUnderstoodError("it is about another company")
    kept = cast("Document", without(_CHANGES_BY_ITSELF, document))
    return SourceRecord(siren=siren, said=payload.data.fields(), document=kept, is_masked=payload.data.masks)


def errors_of(body: bytes | None) -> tuple[tuple[str, ...], float | None]:
    """Their codes, and in how many seconds one may ask again; whatever of it can be read."""
    try:
        errors = read(ErrorsPayload, body)[0].errors
    except NotUnderstoodError:
        return (), None
    codes = tuple(code for one in errors if _CODE.fullmatch(code := normal.text(one.code) or ""))
    return codes, _seconds((errors[0].meta or ErrorMeta()).retry_in)


def _seconds(given: Said) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1_000_000:
        return None
    return float(given)
