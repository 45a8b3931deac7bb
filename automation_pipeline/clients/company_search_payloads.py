"""Answers of the Recherche d'entreprises: whether it found the company that was asked for, and what it says of it."""

from typing import cast

from pydantic import Field

from automation_pipeline.clients.registry_payloads import Document, Payload, Said, read, without
from automation_pipeline.enrichment.domain import normalising as normal
from automation_pipeline.enrichment.domain.naf import naf_label
from automation_pipeline.enrichment.domain.record import CompanyFields, SourceRecord

# What depends on the query, and the days on which the service copied the company again, changed or not.
_OF_THE_QUERY = ("score", "matching_etablissements")
_CHANGES_BY_ITSELF = (*_OF_THE_QUERY, "date_mise_a_jour", "date_mise_a_jour_insee", "date_mise_a_jour_rne")
_TOLD_IN_PART = frozenset({"P", "N"})


class Establishment(Payload):
    siret: Said = None
    etat_administratif: Said = None
    date_fermeture: Said = None


class Seat(Establishment):
    adresse: Said = None
    numero_voie: Said = None
    indice_repetition: Said = None
    type_voie: Said = None
    libelle_voie: Said = None
    complement_adresse: Said = None
    code_postal: Said = None
    libelle_commune: Said = None
    libelle_commune_etranger: Said = None
    libelle_pays_etranger: Said = None

    def street(self) -> str | None:
        """In its parts where they are told; else the whole address without the town, which has fields of its own."""
        of_parts = normal.line(self.numero_voie, self.indice_repetition, self.type_voie, self.libelle_voie)
        if normal.text(self.libelle_voie):
            return of_parts
        whole = normal.text(self.adresse)
        town = normal.line(self.code_postal, self.libelle_commune)
        return whole.removesuffix(town).rstrip(" ,") or None if whole and town else whole

    def country(self) -> str | None:
        """Only a seat abroad names its country."""
        if normal.text(self.libelle_pays_etranger):
            return normal.country(self.libelle_pays_etranger)
        return "FR" if normal.text(self.code_postal) or normal.text(self.libelle_commune) else None


class Company(Payload):
    siren: str
    nom_complet: Said = None
    nom_raison_sociale: Said = None
    sigle: Said = None
    siege: Seat | None = None
    matching_etablissements: list[Establishment] = Field(default=[], max_length=100)
    activite_principale: Said = None
    libelle_activite_principale: Said = None
    date_creation: Said = None
    etat_administratif: Said = None
    nature_juridique: Said = None
    tranche_effectif_salarie: Said = None
    statut_diffusion: Said = None

    def fields(self) -> CompanyFields:
        seat = self.siege or Seat()
        whole_name = normal.text(self.nom_complet)
        return CompanyFields(
            siret=normal.text(seat.siret),
            legal_name=normal.text(self.nom_raison_sociale) or whole_name,
            trade_name=whole_name,
            brand_name=normal.text(self.sigle),
            legal_form=normal.text(self.nature_juridique),
            creation_date=normal.day(self.date_creation),
            active_status=normal.text(self.etat_administratif),
            address_line1=seat.street(),
            address_line2=normal.text(seat.complement_adresse),
            postal_code=normal.postal_code(seat.code_postal, seat.libelle_pays_etranger),
            city=normal.text(seat.libelle_commune) or normal.text(seat.libelle_commune_etranger),
            country_code=seat.country(),
            naf_code=normal.naf(self.activite_principale),
            naf_label=normal.text(self.libelle_activite_principale) or naf_label(self.activite_principale),
            headcount_range=normal.text(self.tranche_effectif_salarie),
        )

    def establishment(self, siret: str) -> Establishment | None:
        known = [self.siege or Seat(), *self.matching_etablissements]
        return next((one for one in known if normal.text(one.siret) == siret), None)


class SearchPayload(Payload):
    results: list[Company] = Field(max_length=25)


def company_of(body: bytes | None, siren: str, siret: str | None = None) -> SourceRecord | None:
    """None: the first result is another company, or it lacks the establishment. NotUnderstoodError: the answer does not
    have the agreed form."""
    payload, document = read(SearchPayload, body)
    if not payload.results or payload.results[0].siren != siren:
        return None
    company, results = payload.results[0], cast("list[Document]", document["results"])
    establishment = company.establishment(siret) if siret else None
    if siret and establishment is None:
        return None
    return SourceRecord(
        siren=siren,
        said=company.fields(),
        document=cast("Document", without(_CHANGES_BY_ITSELF, results[0])),
        is_masked=normal.text(company.statut_diffusion) in _TOLD_IN_PART or company.masks,
        warnings=_warnings(establishment),
    )


def _warnings(establishment: Establishment | None) -> tuple[str, ...]:
    if establishment is None or normal.text(establishment.etat_administratif) != "F":
        return ()
    closed_on = normal.day(establishment.date_fermeture)
    since = f" since {closed_on}" if closed_on else ""
    return (f"The establishment {normal.text(establishment.siret)} is closed{since}.",)
