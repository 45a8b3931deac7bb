"""Tables of the CRM mirror: fiches, sections of their details, recordings, sales days, and fetch
jobs.

Counts of recordings are derived, never stored: stored counts drift.
"""

from collections.abc import Sequence
from datetime import date, datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.types import BigId, Json, JsonObject, Table, TextList, UtcDateTime


class FicheCacheRow(Table):
    """One fiche. Only details set `details_fetched_at`; a sales list does not.

    `not_found_until` is when the not-found marker expires. The marker leaves the other columns
    unchanged.
    """

    __tablename__ = "fiche_cache"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    fiche_id: Mapped[str] = mapped_column(unique=True)
    groupe: Mapped[str | None] = mapped_column(index=True)
    agence_nom: Mapped[str | None]
    prospect_nom: Mapped[str | None]
    prospect_prenom: Mapped[str | None]
    prospect_email: Mapped[str | None]
    prospect_tel: Mapped[str | None]
    sales_date: Mapped[str | None] = mapped_column(index=True)
    cle: Mapped[str | None]
    details_success: Mapped[bool | None]
    details_message: Mapped[str | None]
    raw_data: Mapped[JsonObject] = mapped_column(Json)
    fetched_at: Mapped[datetime] = mapped_column(UtcDateTime)
    details_fetched_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    not_found_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    last_revalidated_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)


