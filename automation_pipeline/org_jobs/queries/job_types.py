"""Queries about the job types that organisations define for their agents."""

import re
from collections.abc import Iterable

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.models.job_types import (
    ALIASES,
    TYPE_NAME,
    JobTypeCard,
    job_types,
)
from automation_pipeline.org_jobs.models.jobs import JobType, Performer
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.states import ACTIVE_RUN_STATES
from automation_pipeline.org_jobs.tables import OrgJobRow, OrgJobTypeRow, OrgScheduleRow
from automation_pipeline.storage.statements import among


def own_type(session: Session, org_id: str, name: object) -> dict[str, JobType]:
    """The organisation's type of that name, if it has one."""
    if not isinstance(name, str) or not re.fullmatch(TYPE_NAME, name):
        name = ALIASES.get(name) if isinstance(name, str) else None
    return {} if name is None else own_types(session, [org_id], [name]).get(org_id, {})


def own_types(
    session: Session, org_ids: Iterable[str], names: Iterable[str]
) -> dict[str, dict[str, JobType]]:
    """By organisation and name, in one query."""
    query = select(OrgJobTypeRow).where(
        among(session, OrgJobTypeRow.org_id, org_ids), among(session, OrgJobTypeRow.name, names)
    )
    found: dict[str, dict[str, JobType]] = {}
    for row in session.scalars(query):
        found.setdefault(row.org_id, {})[row.name] = JobType(
            name=row.name,
            performer=Performer.AGENT,
            is_mutation=row.is_mutation,
            limit_seconds=row.limit_seconds,
            payload=row.payload_schema,
            summary=row.summary,
        )
    return found


def list_job_types(session: Session, org_id: str | None) -> list[JobTypeCard]:
    """Those that every organisation has, then those that this one defines instead or besides."""
    if org_id is None:
        return list(job_types())
    query = select(OrgJobTypeRow).where(OrgJobTypeRow.org_id == org_id).order_by(OrgJobTypeRow.name)
    own = {row.name: as_card(row) for row in session.scalars(query)}
    return [*(own.pop(one.name, one) for one in job_types()), *own.values()]


def locked_type(session: Session, org_id: str, name: str, within: OrgScope) -> OrgJobTypeRow:
    query = select(OrgJobTypeRow).where(OrgJobTypeRow.org_id == org_id, OrgJobTypeRow.name == name)
    row = session.scalar(query.with_for_update()) if re.fullmatch(TYPE_NAME, name) else None
    if row is None or not within.includes(org_id):
        raise NotFoundError(f"Job type {name[:100]} not found")
    return row


def count_types(session: Session, org_id: str) -> int:
    query = select(func.count(OrgJobTypeRow.id)).where(OrgJobTypeRow.org_id == org_id)
    return session.scalar(query) or 0


def has_type(session: Session, org_id: str, name: str) -> bool:
    query = exists().where(OrgJobTypeRow.org_id == org_id, OrgJobTypeRow.name == name)
    return bool(session.scalar(select(query)))


def uses_of(session: Session, org_id: str, name: str) -> tuple[int, int]:
    """How many schedules have the type, and how many of its jobs wait or are at work."""
    schedules = select(func.count(OrgScheduleRow.id)).where(
        OrgScheduleRow.org_id == org_id,
        OrgScheduleRow.job_type == name,
        OrgScheduleRow.deleted_at.is_(None),
    )
    jobs = select(func.count(OrgJobRow.id)).where(
        OrgJobRow.org_id == org_id,
        OrgJobRow.type == name,
        OrgJobRow.status.in_(ACTIVE_RUN_STATES),
    )
    return session.scalar(schedules) or 0, session.scalar(jobs) or 0


def as_card(row: OrgJobTypeRow) -> JobTypeCard:
    return JobTypeCard(
        name=row.name,
        performer=Performer.AGENT,
        is_mutation=row.is_mutation,
        limit_seconds=row.limit_seconds,
        summary=row.summary,
        payload_schema=row.payload_schema,
        permission=None,
        aliases=(),
        org_id=row.org_id,
        updated_at=row.updated_at,
    )
