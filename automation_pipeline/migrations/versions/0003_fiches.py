"""Details of fiches section by section, days whose sales list was asked for, recordings with their date and name."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import BigId, Json, TextList, UtcDateTime

revision = "0003_fiches"
down_revision = "0002_automation"


def upgrade() -> None:
    op.add_column("fiche_cache", sa.Column("not_found_until", UtcDateTime(), nullable=True))

    op.add_column("recordings", sa.Column("recording_date", sa.String(), nullable=True))
    op.add_column("recordings", sa.Column("recording_time", sa.String(), nullable=True))
    op.add_column("recordings", sa.Column("uuid", sa.String(), nullable=True))
    op.add_column("recordings", sa.Column("vanished_at", UtcDateTime(), nullable=True))
    op.create_index("ix_recordings_recording_date", "recordings", ["recording_date"])

    op.create_table(
        "sales_days",
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("revalidated_at", UtcDateTime(), nullable=False),
        sa.Column("listed", sa.Integer(), nullable=False),
        sa.Column("duplicates", sa.Integer(), nullable=False),
        sa.Column("new", sa.Integer(), nullable=False),
        sa.Column("changed", sa.Integer(), nullable=False),
        sa.Column("missing_cle", sa.Integer(), nullable=False),
        sa.Column("without_recordings", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_sales_days")),
    )

    op.create_table(
        "fiche_cache_information",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("cle", sa.String(), nullable=True),
        sa.Column("date_insertion", sa.String(), nullable=False),
        sa.Column("createur", sa.String(), nullable=True),
        sa.Column("fiches_associees", sa.String(), nullable=True),
        sa.Column("nombre_acces", sa.Integer(), nullable=False),
        sa.Column("dernier_acces", sa.String(), nullable=False),
        sa.Column("groupe", sa.String(), nullable=False),
        sa.Column("groupe_responsable", sa.String(), nullable=True),
        sa.Column("groupe_gestion", sa.String(), nullable=True),
        sa.Column("groupe_reclamation", sa.String(), nullable=True),
        sa.Column("agence_id", sa.String(), nullable=False),
        sa.Column("agence_nom", sa.String(), nullable=False),
        sa.Column("attribution_user_id", sa.String(), nullable=False),
        sa.Column("attribution_user_nom", sa.String(), nullable=False),
        sa.Column("provenance_id", sa.String(), nullable=False),
        sa.Column("provenance_nom", sa.String(), nullable=False),
        sa.Column("provenance_numero", sa.String(), nullable=True),
        sa.Column("provenance_periode_rappel", sa.String(), nullable=True),
        sa.Column("origine_id", sa.String(), nullable=True),
        sa.Column("origine_nom", sa.String(), nullable=True),
        sa.Column("attribution_bis_user_id", sa.String(), nullable=True),
        sa.Column("attribution_bis_user_nom", sa.String(), nullable=True),
        sa.Column("refus_demarchage", sa.Boolean(), nullable=False),
        sa.Column("exception_demarchage", sa.Boolean(), nullable=False),
        sa.Column("exception_demarchage_commentaire", sa.String(), nullable=True),
        sa.Column("niveau_interet", sa.Integer(), nullable=True),
        sa.Column("nombre_ouverture_mails", sa.Integer(), nullable=False),
        sa.Column("derniere_ouverture_mail", sa.String(), nullable=True),
        sa.Column("nombre_visualisation_pages", sa.Integer(), nullable=False),
        sa.Column("derniere_visualisation_page", sa.String(), nullable=True),
        sa.Column("espace_prospect_url", sa.String(), nullable=True),
        sa.Column("ferme_espace_prospect", sa.Boolean(), nullable=False),
        sa.Column("desinscription_mail", sa.Boolean(), nullable=False),
        sa.Column("corbeille", sa.Boolean(), nullable=False),
        sa.Column("archive", sa.Boolean(), nullable=False),
        sa.Column("modules", TextList, nullable=False),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_information_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", name=op.f("pk_fiche_cache_information")),
    )
    op.create_index(
        "ix_fiche_cache_information_attribution_user_id", "fiche_cache_information", ["attribution_user_id"]
    )
    op.create_index("ix_fiche_cache_information_groupe", "fiche_cache_information", ["groupe"])

    op.create_table(
        "fiche_cache_etiquettes",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("etiquette_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("nom", sa.String(), nullable=False),
        sa.Column("date", sa.String(), nullable=False),
        sa.Column("style", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_etiquettes_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "etiquette_index", name=op.f("pk_fiche_cache_etiquettes")),
    )

    op.create_table(
        "fiche_cache_prospects",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("prospect_id", sa.String(), nullable=False),
        sa.Column("civilite", sa.Integer(), nullable=False),
        sa.Column("civilite_text", sa.String(), nullable=False),
        sa.Column("nom", sa.String(), nullable=False),
        sa.Column("prenom", sa.String(), nullable=False),
        sa.Column("date_naissance", sa.String(), nullable=False),
        sa.Column("regime", sa.String(), nullable=False),
        sa.Column("regime_text", sa.String(), nullable=False),
        sa.Column("telephone", sa.String(), nullable=True),
        sa.Column("mobile", sa.String(), nullable=True),
        sa.Column("telephone_2", sa.String(), nullable=True),
        sa.Column("mail", sa.String(), nullable=True),
        sa.Column("mail_2", sa.String(), nullable=True),
        sa.Column("adresse", sa.String(), nullable=True),
        sa.Column("code_postal", sa.String(), nullable=True),
        sa.Column("ville", sa.String(), nullable=True),
        sa.Column("num_secu", sa.String(), nullable=True),
        sa.Column("num_affiliation", sa.String(), nullable=True),
        sa.Column("situation_familiale", sa.Integer(), nullable=True),
        sa.Column("situation_familiale_text", sa.String(), nullable=True),
        sa.Column("madelin", sa.Boolean(), nullable=False),
        sa.Column("profession", sa.String(), nullable=True),
        sa.Column("csp", sa.Integer(), nullable=True),
        sa.Column("csp_text", sa.String(), nullable=True),
        sa.Column("fax", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_prospects_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", name=op.f("pk_fiche_cache_prospects")),
    )
    op.create_index("ix_fiche_cache_prospects_prospect_id", "fiche_cache_prospects", ["prospect_id"])

    op.create_table(
        "fiche_cache_conjoints",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("conjoint_id", sa.String(), nullable=False),
        sa.Column("civilite", sa.Integer(), nullable=False),
        sa.Column("civilite_text", sa.String(), nullable=False),
        sa.Column("nom", sa.String(), nullable=False),
        sa.Column("prenom", sa.String(), nullable=False),
        sa.Column("date_naissance", sa.String(), nullable=False),
        sa.Column("regime", sa.String(), nullable=True),
        sa.Column("regime_text", sa.String(), nullable=True),
        sa.Column("telephone", sa.String(), nullable=True),
        sa.Column("mobile", sa.String(), nullable=True),
        sa.Column("mail", sa.String(), nullable=True),
        sa.Column("profession", sa.String(), nullable=True),
        sa.Column("csp", sa.Integer(), nullable=True),
        sa.Column("csp_text", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_conjoints_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", name=op.f("pk_fiche_cache_conjoints")),
    )

    op.create_table(
        "fiche_cache_enfants",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("enfant_id", sa.String(), nullable=False),
        sa.Column("civilite", sa.Integer(), nullable=False),
        sa.Column("civilite_text", sa.String(), nullable=False),
        sa.Column("nom", sa.String(), nullable=False),
        sa.Column("prenom", sa.String(), nullable=False),
        sa.Column("date_naissance", sa.String(), nullable=False),
        sa.Column("regime", sa.String(), nullable=True),
        sa.Column("regime_text", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_enfants_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "row_index", name=op.f("pk_fiche_cache_enfants")),
    )

    op.create_table(
        "fiche_cache_mails",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("date_envoi", sa.String(), nullable=False),
        sa.Column("type_mail", sa.String(), nullable=False),
        sa.Column("utilisateur", sa.String(), nullable=False),
        sa.Column("visualisation_url", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"], ["fiche_cache.id"], name=op.f("fk_fiche_cache_mails_fiche_cache_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "row_index", name=op.f("pk_fiche_cache_mails")),
    )

    op.create_table(
        "fiche_cache_rendez_vous",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("rdv_id", sa.String(), nullable=False),
        sa.Column("etiquette", sa.String(), nullable=True),
        sa.Column("etiquette_color", sa.String(), nullable=True),
        sa.Column("utilisateur", sa.String(), nullable=False),
        sa.Column("date_debut", sa.String(), nullable=False),
        sa.Column("date_fin", sa.String(), nullable=True),
        sa.Column("commentaire", sa.String(), nullable=True),
        sa.Column("statut", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_rendez_vous_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "row_index", name=op.f("pk_fiche_cache_rendez_vous")),
    )

    op.create_table(
        "fiche_cache_commentaires",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("commentaire_id", sa.String(), nullable=False),
        sa.Column("date", sa.String(), nullable=False),
        sa.Column("utilisateur", sa.String(), nullable=False),
        sa.Column("texte", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_commentaires_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "row_index", name=op.f("pk_fiche_cache_commentaires")),
    )

    op.create_table(
        "fiche_cache_reclamations",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("reclamation_id", sa.String(), nullable=False),
        sa.Column("date_creation", sa.String(), nullable=False),
        sa.Column("assureur", sa.String(), nullable=True),
        sa.Column("type_reclamation", sa.String(), nullable=True),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("statut", sa.String(), nullable=True),
        sa.Column("date_traitement", sa.String(), nullable=True),
        sa.Column("utilisateur_creation", sa.String(), nullable=True),
        sa.Column("utilisateur_traitement", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_reclamations_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "row_index", name=op.f("pk_fiche_cache_reclamations")),
    )

    op.create_table(
        "fiche_cache_documents",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("nom", sa.String(), nullable=False),
        sa.Column("taille", sa.String(), nullable=False),
        sa.Column("date_creation", sa.String(), nullable=False),
        sa.Column("selection_mail", sa.Boolean(), nullable=False),
        sa.Column("partage_prospect", sa.Boolean(), nullable=False),
        sa.Column("signer", sa.Boolean(), nullable=False),
        sa.Column("download_url", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_documents_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "row_index", name=op.f("pk_fiche_cache_documents")),
    )

    op.create_table(
        "fiche_cache_alertes",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("alerte_id", sa.String(), nullable=False),
        sa.Column("etat", sa.String(), nullable=False),
        sa.Column("date", sa.String(), nullable=False),
        sa.Column("etiquette", sa.String(), nullable=True),
        sa.Column("libelle", sa.String(), nullable=False),
        sa.Column("deposee_le", sa.String(), nullable=False),
        sa.Column("deposee_par", sa.String(), nullable=False),
        sa.Column("commentaire", sa.String(), nullable=True),
        sa.Column("attribuee_a", sa.String(), nullable=True),
        sa.Column("traitee_le", sa.String(), nullable=True),
        sa.Column("traitee_par", sa.String(), nullable=True),
        sa.Column("commentaire_traitement", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_alertes_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "row_index", name=op.f("pk_fiche_cache_alertes")),
    )

    op.create_table(
        "fiche_cache_raw_sections",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("section_key", sa.String(), nullable=False),
        sa.Column("content", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_raw_sections_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "section_key", name=op.f("pk_fiche_cache_raw_sections")),
    )

    op.create_table(
        "fiche_cache_elements_souscription",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("souscription_id", sa.String(), nullable=True),
        sa.Column("date_souscription", sa.String(), nullable=True),
        sa.Column("date_signature", sa.String(), nullable=True),
        sa.Column("date_validation", sa.String(), nullable=True),
        sa.Column("num_contrat", sa.String(), nullable=True),
        sa.Column("annulation_contrat", sa.Boolean(), nullable=False),
        sa.Column("type_vente", sa.String(), nullable=True),
        sa.Column("vente_a_froid", sa.String(), nullable=True),
        sa.Column("vf_accept", sa.String(), nullable=True),
        sa.Column("ancien_deja_assure", sa.Boolean(), nullable=True),
        sa.Column("ancien_plus_12_mois", sa.Boolean(), nullable=True),
        sa.Column("ancien_ria_requested", sa.Boolean(), nullable=True),
        sa.Column("ancien_assureur", sa.String(), nullable=True),
        sa.Column("ancien_code_assureur", sa.String(), nullable=True),
        sa.Column("ancien_adresse", sa.String(), nullable=True),
        sa.Column("ancien_code_postal", sa.String(), nullable=True),
        sa.Column("ancien_ville", sa.String(), nullable=True),
        sa.Column("ancien_date_souscription", sa.String(), nullable=True),
        sa.Column("ancien_date_echeance", sa.String(), nullable=True),
        sa.Column("ancien_num_contrat", sa.String(), nullable=True),
        sa.Column("ancien_formule", sa.String(), nullable=True),
        sa.Column("ancien_cotisation", sa.String(), nullable=True),
        sa.Column("produit_date_effet", sa.String(), nullable=True),
        sa.Column("produit_date_effet_modifiable", sa.String(), nullable=True),
        sa.Column("produit_formule", sa.String(), nullable=True),
        sa.Column("produit_groupe_nom", sa.String(), nullable=True),
        sa.Column("produit_gamme_nom", sa.String(), nullable=True),
        sa.Column("produit_formule_nom", sa.String(), nullable=True),
        sa.Column("produit_cotisation", sa.String(), nullable=True),
        sa.Column("produit_type_contrat", sa.String(), nullable=True),
        sa.Column("produit_type_client", sa.String(), nullable=True),
        sa.Column("produit_logo_url", sa.String(), nullable=True),
        sa.Column("produit_garanties_url", sa.String(), nullable=True),
        sa.Column("produit_dipa_url", sa.String(), nullable=True),
        sa.Column("produit_conditions_generales_url", sa.String(), nullable=True),
        sa.Column("produit_bulletin_adhesion_url", sa.String(), nullable=True),
        sa.Column("produit_devoir_conseil_url", sa.String(), nullable=True),
        sa.Column("paiement_mode_paiement", sa.String(), nullable=True),
        sa.Column("paiement_prelevement_le", sa.String(), nullable=True),
        sa.Column("paiement_periodicite", sa.String(), nullable=True),
        sa.Column("paiement_pas_coord_bancaires", sa.Boolean(), nullable=True),
        sa.Column("prelevement_account_id", sa.String(), nullable=True),
        sa.Column("prelevement_titulaire_nom", sa.String(), nullable=True),
        sa.Column("prelevement_titulaire_prenom", sa.String(), nullable=True),
        sa.Column("prelevement_titulaire_adresse", sa.String(), nullable=True),
        sa.Column("prelevement_titulaire_cp", sa.String(), nullable=True),
        sa.Column("prelevement_titulaire_ville", sa.String(), nullable=True),
        sa.Column("virement_account_id", sa.String(), nullable=True),
        sa.Column("virement_titulaire_nom", sa.String(), nullable=True),
        sa.Column("virement_titulaire_prenom", sa.String(), nullable=True),
        sa.Column("virement_titulaire_adresse", sa.String(), nullable=True),
        sa.Column("virement_titulaire_cp", sa.String(), nullable=True),
        sa.Column("virement_titulaire_ville", sa.String(), nullable=True),
        sa.Column("questions_complementaires", Json, nullable=False),
        sa.Column("questions_conseil", Json, nullable=False),
        sa.Column("raw_data", Json, nullable=False),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_elements_souscription_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", name=op.f("pk_fiche_cache_elements_souscription")),
    )

    op.create_table(
        "fiche_cache_autres_contrats",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("contrat_id", sa.String(), nullable=False),
        sa.Column("type_contrat", sa.String(), nullable=False),
        sa.Column("assureur", sa.String(), nullable=True),
        sa.Column("numero_contrat", sa.String(), nullable=True),
        sa.Column("date_souscription", sa.String(), nullable=True),
        sa.Column("montant", sa.String(), nullable=True),
        sa.Column("commentaire", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_autres_contrats_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "row_index", name=op.f("pk_fiche_cache_autres_contrats")),
    )

    op.create_table(
        "fiche_cache_tarifications",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("nom", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_tarifications_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("fiche_cache_id", "row_index", name=op.f("pk_fiche_cache_tarifications")),
    )

    op.create_table(
        "fiche_cache_tarification_gammes",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("gamme_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("nom", sa.String(), nullable=False),
        sa.Column("logo_url", sa.String(), nullable=True),
        sa.Column("garanties_url", sa.String(), nullable=True),
        sa.Column("conditions_generales_url", sa.String(), nullable=True),
        sa.Column("bulletin_adhesion_url", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_tarification_gammes_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "fiche_cache_id", "row_index", "gamme_index", name=op.f("pk_fiche_cache_tarification_gammes")
        ),
    )

    op.create_table(
        "fiche_cache_tarification_formules",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("gamme_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("formule_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("formule_id", sa.String(), nullable=False),
        sa.Column("nom", sa.String(), nullable=False),
        sa.Column("prix", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_tarification_formules_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "fiche_cache_id",
            "row_index",
            "gamme_index",
            "formule_index",
            name=op.f("pk_fiche_cache_tarification_formules"),
        ),
    )

    op.create_table(
        "fiche_cache_tarification_formule_details",
        sa.Column("fiche_cache_id", BigId, autoincrement=False, nullable=False),
        sa.Column("row_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("gamme_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("formule_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("detail_key", sa.String(), nullable=False),
        sa.Column("detail_value", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"],
            ["fiche_cache.id"],
            name=op.f("fk_fiche_cache_tarification_formule_details_fiche_cache_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "fiche_cache_id",
            "row_index",
            "gamme_index",
            "formule_index",
            "detail_key",
            name=op.f("pk_fiche_cache_tarification_formule_details"),
        ),
    )
