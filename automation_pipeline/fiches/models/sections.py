"""The sections of the CRM's details, with the CRM's own field names."""

import math
from collections.abc import Iterable
from typing import Annotated, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

LONGEST_KEY = 500  # PostgreSQL indexes at most 2,704 bytes, and a character has up to four
LARGEST = 2**31 - 1


class Section(BaseModel):
    """A part of the details. Fields without a model are kept in `rest`."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    def rest(self) -> dict[str, object]:
        """The fields without a model, nested as in the answer. Elements of arrays are keyed by their position."""
        unknown: dict[str, object] = {
            name: plain_json(value) for name, value in (self.model_extra or {}).items()
        }
        return unknown | _without_empty(
            (name, _rest_of(value)) for name, value in self if name not in unknown
        )


def _rest_of(value: object) -> dict[str, object]:
    if isinstance(value, Section):
        return value.rest()
    if isinstance(value, tuple):
        return _without_empty(
            (str(index), _rest_of(element))
            for index, element in enumerate(cast("tuple[object, ...]", value))
        )
    return {}


def _without_empty(named: Iterable[tuple[str, dict[str, object]]]) -> dict[str, object]:
    return {name: rest for name, rest in named if rest}


def plain_json(value: JsonValue) -> JsonValue:
    """Replace NaN and infinities by null, because PostgreSQL refuses them in JSON."""
    match value:
        case dict():
            return {name: plain_json(inner) for name, inner in value.items()}
        case list():
            return [plain_json(inner) for inner in value]
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value


def _plain_map(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: plain_json(inner) for name, inner in value.items()}


def _rounded(value: object) -> object:
    return round(value) if isinstance(value, float) and math.isfinite(value) else value


Key: TypeAlias = Annotated[str, Field(max_length=LONGEST_KEY)]
# The CRM's numbers are counts, codes and seconds: fractions are rounded.
Whole: TypeAlias = Annotated[int, Field(ge=-LARGEST, le=LARGEST), BeforeValidator(_rounded)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST), BeforeValidator(_rounded)]
JsonMap: TypeAlias = Annotated[dict[str, JsonValue], AfterValidator(_plain_map)]
TextMap: TypeAlias = dict[Key, str]


class Etiquette(Section):
    nom: str
    date: str
    style: str


class Information(Section):
    fiche_id: str
    cle: str | None
    date_insertion: str
    createur: str | None
    fiches_associees: str | None
    nombre_acces: Whole
    dernier_acces: str
    groupe: Key
    groupe_responsable: str | None
    groupe_gestion: str | None
    groupe_reclamation: str | None
    agence_id: str
    agence_nom: str
    attribution_user_id: Key
    attribution_user_nom: str
    provenance_id: str
    provenance_nom: str
    provenance_numero: str | None
    provenance_periode_rappel: str | None
    origine_id: str | None
    origine_nom: str | None
    attribution_bis_user_id: str | None
    attribution_bis_user_nom: str | None
    refus_demarchage: bool
    exception_demarchage: bool
    exception_demarchage_commentaire: str | None
    niveau_interet: Whole | None
    nombre_ouverture_mails: Whole
    derniere_ouverture_mail: str | None
    nombre_visualisation_pages: Whole
    derniere_visualisation_page: str | None
    espace_prospect_url: str | None
    ferme_espace_prospect: bool
    desinscription_mail: bool
    corbeille: bool
    archive: bool
    modules: tuple[str, ...]
    etiquettes: tuple[Etiquette, ...]


class Prospect(Section):
    prospect_id: Key
    civilite: Whole
    civilite_text: str
    nom: str
    prenom: str
    date_naissance: str
    regime: str
    regime_text: str
    telephone: str | None
    mobile: str | None
    telephone_2: str | None
    mail: str | None
    mail_2: str | None
    adresse: str | None
    code_postal: str | None
    ville: str | None
    num_secu: str | None
    num_affiliation: str | None
    situation_familiale: Whole | None
    situation_familiale_text: str | None
    madelin: bool
    profession: str | None
    csp: Whole | None
    csp_text: str | None
    fax: str | None


class Conjoint(Section):
    conjoint_id: str
    civilite: Whole
    civilite_text: str
    nom: str
    prenom: str
    date_naissance: str
    regime: str | None
    regime_text: str | None
    telephone: str | None
    mobile: str | None
    mail: str | None
    profession: str | None
    csp: Whole | None
    csp_text: str | None


class Enfant(Section):
    enfant_id: str
    civilite: Whole
    civilite_text: str
    nom: str
    prenom: str
    date_naissance: str
    regime: str | None
    regime_text: str | None


class AncienContrat(Section):
    deja_assure: bool
    plus_12_mois: bool
    ria_requested: bool
    assureur: str | None
    code_assureur: str | None
    adresse: str | None
    code_postal: str | None
    ville: str | None
    date_souscription: str | None
    date_echeance: str | None
    num_contrat: str | None
    formule: str | None
    cotisation: str | None


class Produit(Section):
    date_effet: str | None
    date_effet_modifiable: str | None
    formule: str | None
    groupe_nom: str | None
    gamme_nom: str | None
    formule_nom: str | None
    cotisation: str | None
    type_contrat: str | None
    type_client: str | None
    logo_url: str | None
    garanties_url: str | None
    dipa_url: str | None
    conditions_generales_url: str | None
    bulletin_adhesion_url: str | None
    devoir_conseil_url: str | None


class Compte(Section):
    account_id: str | None
    titulaire_nom: str | None
    titulaire_prenom: str | None
    titulaire_adresse: str | None
    titulaire_cp: str | None
    titulaire_ville: str | None


class Paiement(Section):
    mode_paiement: str | None
    prelevement_le: str | None
    periodicite: str | None
    pas_coord_bancaires: bool
    compte_prelevement: Compte | None
    compte_virement: Compte | None


class ElementsSouscription(Section):
    souscription_id: str | None
    date_souscription: str | None
    date_signature: str | None
    date_validation: str | None
    num_contrat: str | None
    annulation_contrat: bool
    type_vente: str | None
    vente_a_froid: str | None
    vf_accept: str | None
    ancien_contrat: AncienContrat | None
    produit: Produit | None
    paiement: Paiement | None
    questions_complementaires: JsonMap
    questions_conseil: JsonMap
    raw_data: JsonMap


# The fields of `ElementsSouscription` that may contain any JSON object.
JSON_FIELDS = ("questions_complementaires", "questions_conseil", "raw_data")


class Formule(Section):
    formule_id: str
    nom: str
    prix: str
    details: TextMap


class Gamme(Section):
    nom: str
    logo_url: str | None
    garanties_url: str | None
    conditions_generales_url: str | None
    bulletin_adhesion_url: str | None
    formules: tuple[Formule, ...]


class Tarification(Section):
    nom: str
    gammes: tuple[Gamme, ...]


class AutreContrat(Section):
    contrat_id: str
    type_contrat: str
    assureur: str | None
    numero_contrat: str | None
    date_souscription: str | None
    montant: str | None
    commentaire: str | None


class Mail(Section):
    date_envoi: str
    type_mail: str
    utilisateur: str
    visualisation_url: str | None


class RendezVous(Section):
    rdv_id: str
    etiquette: str | None
    etiquette_color: str | None
    utilisateur: str
    date_debut: str
    date_fin: str | None
    commentaire: str | None
    statut: str | None


class Commentaire(Section):
    commentaire_id: str
    date: str
    utilisateur: str
    texte: str


class Reclamation(Section):
    reclamation_id: str
    date_creation: str
    assureur: str | None
    type_reclamation: str | None
    description: str | None
    statut: str | None
    date_traitement: str | None
    utilisateur_creation: str | None
    utilisateur_traitement: str | None


class Document(Section):
    document_id: str
    type: str
    nom: str
    taille: str
    date_creation: str
    selection_mail: bool
    partage_prospect: bool
    signer: bool
    download_url: str | None


class Alerte(Section):
    alerte_id: str
    etat: str
    date: str
    etiquette: str | None
    libelle: str
    deposee_le: str
    deposee_par: str
    commentaire: str | None
    attribuee_a: str | None
    traitee_le: str | None
    traitee_par: str | None
    commentaire_traitement: str | None
