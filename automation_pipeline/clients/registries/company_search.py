"""The client of the Recherche d'entreprises API, which needs no credentials. It implements
`enrichment.ports.Registry`."""

from typing import cast

from pydantic import Field

from automation_pipeline.clients.registries.calls import (
    Document,
    LenientText,
    RegistryClient,
    RegistryInfo,
    RegistryPayload,
    call_error,
    check_error,
    has_masked_value,
    parse_answer,
    without_entries,
)
from automation_pipeline.enrichment.models import (
    CompanyFields,
    ErrorCode,
    SourceError,
    SourceRecord,
)
from automation_pipeline.enrichment.rules import normalisation as normal

# These depend on the query, or change daily although the company does not.
_QUERY_FIELDS = ("score", "matching_etablissements")
_VOLATILE_FIELDS = (
    *_QUERY_FIELDS,
    "date_mise_a_jour",
    "date_mise_a_jour_insee",
    "date_mise_a_jour_rne",
)
_PARTLY_PUBLISHED = frozenset({"P", "N"})


class Establishment(RegistryPayload):
    siret: LenientText = None
    etat_administratif: LenientText = None
    date_fermeture: LenientText = None


class Seat(Establishment):
    adresse: LenientText = None
    numero_voie: LenientText = None
    indice_repetition: LenientText = None
    type_voie: LenientText = None
    libelle_voie: LenientText = None
    complement_adresse: LenientText = None
    code_postal: LenientText = None
    libelle_commune: LenientText = None
    libelle_commune_etranger: LenientText = None
    libelle_pays_etranger: LenientText = None

    def street(self) -> str | None:
        """Built from its parts if the street is given, else the whole address without the town."""
        parts = normal.line(
            self.numero_voie, self.indice_repetition, self.type_voie, self.libelle_voie
        )
        if normal.text(self.libelle_voie):
            return parts
        whole = normal.text(self.adresse)
        town = normal.line(self.code_postal, self.libelle_commune)
        return whole.removesuffix(town).rstrip(" ,") or None if whole and town else whole

    def country(self) -> str | None:
        """Only a foreign seat names its country."""
        if normal.text(self.libelle_pays_etranger):
            return normal.country(self.libelle_pays_etranger)
        return "FR" if normal.text(self.code_postal) or normal.text(self.libelle_commune) else None


class Company(RegistryPayload):
    siren: str
    nom_complet: LenientText = None
    nom_raison_sociale: LenientText = None
    sigle: LenientText = None
    siege: Seat | None = None
    matching_etablissements: list[Establishment] = Field(default=[], max_length=100)
    activite_principale: LenientText = None
    libelle_activite_principale: LenientText = None
    date_creation: LenientText = None
    etat_administratif: LenientText = None
    nature_juridique: LenientText = None
    tranche_effectif_salarie: LenientText = None
    statut_diffusion: LenientText = None

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
            naf_label=normal.text(self.libelle_activite_principale)
            or normal.naf_label(self.activite_principale),
            headcount_range=normal.text(self.tranche_effectif_salarie),
        )

    def establishment(self, siret: str) -> Establishment | None:
        known = [self.siege or Seat(), *self.matching_etablissements]
        return next((one for one in known if normal.text(one.siret) == siret), None)


class SearchPayload(RegistryPayload):
    results: list[Company] = Field(max_length=25)


def company_of(body: bytes | None, siren: str, siret: str | None = None) -> SourceRecord | None:
    """None if the first result is another company or lacks the establishment. Raises
    RegistryFormatError if the answer has another format."""
    payload, document = parse_answer(SearchPayload, body)
    if not payload.results or payload.results[0].siren != siren:
        return None
    company, results = payload.results[0], cast("list[Document]", document["results"])
    establishment = company.establishment(siret) if siret else None
    if siret and establishment is None:
        return None
    return SourceRecord(
        siren=siren,
        fields=company.fields(),
        document=cast("Document", without_entries(_VOLATILE_FIELDS, results[0])),
        is_masked=normal.text(company.statut_diffusion) in _PARTLY_PUBLISHED
        or has_masked_value(company),
        warnings=_warnings(establishment),
    )


def _warnings(establishment: Establishment | None) -> tuple[str, ...]:
    if establishment is None or normal.text(establishment.etat_administratif) != "F":
        return ()
    closed_on = normal.day(establishment.date_fermeture)
    since = f" since {closed_on}" if closed_on else ""
    return (f"The establishment {normal.text(establishment.siret)} is closed{since}.",)


SEARCH = RegistryInfo(
    "the Recherche d'entreprises",
    "company_search",
    "RECHERCHE_ENTREPRISES_BASE_URL",
    "RECHERCHE_ENTREPRISES_BASE_URL",
)
INCLUDED = "siege,complements,finances"
# The government's IT directorate, which publishes the service.
PROBE_SIREN = "130025265"


class CompanySearch(RegistryClient):
    info = SEARCH

    async def _record(self, siren: str, siret: str | None) -> SourceRecord:
        """With a SIRET, looks up that establishment."""
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
        company = company_of(answer.body, siren, siret)
        if company is None:
            what = "company" if siret is None else "establishment"
            raise call_error(ErrorCode.NOT_FOUND, f"{SEARCH.name} does not know the {what}.", 200)
        return company

    async def check(self) -> None:
        result = await self.fetch(PROBE_SIREN, None)
        is_unknown = isinstance(result, SourceError) and result.error_code is ErrorCode.NOT_FOUND
        if isinstance(result, SourceError) and not (is_unknown and result.http_status == 200):
            raise check_error(result)
