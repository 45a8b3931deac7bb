"""What was sold and what exists: `elements_souscription`, `tarification`, `autres_contrats`.

The levels of `tarification` name their parents by position instead of by id: a batch is written without asking the
database for the ids in between.
"""

from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.fiches.tables.sections import OfFiche, RowOfFiche
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import Json, JsonObject


class ElementsSouscriptionRow(OfFiche, Table):
    """An object of the CRM whose fields are all null reads like no object."""

    __tablename__ = "fiche_cache_elements_souscription"

    souscription_id: Mapped[str | None]
    date_souscription: Mapped[str | None]
    date_signature: Mapped[str | None]
    date_validation: Mapped[str | None]
    num_contrat: Mapped[str | None]
    annulation_contrat: Mapped[bool]
    type_vente: Mapped[str | None]
    vente_a_froid: Mapped[str | None]
    vf_accept: Mapped[str | None]
    ancien_deja_assure: Mapped[bool | None]
    ancien_plus_12_mois: Mapped[bool | None]
    ancien_ria_requested: Mapped[bool | None]
    ancien_assureur: Mapped[str | None]
    ancien_code_assureur: Mapped[str | None]
    ancien_adresse: Mapped[str | None]
    ancien_code_postal: Mapped[str | None]
    ancien_ville: Mapped[str | None]
    ancien_date_souscription: Mapped[str | None]
    ancien_date_echeance: Mapped[str | None]
    ancien_num_contrat: Mapped[str | None]
    ancien_formule: Mapped[str | None]
    ancien_cotisation: Mapped[str | None]
    produit_date_effet: Mapped[str | None]
    produit_date_effet_modifiable: Mapped[str | None]
    produit_formule: Mapped[str | None]
    produit_groupe_nom: Mapped[str | None]
    produit_gamme_nom: Mapped[str | None]
    produit_formule_nom: Mapped[str | None]
    produit_cotisation: Mapped[str | None]
    produit_type_contrat: Mapped[str | None]
    produit_type_client: Mapped[str | None]
    produit_logo_url: Mapped[str | None]
    produit_garanties_url: Mapped[str | None]
    produit_dipa_url: Mapped[str | None]
    produit_conditions_generales_url: Mapped[str | None]
    produit_bulletin_adhesion_url: Mapped[str | None]
    produit_devoir_conseil_url: Mapped[str | None]
    paiement_mode_paiement: Mapped[str | None]
    paiement_prelevement_le: Mapped[str | None]
    paiement_periodicite: Mapped[str | None]
    paiement_pas_coord_bancaires: Mapped[bool | None]
    prelevement_account_id: Mapped[str | None]
    prelevement_titulaire_nom: Mapped[str | None]
    prelevement_titulaire_prenom: Mapped[str | None]
    prelevement_titulaire_adresse: Mapped[str | None]
    prelevement_titulaire_cp: Mapped[str | None]
    prelevement_titulaire_ville: Mapped[str | None]
    virement_account_id: Mapped[str | None]
    virement_titulaire_nom: Mapped[str | None]
    virement_titulaire_prenom: Mapped[str | None]
    virement_titulaire_adresse: Mapped[str | None]
    virement_titulaire_cp: Mapped[str | None]
    virement_titulaire_ville: Mapped[str | None]
    questions_complementaires: Mapped[JsonObject] = mapped_column(Json)
    questions_conseil: Mapped[JsonObject] = mapped_column(Json)
    raw_data: Mapped[JsonObject] = mapped_column(Json)


class AutreContratRow(RowOfFiche, Table):
    __tablename__ = "fiche_cache_autres_contrats"

    contrat_id: Mapped[str]
    type_contrat: Mapped[str]
    assureur: Mapped[str | None]
    numero_contrat: Mapped[str | None]
    date_souscription: Mapped[str | None]
    montant: Mapped[str | None]
    commentaire: Mapped[str | None]


class TarificationRow(RowOfFiche, Table):
    __tablename__ = "fiche_cache_tarifications"

    nom: Mapped[str]


class GammeRow(RowOfFiche, Table):
    """A gamme is found by its tarification's `row_index` and its own place in it."""

    __tablename__ = "fiche_cache_tarification_gammes"

    gamme_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    nom: Mapped[str]
    logo_url: Mapped[str | None]
    garanties_url: Mapped[str | None]
    conditions_generales_url: Mapped[str | None]
    bulletin_adhesion_url: Mapped[str | None]


class FormuleRow(RowOfFiche, Table):
    __tablename__ = "fiche_cache_tarification_formules"

    gamme_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    formule_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    formule_id: Mapped[str]
    nom: Mapped[str]
    prix: Mapped[str]


class FormuleDetailRow(RowOfFiche, Table):
    __tablename__ = "fiche_cache_tarification_formule_details"

    gamme_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    formule_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    detail_key: Mapped[str] = mapped_column(primary_key=True)
    detail_value: Mapped[str]