class CallRecordingRow(Table):
    """One call of a fiche. An empty URL means no audio. `vanished_at` is when the CRM's details no
    longer contained the call."""

    __tablename__ = "recordings"
    __table_args__ = (
        UniqueConstraint("fiche_cache_id", "call_id"),
        # Few of millions of recordings lack a transcript. Each database uses the index only for the
        # exact expression that its queries contain.
        Index(
            "ix_recordings_untranscribed",
            "fiche_cache_id",
            postgresql_where=text("has_transcription IS false AND vanished_at IS NULL"),
            sqlite_where=text("has_transcription IS 0 AND vanished_at IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    fiche_cache_id: Mapped[int] = mapped_column(ForeignKey("fiche_cache.id", ondelete="CASCADE"))
    call_id: Mapped[str] = mapped_column(index=True)
    recording_url: Mapped[str]
    recording_date: Mapped[str | None] = mapped_column(index=True)
    recording_time: Mapped[str | None]
    uuid: Mapped[str | None]
    start_time: Mapped[datetime] = mapped_column(UtcDateTime)
    duration_seconds: Mapped[int]
    direction: Mapped[str]
    from_number: Mapped[str]
    to_number: Mapped[str]
    answered: Mapped[bool]
    vanished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Only transcription writes these columns; data from the CRM does not change them.
    has_transcription: Mapped[bool] = mapped_column(server_default=false())
    transcription_id: Mapped[str | None]
    transcription_text: Mapped[str | None]
    transcription_language_code: Mapped[str | None]
    transcription_language_probability: Mapped[float | None]
    transcribed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class FicheKey:
    """The primary key of a section: one row per fiche, unless the table adds columns."""

    fiche_cache_id: Mapped[int] = mapped_column(
        BigId,
        ForeignKey("fiche_cache.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        sort_order=-2,
    )


class NumberedFicheKey(FicheKey):
    """`row_index` counts from 1 in the CRM's order."""

    row_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, sort_order=-1)


class InformationRow(FicheKey, Table):
    __tablename__ = "fiche_cache_information"

    cle: Mapped[str | None]
    date_insertion: Mapped[str]
    createur: Mapped[str | None]
    fiches_associees: Mapped[str | None]
    nombre_acces: Mapped[int]
    dernier_acces: Mapped[str]
    groupe: Mapped[str] = mapped_column(index=True)
    groupe_responsable: Mapped[str | None]
    groupe_gestion: Mapped[str | None]
    groupe_reclamation: Mapped[str | None]
    agence_id: Mapped[str]
    agence_nom: Mapped[str]
    attribution_user_id: Mapped[str] = mapped_column(index=True)
    attribution_user_nom: Mapped[str]
    provenance_id: Mapped[str]
    provenance_nom: Mapped[str]
    provenance_numero: Mapped[str | None]
    provenance_periode_rappel: Mapped[str | None]
    origine_id: Mapped[str | None]
    origine_nom: Mapped[str | None]
    attribution_bis_user_id: Mapped[str | None]
    attribution_bis_user_nom: Mapped[str | None]
    refus_demarchage: Mapped[bool]
    exception_demarchage: Mapped[bool]
    exception_demarchage_commentaire: Mapped[str | None]
    niveau_interet: Mapped[int | None]
    nombre_ouverture_mails: Mapped[int]
    derniere_ouverture_mail: Mapped[str | None]
    nombre_visualisation_pages: Mapped[int]
    derniere_visualisation_page: Mapped[str | None]
    espace_prospect_url: Mapped[str | None]
    ferme_espace_prospect: Mapped[bool]
    desinscription_mail: Mapped[bool]
    corbeille: Mapped[bool]
    archive: Mapped[bool]
    modules: Mapped[Sequence[str]] = mapped_column(TextList)


class EtiquetteRow(FicheKey, Table):
    __tablename__ = "fiche_cache_etiquettes"

    etiquette_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    nom: Mapped[str]
    date: Mapped[str]
    style: Mapped[str]


class ProspectRow(FicheKey, Table):
    __tablename__ = "fiche_cache_prospects"

    prospect_id: Mapped[str] = mapped_column(index=True)
    civilite: Mapped[int]
    civilite_text: Mapped[str]
    nom: Mapped[str]
    prenom: Mapped[str]
    date_naissance: Mapped[str]
    regime: Mapped[str]
    regime_text: Mapped[str]
    telephone: Mapped[str | None]
    mobile: Mapped[str | None]
    telephone_2: Mapped[str | None]
    mail: Mapped[str | None]
    mail_2: Mapped[str | None]
    adresse: Mapped[str | None]
    code_postal: Mapped[str | None]
    ville: Mapped[str | None]
    num_secu: Mapped[str | None]
    num_affiliation: Mapped[str | None]
    situation_familiale: Mapped[int | None]
    situation_familiale_text: Mapped[str | None]
    madelin: Mapped[bool]
    profession: Mapped[str | None]
    csp: Mapped[int | None]
    csp_text: Mapped[str | None]
    fax: Mapped[str | None]


class ConjointRow(FicheKey, Table):
    __tablename__ = "fiche_cache_conjoints"

    conjoint_id: Mapped[str]
    civilite: Mapped[int]
    civilite_text: Mapped[str]
    nom: Mapped[str]
    prenom: Mapped[str]
    date_naissance: Mapped[str]
    regime: Mapped[str | None]
    regime_text: Mapped[str | None]
    telephone: Mapped[str | None]
    mobile: Mapped[str | None]
    mail: Mapped[str | None]
    profession: Mapped[str | None]
    csp: Mapped[int | None]
    csp_text: Mapped[str | None]


class EnfantRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_enfants"

    enfant_id: Mapped[str]
    civilite: Mapped[int]
    civilite_text: Mapped[str]
    nom: Mapped[str]
    prenom: Mapped[str]
    date_naissance: Mapped[str]
    regime: Mapped[str | None]
    regime_text: Mapped[str | None]


class ElementsSouscriptionRow(FicheKey, Table):
    """The flattened subscription. A nested object whose fields are all null equals no object."""

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


class AutreContratRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_autres_contrats"

    contrat_id: Mapped[str]
    type_contrat: Mapped[str]
    assureur: Mapped[str | None]
    numero_contrat: Mapped[str | None]
    date_souscription: Mapped[str | None]
    montant: Mapped[str | None]
    commentaire: Mapped[str | None]


class TarificationRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_tarifications"

    nom: Mapped[str]


class GammeRow(NumberedFicheKey, Table):
    """`row_index` is the tarification's, `gamme_index` the position in it."""

    __tablename__ = "fiche_cache_tarification_gammes"

    gamme_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    nom: Mapped[str]
    logo_url: Mapped[str | None]
    garanties_url: Mapped[str | None]
    conditions_generales_url: Mapped[str | None]
    bulletin_adhesion_url: Mapped[str | None]


class FormuleRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_tarification_formules"

    gamme_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    formule_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    formule_id: Mapped[str]
    nom: Mapped[str]
    prix: Mapped[str]


class FormuleDetailRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_tarification_formule_details"

    gamme_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    formule_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    detail_key: Mapped[str] = mapped_column(primary_key=True)
    detail_value: Mapped[str]


class MailRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_mails"

    date_envoi: Mapped[str]
    type_mail: Mapped[str]
    utilisateur: Mapped[str]
    visualisation_url: Mapped[str | None]


class RendezVousRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_rendez_vous"

    rdv_id: Mapped[str]
    etiquette: Mapped[str | None]
    etiquette_color: Mapped[str | None]
    utilisateur: Mapped[str]
    date_debut: Mapped[str]
    date_fin: Mapped[str | None]
    commentaire: Mapped[str | None]
    statut: Mapped[str | None]


class CommentaireRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_commentaires"

    commentaire_id: Mapped[str]
    date: Mapped[str]
    utilisateur: Mapped[str]
    texte: Mapped[str]


class ReclamationRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_reclamations"

    reclamation_id: Mapped[str]
    date_creation: Mapped[str]
    assureur: Mapped[str | None]
    type_reclamation: Mapped[str | None]
    description: Mapped[str | None]
    statut: Mapped[str | None]
    date_traitement: Mapped[str | None]
    utilisateur_creation: Mapped[str | None]
    utilisateur_traitement: Mapped[str | None]


class FicheDocumentRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_documents"

    document_id: Mapped[str]
    type: Mapped[str]
    nom: Mapped[str]
    taille: Mapped[str]
    date_creation: Mapped[str]
    selection_mail: Mapped[bool]
    partage_prospect: Mapped[bool]
    signer: Mapped[bool]
    download_url: Mapped[str | None]


class AlerteRow(NumberedFicheKey, Table):
    __tablename__ = "fiche_cache_alertes"

    alerte_id: Mapped[str]
    etat: Mapped[str]
    date: Mapped[str]
    etiquette: Mapped[str | None]
    libelle: Mapped[str]
    deposee_le: Mapped[str]
    deposee_par: Mapped[str]
    commentaire: Mapped[str | None]
    attribuee_a: Mapped[str | None]
    traitee_le: Mapped[str | None]
    traitee_par: Mapped[str | None]
    commentaire_traitement: Mapped[str | None]


class RawSectionRow(FicheKey, Table):
    __tablename__ = "fiche_cache_raw_sections"

    section_key: Mapped[str] = mapped_column(primary_key=True)
    content: Mapped[str]


class SalesDayRow(Table):
    """One sales day. `day` is YYYY-MM-DD; the counts are those of the last valid list."""

    __tablename__ = "sales_days"

    day: Mapped[str] = mapped_column(primary_key=True)
    revalidated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    listed: Mapped[int]
    duplicates: Mapped[int]
    new: Mapped[int]
    changed: Mapped[int]
    missing_cle: Mapped[int]
    without_recordings: Mapped[int]


class FetchJobRow(Table):
    """One fetch job. Each requested day is fetched, remaining or failed."""

    __tablename__ = "progressive_fetch_jobs"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'processing', 'complete', 'failed')", name="status"),
        Index(None, "start_date", "end_date"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    start_date: Mapped[date]
    end_date: Mapped[date]
    status: Mapped[str] = mapped_column(index=True)
    total_days: Mapped[int]
    dates_already_fetched: Mapped[list[str]] = mapped_column(TextList)
    dates_remaining: Mapped[list[str]] = mapped_column(TextList)
    dates_failed: Mapped[list[str]] = mapped_column(TextList)
    # NULL where the requester may not know it; the fiches in reach are counted when the job is shown.
    total_fiches: Mapped[int | None]
    webhook_url: Mapped[str | None]
    webhook_secret: Mapped[str | None]
    error: Mapped[str | None]
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    completed_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)


class FetchDeliveryRow(Table):
    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        CheckConstraint("event IN ('progress', 'complete', 'failed')", name="event"),
        CheckConstraint("status IN ('pending', 'sent', 'failed')", name="status"),
        Index(None, "status", "next_retry_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[str] = mapped_column(
        ForeignKey("progressive_fetch_jobs.id", ondelete="CASCADE"), index=True
    )
    event: Mapped[str]
    url: Mapped[str]
    payload: Mapped[JsonObject] = mapped_column(Json)
    status: Mapped[str]
    status_code: Mapped[int | None]
    response_body: Mapped[str | None]
    last_error: Mapped[str | None]
    attempt: Mapped[int] = mapped_column(default=0)
    next_retry_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
