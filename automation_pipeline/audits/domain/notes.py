"""Lines of the workflow log about an audit, found by its database id."""

from collections.abc import Mapping

from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.core.notes import Note


def audit_note(audit: Standing, message: str, *, level: str = "info", data: Mapping[str, object] | None = None) -> Note:
    return Note("audit", "fiche", audit.fiche_id, str(audit.audit_id), message, level=level, data=data or {})
