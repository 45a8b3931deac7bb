"""Answers of INPI's national register of companies: its login, and a company's formality."""

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from automation_pipeline.clients.registry_payloads import NotUnderstoodError, Payload, Said, read
from automation_pipeline.enrichment.domain import normalising as normal
from automation_pipeline.enrichment.domain.record import CompanyFields, SourceRecord


class LoginPayload(Payload):
    token: str


class Formal(Payload):
    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel)


class Enterprise(Formal):
    siren: Said = None
    denomination: Said = None
    nom_commercial: Said = None
    sigle: Said = None
    forme_juridique: Said = None
    code_ape: Said = None
    nic_siege: Said = None
    date_rad: Said = None


class PersonDescription(Formal):
    nom: Said = None
    prenoms: list[Said] | None = None


class Entrepreneur(Formal):
    description_personne: PersonDescription | None = None


class Identity(Formal):
    entreprise: Enterprise | None = None
    entrepreneur: Entrepreneur | None = None


class Place(Formal):
    code_pays: Said = None
    code_postal: Said = None
    commune: Said = None
    num_voie: Said = None
    indice_repetition: Said = None
    type_voie: Said = None
    voie: Said = None
    complement_localisation: Said = None


class Located(Formal):
    adresse: Place | None = None


class Ending(Formal):
    date_radiation: Said = None


class Whoever(Formal):
    """A company, a sole trader or a farm: they are told alike."""

    identite: Identity | None = None
    adresse_entreprise: Located | None = None
    detail_cessation_entreprise: Ending | None = None


class Creation(Formal):
    date_creation: Said = None
    forme_juridique: Said = None


class Content(Formal):
    nature_creation: Creation | None = None
    personne_morale: Whoever | None = None
    personne_physique: Whoever | None = None
    exploitation: Whoever | None = None


class Formality(Formal):
    siren: Said = None
    diffusion_commerciale: bool | None = None
    forme_juridique: Said = None
    content: Content

    def fields(self) -> CompanyFields:
        kept = self.content
        who = kept.personne_morale or kept.personne_physique or kept.exploitation or Whoever()
        identity = who.identite or Identity()
        enterprise = identity.entreprise or Enterprise()
        place = (who.adresse_entreprise or Located()).adresse or Place()
        created = kept.nature_creation or Creation()
        forms = (created.forme_juridique, enterprise.forme_juridique, self.forme_juridique)
        return CompanyFields(
            siret=_siret(enterprise),
            legal_name=normal.text(enterprise.denomination) or _name_of(identity.entrepreneur),
            trade_name=normal.text(enterprise.nom_commercial),
            brand_name=normal.text(enterprise.sigle),
            legal_form=next(filter(None, map(normal.text, forms)), None),
            creation_date=normal.day(created.date_creation),
            active_status=_activity(who, enterprise),
            address_line1=normal.line(place.num_voie, place.indice_repetition, place.type_voie, place.voie),
            address_line2=normal.text(place.complement_localisation),
            postal_code=normal.postal_code(place.code_postal),
            city=normal.text(place.commune),
            country_code=normal.country(place.code_pays),
            naf_code=normal.naf(enterprise.code_ape),
        )


class CompanyPayload(Formal):
    siren: Said = None
    formality: Formality


def token_of(body: bytes | None) -> str:
    payload, _ = read(LoginPayload, body)
    token = payload.token.strip()
    if not (token and token.isascii() and token.isprintable()):
        raise NotUnderstoodError("it holds no token")
    return token


def company_of(body: bytes | None, siren: str) -> SourceRecord:
    """NotUnderstoodError: the answer is not made as agreed, or is about somebody else."""
    payload, document = read(CompanyPayload, body)
    formality = payload.formality
    told = normal.text(payload.siren) or normal.text(formality.siren)
    if told != siren:
        raise NotUnderstoodError("it is about another company")
    # Who has objected to commercial use is told in part too.
    is_masked = formality.diffusion_commerciale is False or formality.masks
    return SourceRecord(siren=siren, said=formality.fields(), document=document, is_masked=is_masked)


def _siret(enterprise: Enterprise) -> str | None:
    siren, nic = normal.text(enterprise.siren), normal.text(enterprise.nic_siege)
    return f"{siren}{nic.zfill(5)}" if siren and nic else None


def _name_of(entrepreneur: Entrepreneur | None) -> str | None:
    person = entrepreneur.description_personne if entrepreneur else None
    return normal.line(*(person.prenoms or ())[:1], person.nom) if person and normal.text(person.nom) else None


def _activity(who: Whoever, enterprise: Enterprise) -> str | None:
    """`C` once it is struck off, else `A`; nothing where nobody is described."""
    ending = who.detail_cessation_entreprise or Ending()
    if normal.day(ending.date_radiation) or normal.day(enterprise.date_rad):
        return "C"
    return "A" if who.identite else None
