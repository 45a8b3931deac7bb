"""An audit's row as people read it, with what its fiche and its configuration are called."""

from datetime import datetime
from decimal import Decimal

from pydantic.alias_generators import to_camel
from sqlalchemy import ColumnElement, inspect, select

from automation_pipeline.audits.store.conditions import GROUPE
from automation_pipeline.audits.tables import AuditConfigRow, AuditRow
from automation_pipeline.core.instants import iso
from automation_pipeline.fiches.tables import FicheCache

Document = dict[str, object]
Found = tuple[AuditRow, str, str | None, str | None, str | None, str]

_HIDDEN = {"fiche_cache_id", "config_fingerprint", "fence", "touched_at", "result_data", "timeline_fingerprint"}
_IDS = {"id", "audit_config_id", "automation_schedule_id", "automation_run_id"}
_NAMES = [column.key for column in inspect(AuditRow).column_attrs if column.key not in _HIDDEN]


def audits_where(*conditions: ColumnElement[bool]):  # noqa: ANN201  SQLAlchemy's own type names every column
    """What `audit_row_document` reads."""
    fiche = (FicheCache.fiche_id, GROUPE, FicheCache.prospect_prenom, FicheCache.prospect_nom)
    return (
        select(AuditRow, *fiche, AuditConfigRow.name)
        .join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
        .where(*conditions)
        .execution_options(populate_existing=True)
    )


def audit_row_document(found: Found) -> Document:
    """Its result has no steps."""
    row, fiche_id, groupe, first_name, last_name, config_name = found
    return {
        **{to_camel(name): _json(name, getattr(row, name)) for name in _NAMES},
        "ficheId": fiche_id,
        "groupe": groupe,
        "prospectName": " ".join(filter(None, (first_name, last_name))),
        "auditConfigName": config_name,
        "resultData": row.result_data,
    }


def _json(name: str, value: object) -> object:
    if name in _IDS:
        return None if value is None else str(value)
    if isinstance(value, datetime):
        return iso(value)
    return float(value) if isinstance(value, Decimal) else value
