"""Queries of the sweep, of gauges and of retention."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy import ColumnElement, and_, case, exists, false, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from automation_pipeline.core.logs import correlation_id
from automation_pipeline.enrichment.models import (
    DEFAULT_TENANT,
    ENRICHMENT,
    EnrichmentStatus,
    EnrichmentTrigger,
    Identifiers,
    JobState,
)
from automation_pipeline.enrichment.queries.jobs import OPEN, add_jobs, request_workers
from automation_pipeline.enrichment.queries.requests import Requester
from automation_pipeline.enrichment.rules.evaluation import AGES, GRACE, OLDER, CompanyCoverage
from automation_pipeline.enrichment.tables import (
    CompanyRequestRow,
    CompanyRow,
    EnrichmentJobRow,
    EnrichmentRow,
)
from automation_pipeline.storage.retention import Kind
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.transitions import Transition, TransitionRow, record_transitions

SWEEP = "sweep"
SWEEP_PRIORITY = 1
# A worker that has not begun by then was never there, or is lost.
NOT_BEGUN_SECONDS = 300.0
STALE_REASON, DUE_REASON = "Its time is over.", "It is due."
_GOOD = (EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL)
_REFRESHED = (*_GOOD, EnrichmentStatus.STALE, EnrichmentStatus.FAILED)


def mark_stale(session: Session, now: datetime, freshness: timedelta, limit: int) -> int:
    """Snapshots whose time is over, and the requests that show them. When each is refreshed stays
    as it was planned."""
    query = (
        select(EnrichmentRow)
        .join(CompanyRow, CompanyRow.siren == EnrichmentRow.siren)
        .where(EnrichmentRow.status.in_(_GOOD), CompanyRow.updated_at <= now - freshness)
        .order_by(EnrichmentRow.siren)
        .limit(limit)
        .with_for_update(of=EnrichmentRow, skip_locked=True)
    )
    rows = session.scalars(query).all()
    _mark_stale(session, rows, STALE_REASON, now)
    return len(rows)


def refresh_due(session: Session, now: datetime, limit: int) -> int:
    """Those that are due, the longest first, unless a job is open. A snapshot may be due before its
    time is over, so that what became fresh in one night is not refreshed in one night."""
    is_open = exists().where(
        EnrichmentJobRow.company_siren == EnrichmentRow.siren, EnrichmentJobRow.state.in_(OPEN)
    )
    query = (
        select(EnrichmentRow)
        .where(EnrichmentRow.status.in_(_REFRESHED), EnrichmentRow.due_at <= now, ~is_open)
        .order_by(EnrichmentRow.due_at, EnrichmentRow.siren)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = _without_job(session, session.scalars(query).all())
    _mark_stale(
        session, [row for row in rows if row.status == EnrichmentStatus.SUCCESS], DUE_REASON, now
    )
    asking = Requester(
        tenant_id=DEFAULT_TENANT, correlation_id=correlation_id() or uuid4().hex, actor=SWEEP
    )
    add_jobs(
        session,
        [Identifiers(row.siren) for row in rows],
        EnrichmentTrigger.STALE_SWEEP,
        asking,
        now,
        priority=SWEEP_PRIORITY,
    )
    return len(rows)


def count_open_jobs(session: Session) -> int:
    """Each is going to call every source once, or has."""
    return (
        session.scalar(
            select(func.count())
            .select_from(EnrichmentJobRow)
            .where(EnrichmentJobRow.state.in_(OPEN))
        )
        or 0
    )


def request_lost_jobs(
    session: Session, now: datetime, lock_seconds: float, limit: int
) -> list[JobState]:
    """Requests a worker for every job that no worker began in time, whose worker has not sent a
    heartbeat for longer than its lease lasts, or whose wait for a required source is over. Returns
    the state of each: RUNNING for a job whose worker was lost."""
    was_asked = EnrichmentJobRow.requested_at <= now - timedelta(seconds=NOT_BEGUN_SECONDS)
    is_silent = EnrichmentJobRow.heartbeat_at <= now - timedelta(seconds=lock_seconds)
    asked_since = EnrichmentJobRow.requested_at > now - timedelta(seconds=lock_seconds)
    # It found the lease of another, held by somebody alive or dead, which is over by now.
    has_come = and_(EnrichmentJobRow.heartbeat_at >= EnrichmentJobRow.requested_at, is_silent)
    is_waiting_for_a_source = func.coalesce(EnrichmentJobRow.not_before > now, false())
    wait_is_over = EnrichmentJobRow.requested_at < EnrichmentJobRow.not_before
    is_lost = or_(
        and_(
            EnrichmentJobRow.state == JobState.PENDING,
            ~is_waiting_for_a_source,
            or_(was_asked, has_come, wait_is_over),
        ),
        and_(EnrichmentJobRow.state == JobState.RUNNING, is_silent, ~asked_since),
    )
    is_waiting = exists().where(
        RunRequestRow.request_key == EnrichmentJobRow.request_key, RunRequestRow.state == "waiting"
    )
    query = (
        select(EnrichmentJobRow)
        .where(EnrichmentJobRow.state.in_(OPEN), is_lost, ~is_waiting)
        .order_by(EnrichmentJobRow.id)
        .limit(limit)
    )
    rows = session.scalars(query.with_for_update(skip_locked=True)).all()
    request_workers(session, rows, now)
    return [JobState(row.state) for row in rows]


def _without_job(session: Session, rows: Sequence[EnrichmentRow]) -> list[EnrichmentRow]:
    """Looked at again now that they are locked: somebody may have asked for one meanwhile."""
    its = (
        among(session, EnrichmentJobRow.company_siren, [row.siren for row in rows]),
        EnrichmentJobRow.state.in_(OPEN),
    )
    opened = set(session.scalars(select(EnrichmentJobRow.company_siren).where(*its)))
    return [row for row in rows if row.siren not in opened]


def _mark_stale(
    session: Session, rows: Sequence[EnrichmentRow], reason: str, now: datetime
) -> None:
    moves: list[Transition] = []
    for row in rows:
        frm = EnrichmentStatus(row.status)
        row.status, row.updated_at = ENRICHMENT.move(frm, EnrichmentStatus.STALE), now
        moves.append(
            Transition(ENRICHMENT.name, row.siren, frm, EnrichmentStatus.STALE, SWEEP, now, reason)
        )
    record_transitions(session, moves)
    session.flush()
    session.execute(
        update(CompanyRequestRow)
        .where(among(session, CompanyRequestRow.company_siren, [row.siren for row in rows]))
        .values(enrichment_status=EnrichmentStatus.STALE, updated_at=now)
        .execution_options(synchronize_session=False)
    )


def enrichments_by_status(session: Session) -> Mapping[EnrichmentStatus, int]:
    """All of them, also those that nothing stands in."""
    query = select(EnrichmentRow.status, func.count()).group_by(EnrichmentRow.status)
    found = {EnrichmentStatus(status): count for status, count in session.execute(query).tuples()}
    return {status: found.get(status, 0) for status in EnrichmentStatus}


def stale_backlog(session: Session) -> int:
    """Snapshots whose time is over and that nobody refreshes yet."""
    is_open = (
        select(EnrichmentJobRow.id)
        .where(
            EnrichmentJobRow.company_siren == EnrichmentRow.siren, EnrichmentJobRow.state.in_(OPEN)
        )
        .exists()
    )
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
    age = case(
        *((CompanyRow.updated_at > now - length, name) for name, length in AGES.items()),
        else_=OLDER,
    ).label("age")
    query = select(age, func.count(), func.sum(case((CompanyRow.is_masked, 1), else_=0))).group_by(
        age
    )
    found = session.execute(query).tuples().all()
    counts = {name: count for name, count, _ in found}
    return {name: counts.get(name, 0) for name in (*AGES, OLDER)}, sum(
        int(masked or 0) for _, _, masked in found
    )


def _unexplained(session: Session) -> int:
    says_nothing = or_(
        EnrichmentRow.enrichment_error.is_(None), EnrichmentRow.enrichment_error == ""
    )
    failed = EnrichmentRow.status == EnrichmentStatus.FAILED, says_nothing
    return session.scalar(select(func.count()).select_from(EnrichmentRow).where(*failed)) or 0


def _overdue(session: Session, before: datetime) -> int:
    query = (
        select(func.count())
        .select_from(EnrichmentRow)
        .join(CompanyRow, CompanyRow.siren == EnrichmentRow.siren)
    )
    is_old = EnrichmentRow.status == EnrichmentStatus.SUCCESS, CompanyRow.updated_at <= before
    return session.scalar(query.where(*is_old)) or 0


def _old_jobs(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Not the newest of its company, which is shown with the company."""
    newer = aliased(EnrichmentJobRow)
    has_newer = exists().where(
        newer.company_siren == EnrichmentJobRow.company_siren, newer.id > EnrichmentJobRow.id
    )
    return (
        EnrichmentJobRow.state == JobState.DONE,
        EnrichmentJobRow.finished_at <= before,
        has_newer,
    )


def _old_moves(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Nothing is decided by them: a company's row says how it stands."""
    return TransitionRow.machine == ENRICHMENT.name, TransitionRow.at <= before


JOBS = Kind("enrichment_jobs", EnrichmentJobRow, _old_jobs)
MOVES = Kind("state_transitions, enrichment", TransitionRow, _old_moves)
