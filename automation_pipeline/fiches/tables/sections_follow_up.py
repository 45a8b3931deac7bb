"""What happened around a fiche, and the CRM's sections in raw form."""

from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.fiches.tables.sections import OfFiche, RowOfFiche
from automation_pipeline.storage.metadata import Table


class MailRow(RowOfFiche, Table):
    __tablename__ = "fiche_cache_mails"

    date_envoi: Mapped[str]
    type_mail: Mapped[str]
    utilisateur: Mapped[str]
    visualisation_url: Mapped[str | None]


class RendezVousRow(RowOfFiche, Table):
    __tablename__ = "fiche_cache_rendez_vous"

    rdv_id: Mapped[str]
    etiquette: Mapped[str | None]
    etiquette_color: Mapped[str | None]
    utilisateur: Mapped[str]
    date_debut: Mapped[str]
    date_fin: Mapped[str | None]
    commentaire: Mapped[str | None]
    statut: Mapped[str | None]


class CommentaireRow(RowOfFiche, Table):
    __tablename__ = "fiche_cache_commentaires"

    commentaire_id: Mapped[str]
    date: Mapped[str]
    utilisateur: Mapped[str]
    texte: Mapped[str]


class ReclamationRow(RowOfFiche, Table):
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


class DocumentRow(RowOfFiche, Table):
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


class AlerteRow(RowOfFiche, Table):
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


class RawSectionRow(OfFiche, Table):
    __tablename__ = "fiche_cache_raw_sections"

    section_key: Mapped[str] = mapped_column(primary_key=True)
    content: Mapped[str]
