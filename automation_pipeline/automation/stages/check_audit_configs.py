"""Refuse audit configurations that do not exist."""

from collections.abc import Iterable

from automation_pipeline.audits.store.configs import known_ids
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.storage.database import Session


def check_audit_configs(session: Session, ids: Iterable[int], complaint: str) -> None:
    asked = set(ids)
    missing = sorted(asked - known_ids(session, asked)) if asked else []
    if missing:
        named = ", ".join(map(str, missing))
        raise InvalidInputError(complaint, (("specificAuditConfigs", f"there is no audit configuration {named}"),))
