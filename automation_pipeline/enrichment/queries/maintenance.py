"""Queries of the sweep and of metrics."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy import and_, case, exists, false, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.logs import correlation_id
from automation_pipeline.enrichment.models import (
    DEFAULT_TENANT,
    ENRICHMENT,
    GOOD_STATUSES,
    EnrichmentStatus,
    EnrichmentTrigger,
    Identifiers,
    JobState,
    Requester,
)
from automation_pipeline.enrichment.queries.jobs import add_jobs, request_workers
from automation_pipeline.enrichment.queries.requests import OPEN
from automation_pipeline.enrichment.rules.evaluation import AGES, GRACE, OLDER, CompanyCoverage
from automation_pipeline.enrichment.tables import (
    CompanyRequestRow,
    CompanyRow,
    EnrichmentJobRow,
    EnrichmentRow,
)
from automation_pipeline.storage.history import Transition, record_transitions
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import among

SWEEP = "sweep"
SWEEP_PRIORITY = 1
# A worker that has not started by then is lost.
NOT_STARTED_SECONDS = 300.0
STALE_REASON, DUE_REASON = "Its time is over.", "It is due."
_REFRESHED = (*GOOD_STATUSES, EnrichmentStatus.STALE, EnrichmentStatus.FAILED)
_HAS_OPEN_JOB = exists().where(
    EnrichmentJobRow.company_siren == EnrichmentRow.siren, EnrichmentJobRow.state.in_(OPEN)
)


def mark_stale(session: Session, now: datetime, freshness: timedelta, limit: int) -> int:
    """Mark expired snapshots and their requests as STALE. `due_at` stays as it is."""
    query = (
        select(EnrichmentRow)
        .join(CompanyRow, CompanyRow.siren == EnrichmentRow.siren)
        .where(EnrichmentRow.status.in_(GOOD_STATUSES), CompanyRow.updated_at <= now - freshness)
        .order_by(EnrichmentRow.siren)
        .limit(limit)
        .with_for_update(of=EnrichmentRow, skip_locked=True)
    )
    rows = session.scalars(query).all()
    _mark_stale(session, rows, STALE_REASON, now)
    return len(rows)


def refresh_due(session: Session, now: datetime, limit: int) -> int:
    """Add jobs for due companies without an open job, the longest overdue first. A snapshot can be
    due before it expires, so that companies fetched in one night are not all refreshed in one
    night."""
    query = (
        select(EnrichmentRow)
        .where(EnrichmentRow.status.in_(_REFRESHED), EnrichmentRow.due_at <= now, ~_HAS_OPEN_JOB)
        .order_by(EnrichmentRow.due_at, EnrichmentRow.siren)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    locked = session.scalars(query).all()
    # A job may have been added before the rows were locked.
    reopened = select(EnrichmentJobRow.company_siren).where(
        among(session, EnrichmentJobRow.company_siren, [row.siren for row in locked]),
        EnrichmentJobRow.state.in_(OPEN),
    )
    with_job = set(session.scalars(reopened))
    rows = [row for row in locked if row.siren not in with_job]
    fresh = [row for row in rows if row.status == EnrichmentStatus.SUCCESS]
    _mark_stale(session, fresh, DUE_REASON, now)
    add_jobs(
        session,
        [Identifiers(row.siren) for row in rows],
        EnrichmentTrigger.STALE_SWEEP,
        Requester(
            tenant_id=DEFAULT_TENANT, correlation_id=correlation_id() or uuid4().hex, actor=SWEEP
        ),
        now,
        priority=SWEEP_PRIORITY,
    )
    return len(rows)


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


def request_lost_jobs(
    session: Session, now: datetime, lock_seconds: float, limit: int
) -> list[JobState]:
    """Request a worker for every job that did not start in time, whose worker sent no heartbeat for
    longer than its claim lasts, or whose wait for a required source is over. Returns the state of
    each: RUNNING for a job whose worker was lost."""
    table = EnrichmentJobRow
    is_overdue = table.requested_at <= now - timedelta(seconds=NOT_STARTED_SECONDS)
    is_silent = table.heartbeat_at <= now - timedelta(seconds=lock_seconds)
    is_newly_requested = table.requested_at > now - timedelta(seconds=lock_seconds)
    # A worker arrived while another held the claim, which has ended now.
    was_visited = and_(table.heartbeat_at >= table.requested_at, is_silent)
    is_postponed = func.coalesce(table.not_before > now, false())
    wait_is_over = table.requested_at < table.not_before
    is_lost = or_(
        and_(
            table.state == JobState.PENDING,
            ~is_postponed,
            or_(is_overdue, was_visited, wait_is_over),
        ),
        and_(table.state == JobState.RUNNING, is_silent, ~is_newly_requested),
    )
    is_waiting = exists().where(
        RunRequestRow.request_key == table.request_key, RunRequestRow.state == "waiting"
    )
    query = (
        select(table)
        .where(table.state.in_(OPEN), is_lost, ~is_waiting)
        .order_by(table.id)
        .limit(limit)
    )
    rows = session.scalars(query.with_for_update(skip_locked=True)).all()
    request_workers(session, rows, now)
    return [JobState(row.state) for row in rows]


def count_open_jobs(session: Session) -> int:
    """Each open job calls every source about once."""
    query = select(func.count()).select_from(EnrichmentJobRow)
    return session.scalars(query.where(EnrichmentJobRow.state.in_(OPEN))).one()


def enrichments_by_status(session: Session) -> Mapping[EnrichmentStatus, int]:
    """Includes the statuses without companies."""
    query = select(EnrichmentRow.status, func.count()).group_by(EnrichmentRow.status)
    counts = dict(session.execute(query).tuples().all())
    return {status: counts.get(status, 0) for status in EnrichmentStatus}


def stale_backlog(session: Session) -> int:
    """The number of stale companies without an open job."""
    query = select(func.count()).select_from(EnrichmentRow)
    stale = EnrichmentRow.status == EnrichmentStatus.STALE
    return session.scalars(query.where(stale, ~_HAS_OPEN_JOB)).one()


def coverage_of(session: Session, now: datetime, freshness: timedelta) -> CompanyCoverage:
    """Count the companies for the coverage checks."""
    age = case(
        *((CompanyRow.updated_at > now - length, name) for name, length in AGES.items()),
        else_=OLDER,
    ).label("age")
    masked = func.sum(case((CompanyRow.is_masked, 1), else_=0))
    found = session.execute(select(age, func.count(), masked).group_by(age)).tuples().all()
    counts = {name: count for name, count, _ in found}
    unexplained = select(func.count()).where(
        EnrichmentRow.status == EnrichmentStatus.FAILED,
        func.coalesce(EnrichmentRow.enrichment_error, "") == "",
    )
    overdue = (
        select(func.count())
        .select_from(EnrichmentRow)
        .join(CompanyRow, CompanyRow.siren == EnrichmentRow.siren)
        .where(
            EnrichmentRow.status == EnrichmentStatus.SUCCESS,
            CompanyRow.updated_at <= now - freshness - GRACE,
        )
    )
    return CompanyCoverage(
        statuses=enrichments_by_status(session),
        ages={name: counts.get(name, 0) for name in (*AGES, OLDER)},
        masked=sum(int(number or 0) for _, _, number in found),
        unexplained=session.scalars(unexplained).one(),
        overdue=session.scalars(overdue).one(),
    )
