"""Queries over the guardrails of projects. A project without a row has none, and needs no approval."""

from datetime import datetime

from sqlalchemy import delete
from sqlalchemy.orm import Session

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.policy import Policy, parse_policy
from automation_pipeline.pricing.domain.pricing_rule import TENANT
from automation_pipeline.pricing.tables import PolicyRow
from automation_pipeline.storage.bulk import upsert

_KEY = ("tenant_id", "project_id")


def policy_of(session: Session, project_id: str) -> Policy | None:
    row = session.get(PolicyRow, (TENANT, project_id), populate_existing=True)
    return None if row is None else parse_policy(row.document)


def put(session: Session, project_id: str, policy: Policy, *, actor: str, now: datetime) -> None:
    row = {
        "tenant_id": TENANT,
        "project_id": project_id,
        "document": as_document(policy),
        "updated_by": actor,
        "updated_at": now,
    }
    upsert(session, PolicyRow, [row], key=_KEY, fields=("document", "updated_by", "updated_at"))


def remove(session: Session, project_id: str) -> bool:
    """Whether there was one."""
    gone = delete(PolicyRow).where(PolicyRow.tenant_id == TENANT, PolicyRow.project_id == project_id)
    removed = session.scalars(gone.returning(PolicyRow.project_id).execution_options(synchronize_session=False))
    return removed.one_or_none() is not None
