"""Answers of INPI's national register of companies: its login, and a company's formality."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from automation_pipeline.clients.registry_payloads import NotUnderstoodError, Payload, Said, read
from automation_pipeline.enrichment.domain import normalising as normal
from automation_pipeline.enrichment.domain.record import CompanyFields, SourceRecord

Kind = TypeVar("Kind", bound=BaseModel)


def _none_of_an_empty_list(given: object) -> object:
    return None if given == [] else given


# An object that holds nothing is told as `[]`.
Perhaps = Annotated[Kind | None, BeforeValidator(_none_of_an_empty_list)]


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
    description_personne: Perhaps[PersonDescription] = None


class Identity(Formal):
    entreprise: Perhaps[Enterprise] = None
    entrepreneur: Perhaps[Entrepreneur] = None


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
    adresse: Perhaps[Place] = None


class Ending(Formal):
    date_radiation: Said = None


class Whoever(Formal):
    """A company, a sole trader or a farm: they are told alike."""

    identite: Perhaps[Identity] = None
    adresse_entreprise: Perhaps[Located] = None
    detail_cessation_entreprise: Perhaps[Ending] = None


class Creation(Formal):
    date_creation: Said = None
    forme_juridique: Said = None


class Content(Formal):
    nature_creation: Perhaps[Creation] = None
    personne_morale: Perhaps[Whoever] = None
    personne_physique: Perhaps[Whoever] = None
    exploitation: Perhaps[Whoever] = None

    def who(self, kind: str | None) -> Whoever:
        """The one that INPI names; else the first that is told who it is, since the others may be there, but empty."""
        named = {"M": self.personne_morale, "P": self.personne_physique, "E": self.exploitation}
        chosen = named.get(kind or "")
        if chosen and chosen.identite:
            return chosen
        there = [one for one in named.values() if one]
        return next((one for one in there if one.identite), chosen or next(iter(there), Whoever()))


class Formality(Formal):
    siren: Said = None
    type_personne: Said = None
    diffusion_commerciale: bool | None = None
    forme_juridique: Said = None
    content: Content

    def fields(self) -> CompanyFields:
        kept = self.content
        who = kept.who(normal.text(self.type_personne))
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
            postal_code=normal.postal_code(place.code_postal, place.code_pays),
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
