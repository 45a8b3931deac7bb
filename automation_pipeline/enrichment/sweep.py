"""The sweep: request workers for lost jobs, mark expired companies as stale, and refresh due ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy import and_, exists, false, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.logs import correlation_id
from automation_pipeline.enrichment.models import (
    DEFAULT_TENANT,
    ENRICHMENT,
    GOOD_STATUSES,
    LOST_LEASES,
    REQUIRED_SOURCES,
    EnrichmentStatus,
    EnrichmentTrigger,
    Identifiers,
    JobState,
    Registries,
    Requester,
    SourceApi,
    SourceStatus,
)
from automation_pipeline.enrichment.queries.jobs import add_jobs, request_workers
from automation_pipeline.enrichment.queries.requests import DATA_EXPIRED, HAS_OPEN_JOB, OPEN
from automation_pipeline.enrichment.sources import source_statuses
from automation_pipeline.enrichment.tables import (
    CompanyRequestRow,
    CompanyRow,
    EnrichmentJobRow,
    EnrichmentRow,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import Transition, record_transitions
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import among

SWEEP = "sweep"
# The share of the daily quotas that the sweep leaves to requests.
RESERVED_SHARE = 0.2
# A worker that has not started by then is lost.
NOT_STARTED_SECONDS = 300.0
_REFRESHED = (*GOOD_STATUSES, EnrichmentStatus.STALE, EnrichmentStatus.FAILED)


@dataclass(frozen=True)
class SweepReport:
    stale: int = 0
    refreshed: int = 0
    replaced_workers: int = 0

    def __str__(self) -> str:
        return (
            f"{self.stale} companies became stale; {self.refreshed} refreshes and "
            f"{self.replaced_workers} replacement workers were requested."
        )


def sweep_enrichments(
    *, registries: Registries, database: Database, clock: Clock, limit: int = 50
) -> SweepReport:
    """Request workers for lost jobs, mark stale companies and refresh due ones: at most `limit` of
    each, and no more refreshes than the remaining daily quotas of the sources allow."""
    options, now = registries.options, clock.now()
    with database.transaction() as session:
        again = request_lost_jobs(session, now, options.lock_seconds, limit)
    lost = again.count(JobState.RUNNING)
    if lost:
        registries.meter.count(LOST_LEASES, lost)
    with database.transaction() as session:
        stale = mark_stale(session, now, options.freshness, limit)
    statuses, open_jobs = database.read(source_statuses), database.read(count_open_jobs)
    left = _refresh_limit(registries, statuses, open_jobs, now, limit)
    with database.transaction() as session:
        refreshed = refresh_due(session, now, left) if left else 0
    return SweepReport(stale, refreshed, len(again))


def _refresh_limit(
    registries: Registries,
    statuses: Mapping[SourceApi, SourceStatus],
    open_jobs: int,
    now: datetime,
    limit: int,
) -> int:
    """Return how many companies may be refreshed now: none while a required source rests. Each open
    job is expected to call each source once."""
    if any(statuses[api].is_resting(now) for api in REQUIRED_SOURCES):
        return 0
    left = [limit]
    for api, source in registries.sources.items():
        if source.calls_a_day is not None:
            quota = int(source.calls_a_day * (1 - RESERVED_SHARE))
            left.append(quota - statuses[api].used_on(now.date()) - open_jobs)
    return max(min(left), 0)


def mark_stale(session: Session, now: datetime, freshness: timedelta, limit: int) -> int:
    """Mark expired snapshots and their requests as STALE, and return their number."""
    query = (
        select(EnrichmentRow)
        .join(CompanyRow, CompanyRow.siren == EnrichmentRow.siren)
        .where(EnrichmentRow.status.in_(GOOD_STATUSES), CompanyRow.updated_at <= now - freshness)
        .order_by(EnrichmentRow.siren)
        .limit(limit)
        .with_for_update(of=EnrichmentRow, skip_locked=True)
    )
    rows = session.scalars(query).all()
    _mark_stale(session, rows, DATA_EXPIRED, now)
    return len(rows)


def refresh_due(session: Session, now: datetime, limit: int) -> int:
    """Add jobs for due companies without an open job, the longest overdue first."""
    query = (
        select(EnrichmentRow)
        .where(EnrichmentRow.status.in_(_REFRESHED), EnrichmentRow.due_at <= now, ~HAS_OPEN_JOB)
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
    _mark_stale(session, fresh, "The refresh is due.", now)
    add_jobs(
        session,
        [Identifiers(row.siren) for row in rows],
        EnrichmentTrigger.STALE_SWEEP,
        Requester(
            tenant_id=DEFAULT_TENANT, correlation_id=correlation_id() or uuid4().hex, actor=SWEEP
        ),
        now,
        priority=1,
    )
    return len(rows)


def _mark_stale(
    session: Session, rows: Sequence[EnrichmentRow], reason: str, now: datetime
) -> None:
    moves: list[Transition] = []
    for row in rows:
        previous, to = EnrichmentStatus(row.status), EnrichmentStatus.STALE
        row.status, row.updated_at = ENRICHMENT.move(previous, to), now
        moves.append(Transition(ENRICHMENT.name, row.siren, previous, to, SWEEP, now, reason))
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
    """Request a worker for each job that did not start in time, whose worker sent no heartbeat for
    longer than its claim lasts, or whose wait for a required source is over. Return the state of
    each job: RUNNING if its worker was lost."""
    table = EnrichmentJobRow
    is_overdue = table.requested_at <= now - timedelta(seconds=NOT_STARTED_SECONDS)
    is_silent = table.heartbeat_at <= now - timedelta(seconds=lock_seconds)
    is_newly_requested = table.requested_at > now - timedelta(seconds=lock_seconds)
    # A worker found the claim taken; the claim has expired since.
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
    return session.scalars(
        select(func.count()).select_from(EnrichmentJobRow).where(EnrichmentJobRow.state.in_(OPEN))
    ).one()
