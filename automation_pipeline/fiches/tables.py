"""Tables of the CRM mirror: fiches, the sections of their details, recordings, sales days, and fetch jobs.

Counts of recordings are computed and never stored, because stored counts drift. The columns of a
section are the fields of its model.
"""

from collections.abc import Collection, Mapping
from datetime import date, datetime
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import sqlalchemy as sa
from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import TypeEngine

from automation_pipeline.fiches.models.sections import (
    JSON_FIELDS,
    Alerte,
    AncienContrat,
    AutreContrat,
    Commentaire,
    Compte,
    Conjoint,
    Document,
    ElementsSouscription,
    Enfant,
    Etiquette,
    Formule,
    Gamme,
    Information,
    Mail,
    Paiement,
    Produit,
    Prospect,
    Reclamation,
    RendezVous,
    Section,
    Tarification,
)
from automation_pipeline.storage.types import BigId, Json, JsonObject, Table, TextList, UtcDateTime


class FicheCacheRow(Table):
    """One fiche. Only details set `details_fetched_at`; a sales list does not.

    `not_found_until` is when the not-found marker expires. The marker does not change the columns that hold
    details.
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
        # Few of millions of recordings lack a transcript. A database uses a partial index only for queries
        # that contain its exact condition.
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


def _section_table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    """A table with the rows of one section. Its key is the fiche, and the position if there are several rows."""
    fiche_cache_id = sa.Column(
        "fiche_cache_id",
        BigId,
        ForeignKey("fiche_cache.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    return sa.Table(f"fiche_cache_{name}", Table.metadata, fiche_cache_id, *columns)


def _position(name: str = "row_index") -> sa.Column[int]:
    """The position in the CRM's order, from 1."""
    return sa.Column(name, sa.Integer, primary_key=True, autoincrement=False)


_COLUMN_TYPES: Mapping[object, type[TypeEngine[Any]] | TypeEngine[Any]] = {
    str: sa.String,
    int: sa.Integer,
    bool: sa.Boolean,
    dict: Json,
    tuple: TextList,
}


def _columns(
    kind: type[Section], *excluded: str, prefix: str = "", indexed: Collection[str] = ()
) -> list[sa.Column[Any]]:
    """A column for each field of the section. Columns with a prefix belong to a nested section that may be
    missing, so all of them are nullable."""
    columns: list[sa.Column[Any]] = []
    for name, field in kind.model_fields.items():
        if name in excluded:
            continue
        options = get_args(field.annotation)
        is_nullable = NoneType in options
        annotation = options[0] if is_nullable else field.annotation
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        column_type = _COLUMN_TYPES[get_origin(annotation) or annotation]
        columns.append(
            sa.Column(
                prefix + name,
                column_type,
                nullable=is_nullable or bool(prefix),
                index=name in indexed or None,
            )
        )
    return columns


# Sections with one row per element.
LIST_SECTIONS: Mapping[str, type[Section]] = {
    "enfants": Enfant,
    "mails": Mail,
    "rendez_vous": RendezVous,
    "commentaires": Commentaire,
    "reclamations": Reclamation,
    "autres_contrats": AutreContrat,
    "documents": Document,
    "alertes": Alerte,
}
# Sections with at most one row per fiche.
SINGLE_SECTIONS = ("information", "prospect", "conjoint", "elements_souscription")
# The section tables by their names in the document of a fiche.
SECTION_TABLES: Mapping[str, sa.Table] = {
    # Queries use its columns to select fiches.
    "information": _section_table(
        "information",
        *_columns(Information, "fiche_id", "etiquettes", indexed=("groupe", "attribution_user_id")),
    ),
    "prospect": _section_table("prospects", *_columns(Prospect, indexed=("prospect_id",))),
    "conjoint": _section_table("conjoints", *_columns(Conjoint)),
    # Nested objects are flattened. An object with only null fields is equivalent to a missing object.
    "elements_souscription": _section_table(
        "elements_souscription",
        *_columns(ElementsSouscription, "ancien_contrat", "produit", "paiement", *JSON_FIELDS),
        *_columns(AncienContrat, prefix="ancien_"),
        *_columns(Produit, prefix="produit_"),
        *_columns(Paiement, "compte_prelevement", "compte_virement", prefix="paiement_"),
        *_columns(Compte, prefix="prelevement_"),
        *_columns(Compte, prefix="virement_"),
        *(sa.Column(name, Json, nullable=False) for name in JSON_FIELDS),
    ),
    "etiquettes": _section_table("etiquettes", _position("etiquette_index"), *_columns(Etiquette)),
    **{
        name: _section_table(name, _position(), *_columns(kind))
        for name, kind in LIST_SECTIONS.items()
    },
    "raw_sections": _section_table(
        "raw_sections",
        sa.Column("section_key", sa.String, primary_key=True),
        sa.Column("content", sa.String, nullable=False),
    ),
    # `row_index` is the position of the tarification. Its parts have positions of their own.
    "tarification": _section_table("tarifications", _position(), *_columns(Tarification, "gammes")),
    "tarification_gammes": _section_table(
        "tarification_gammes", _position(), _position("gamme_index"), *_columns(Gamme, "formules")
    ),
    "tarification_formules": _section_table(
        "tarification_formules",
        _position(),
        _position("gamme_index"),
        _position("formule_index"),
        *_columns(Formule, "details"),
    ),
    "tarification_formule_details": _section_table(
        "tarification_formule_details",
        _position(),
        _position("gamme_index"),
        _position("formule_index"),
        sa.Column("detail_key", sa.String, primary_key=True),
        sa.Column("detail_value", sa.String, nullable=False),
    ),
}


INFORMATION = SECTION_TABLES["information"]


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
    # NULL if the requester may not know the total: then the fiches in reach are counted when the job is shown.
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
    attempts: Mapped[int] = mapped_column("attempt", default=0)
    next_retry_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
