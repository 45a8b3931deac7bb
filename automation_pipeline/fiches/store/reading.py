"""One fiche as it is mirrored, whole: what people look at."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import inspect, select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.instants import iso
from automation_pipeline.fiches.store.details import NOT_FOUND
from automation_pipeline.fiches.tables import (
    AlerteRow,
    AutreContratRow,
    CommentaireRow,
    ConjointRow,
    DocumentRow,
    ElementsSouscriptionRow,
    EnfantRow,
    EtiquetteRow,
    FicheCache,
    FormuleDetailRow,
    FormuleRow,
    GammeRow,
    InformationRow,
    MailRow,
    ProspectRow,
    RawSectionRow,
    ReclamationRow,
    RecordingRow,
    RendezVousRow,
    TarificationRow,
)
from automation_pipeline.storage.metadata import Table

_ONE: Mapping[str, type[Table]] = {
    "information": InformationRow,
    "prospect": ProspectRow,
    "conjoint": ConjointRow,
    "elements_souscription": ElementsSouscriptionRow,
}
_MANY: Mapping[str, type[Table]] = {
    "etiquettes": EtiquetteRow,
    "enfants": EnfantRow,
    "mails": MailRow,
    "rendez_vous": RendezVousRow,
    "commentaires": CommentaireRow,
    "reclamations": ReclamationRow,
    "autres_contrats": AutreContratRow,
    "documents": DocumentRow,
    "alertes": AlerteRow,
    "raw_sections": RawSectionRow,
    "tarification": TarificationRow,
    "tarification_gammes": GammeRow,
    "tarification_formules": FormuleRow,
    "tarification_formule_details": FormuleDetailRow,
}
_HIDDEN = {"id", "fiche_cache_id"}

Document = dict[str, object]


def fiche_document(session: Session, fiche_id: str) -> Document:
    fiche = session.scalar(select(FicheCache).where(FicheCache.fiche_id == fiche_id))
    if fiche is None:
        raise NotFoundError(f"Fiche {fiche_id} is not mirrored: `automation fiches sync` brings it.")
    one = {name: next(iter(_rows(session, table, fiche.id)), None) for name, table in _ONE.items()}
    many = {name: _rows(session, table, fiche.id) for name, table in _MANY.items()}
    recordings = _rows(session, RecordingRow, fiche.id)
    recordings.sort(key=lambda recording: str(recording["start_time"]))
    return {**_document(fiche), "state": _state(fiche), **one, **many, "recordings": recordings}


def _state(fiche: FicheCache) -> str:
    if fiche.details_success is False and fiche.details_message == NOT_FOUND:
        return "not found"
    return "full details" if fiche.details_fetched_at else "sales list only"


def _rows(session: Session, table: type[Table], fiche_cache_id: int) -> list[Document]:
    query = select(table).where(table.__table__.c.fiche_cache_id == fiche_cache_id)
    return [_document(row) for row in session.scalars(query.order_by(*inspect(table).primary_key))]


def _document(row: Table) -> Document:
    columns = [column.key for column in inspect(type(row)).column_attrs]
    return {name: _json(getattr(row, name)) for name in columns if name not in _HIDDEN}


def _json(value: object) -> object:
    return iso(value) if isinstance(value, datetime) else value
