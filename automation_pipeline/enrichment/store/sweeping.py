"""What the sweep finds and writes: old snapshots, enrichments that are due, jobs whose worker is lost."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy import and_, exists, false, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.correlation import correlation_id
from automation_pipeline.enrichment.domain.identifiers import Identifiers
from automation_pipeline.enrichment.domain.states import ENRICHMENT, EnrichmentStatus
from automation_pipeline.enrichment.domain.vocabulary import DEFAULT_TENANT, JobState, Trigger
from automation_pipeline.enrichment.store.jobs import OPEN, add_jobs, ask_for_workers
from automation_pipeline.enrichment.store.requests import Asking
from automation_pipeline.enrichment.tables import CompanyRequestRow, CompanyRow, EnrichmentRow, JobRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.transitions import Transition, record_transitions

SWEEP = "sweep"
LOW = 1
# A worker that has not begun by then was never there, or is lost.
NOT_BEGUN_SECONDS = 300.0
TOO_OLD, DUE = "Its time is over.", "It is due."
_GOOD = (EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL)
_REFRESHED = (*_GOOD, EnrichmentStatus.STALE, EnrichmentStatus.FAILED)


def grow_stale(session: Session, now: datetime, freshness: timedelta, limit: int) -> int:
    """Snapshots whose time is over, and the requests that show them. When each is refreshed stays as it was planned."""
    query = (
        select(EnrichmentRow)
        .join(CompanyRow, CompanyRow.siren == EnrichmentRow.siren)
        .where(EnrichmentRow.status.in_(_GOOD), CompanyRow.updated_at <= now - freshness)
        .order_by(EnrichmentRow.siren)
        .limit(limit)
        .with_for_update(of=EnrichmentRow, skip_locked=True)
    )
    rows = session.scalars(query).all()
    _let_grow_stale(session, rows, TOO_OLD, now)
    return len(rows)


def refresh_due(session: Session, now: datetime, limit: int) -> int:
    """Those that are due, the longest first, unless a job is open. A snapshot may be due before its time is over, so
    that what became fresh in one night is not refreshed in one night."""
    is_open = exists().where(JobRow.company_siren == EnrichmentRow.siren, JobRow.state.in_(OPEN))
    query = (
        select(EnrichmentRow)
        .where(EnrichmentRow.status.in_(_REFRESHED), EnrichmentRow.due_at <= now, ~is_open)
        .order_by(EnrichmentRow.due_at, EnrichmentRow.siren)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = _without_job(session, session.scalars(query).all())
    _let_grow_stale(session, [row for row in rows if row.status == EnrichmentStatus.SUCCESS], DUE, now)
    asking = Asking(tenant_id=DEFAULT_TENANT, correlation_id=correlation_id() or uuid4().hex, actor=SWEEP)
    add_jobs(session, [Identifiers(row.siren) for row in rows], Trigger.STALE_SWEEP, asking, now, priority=LOW)
    return len(rows)


def open_jobs(session: Session) -> int:
    """Each is going to call every source once, or has."""
    return session.scalar(select(func.count()).select_from(JobRow).where(JobRow.state.in_(OPEN))) or 0


def ask_again(session: Session, now: datetime, lock_seconds: float, limit: int) -> list[JobState]:
    """Requests a worker for every job that no worker began in time, whose worker has not sent a heartbeat for longer
    than its lease lasts, or whose wait for a required source is over. Returns the state of each: RUNNING for a job
    whose worker was lost."""
    was_asked = JobRow.requested_at <= now - timedelta(seconds=NOT_BEGUN_SECONDS)
    is_silent = JobRow.heartbeat_at <= now - timedelta(seconds=lock_seconds)
    asked_since = JobRow.requested_at > now - timedelta(seconds=lock_seconds)
    # It found the lease of another, held by somebody alive or dead, which is over by now.
    has_come = and_(JobRow.heartbeat_at >= JobRow.requested_at, is_silent)
    is_waiting_for_a_source = func.coalesce(JobRow.not_before > now, false())
    wait_is_over = JobRow.requested_at < JobRow.not_before
    is_lost = or_(
        and_(JobRow.state == JobState.PENDING, ~is_waiting_for_a_source, or_(was_asked, has_come, wait_is_over)),
        and_(JobRow.state == JobState.RUNNING, is_silent, ~asked_since),
    )
    is_waiting = exists().where(RunRequestRow.request_key == JobRow.request_key, RunRequestRow.state == "waiting")
    query = select(JobRow).where(JobRow.state.in_(OPEN), is_lost, ~is_waiting).order_by(JobRow.id).limit(limit)
    rows = session.scalars(query.with_for_update(skip_locked=True)).all()
    ask_for_workers(session, rows, now)
    return [JobState(row.state) for row in rows]


def _without_job(session: Session, rows: Sequence[EnrichmentRow]) -> list[EnrichmentRow]:
    """Looked at again now that they are locked: somebody may have asked for one meanwhile."""
    its = among(session, JobRow.company_siren, [row.siren for row in rows]), JobRow.state.in_(OPEN)
    opened = set(session.scalars(select(JobRow.company_siren).where(*its)))
    return [row for row in rows if row.siren not in opened]


def _let_grow_stale(session: Session, rows: Sequence[EnrichmentRow], reason: str, now: datetime) -> None:
    moves: list[Transition] = []
    for row in rows:
        frm = EnrichmentStatus(row.status)
        row.status, row.updated_at = ENRICHMENT.move(frm, EnrichmentStatus.STALE), now
        moves.append(Transition(ENRICHMENT.name, row.siren, frm, EnrichmentStatus.STALE, SWEEP, now, reason))
    record_transitions(session, moves)
    session.flush()
    session.execute(
        update(CompanyRequestRow)
        .where(among(session, CompanyRequestRow.company_siren, [row.siren for row in rows]))
        .values(enrichment_status=EnrichmentStatus.STALE, updated_at=now)
        .execution_options(synchronize_session=False)
    )
