"""How enrichments stand: numbers for graphs and for the day's page, each by one query."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import case, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.enrichment.domain.coverage import AGES, GRACE, OLDER, CompanyCoverage
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.store.jobs import OPEN
from automation_pipeline.enrichment.tables import CompanyRow, EnrichmentRow, JobRow


def enrichments_by_status(session: Session) -> Mapping[EnrichmentStatus, int]:
    """All of them, also those that nothing stands in."""
    query = select(EnrichmentRow.status, func.count()).group_by(EnrichmentRow.status)
    found = {EnrichmentStatus(status): count for status, count in session.execute(query).tuples()}
    return {status: found.get(status, 0) for status in EnrichmentStatus}


def stale_backlog(session: Session) -> int:
    """Snapshots whose time is over and that nobody refreshes yet."""
    is_open = select(JobRow.id).where(JobRow.company_siren == EnrichmentRow.siren, JobRow.state.in_(OPEN)).exists()
    stale = EnrichmentRow.status == EnrichmentStatus.STALE, ~is_open
    return session.scalar(select(func.count()).select_from(EnrichmentRow).where(*stale)) or 0


def coverage_of(session: Session, now: datetime, freshness: timedelta) -> CompanyCoverage:
    """Of all companies."""
    ages, masked = _ages(session, now)
    return CompanyCoverage(
        statuses=enrichments_by_status(session),
        ages=ages,
        masked=masked,
        unexplained=_unexplained(session),
        overdue=_overdue(session, now - freshness - GRACE),
    )


def _ages(session: Session, now: datetime) -> tuple[Mapping[str, int], int]:
    age = case(*((CompanyRow.updated_at > now - length, name) for name, length in AGES.items()), else_=OLDER).label(
        "age"
    )
    query = select(age, func.count(), func.sum(case((CompanyRow.is_masked, 1), else_=0))).group_by(age)
    found = session.execute(query).tuples().all()
    counts = {name: count for name, count, _ in found}
    return {name: counts.get(name, 0) for name in (*AGES, OLDER)}, sum(int(masked or 0) for _, _, masked in found)


def _unexplained(session: Session) -> int:
    says_nothing = or_(EnrichmentRow.enrichment_error.is_(None), EnrichmentRow.enrichment_error == "")
    failed = EnrichmentRow.status == EnrichmentStatus.FAILED, says_nothing
    return session.scalar(select(func.count()).select_from(EnrichmentRow).where(*failed)) or 0


def _overdue(session: Session, before: datetime) -> int:
    query = select(func.count()).select_from(EnrichmentRow).join(CompanyRow, CompanyRow.siren == EnrichmentRow.siren)
    is_old = EnrichmentRow.status == EnrichmentStatus.SUCCESS, CompanyRow.updated_at <= before
    return session.scalar(query.where(*is_old)) or 0
