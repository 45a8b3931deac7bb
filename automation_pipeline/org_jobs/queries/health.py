"""Queries about the health of schedules, jobs and hosts: alerts, counts and days."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, case, exists, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.core.scheduling.timing import TimingFields
from automation_pipeline.core.webhooks import AlertSeverity, AlertStatus, Delivery
from automation_pipeline.org_jobs.models.jobs import Performer
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.states import (
    ACTIVE_RUN_STATES,
    BatchState,
    FireOutcome,
    FireTrigger,
    OrgJobsRunState,
    ScheduleState,
)
from automation_pipeline.org_jobs.queries.queue import is_open
from automation_pipeline.org_jobs.rules.health import (
    HEARTBEAT_MISSED_AFTER,
    LATE_AFTER,
    LOOK_BACK,
    Day,
    DayFires,
    DayJobs,
    DueOrgAlert,
    FailedJobs,
    FailingSchedule,
    LastRaised,
    OrgAlert,
    OrgAlertCondition,
    OrgHealth,
    OrgJobsAlertName,
    QuietHost,
    SpoiltBatch,
    UnreadableSchedule,
    WatchedSchedule,
)
from automation_pipeline.org_jobs.tables import (
    BatchRow,
    FireRow,
    HostRow,
    JobRunRow,
    OrgAlertRow,
    OrganisationRow,
    OrgJobRow,
    OrgScheduleRow,
    ServerRow,
)
from automation_pipeline.storage.clock import database_now, epoch
from automation_pipeline.storage.deliveries import claim_oldest, is_any_due, record_attempt
from automation_pipeline.storage.statements import advisory_lock, among

# Named as the fields of `TimingFields`.
_TIMING = (
    OrgScheduleRow.cron_expression.label("cron_expression"),
    OrgScheduleRow.timezone.label("timezone"),
    OrgScheduleRow.execution_window_start.label("window_start"),
    OrgScheduleRow.execution_window_end.label("window_end"),
    OrgScheduleRow.window_policy.label("window_policy"),
    OrgScheduleRow.latest_start_cutoff_min.label("cutoff_minutes"),
    OrgScheduleRow.jitter_s.label("jitter_seconds"),
    OrgScheduleRow.start_at.label("start_at"),
    OrgScheduleRow.end_at.label("end_at"),
)


def watched_schedules(session: Session, now: datetime) -> list[WatchedSchedule]:
    """None that was due, or changed, so lately that nothing can be wrong."""
    last, changed = OrgScheduleRow.last_scheduled_for, OrgScheduleRow.updated_at
    since = case((last > changed, last), else_=changed)
    query = (
        select(
            OrgScheduleRow.org_id,
            OrgScheduleRow.id,
            OrgScheduleRow.name,
            since.label("since"),
            OrgScheduleRow.excluded_on,
        )
        .add_columns(*_TIMING)
        .where(*is_active(), since < now - LATE_AFTER)
        .order_by(OrgScheduleRow.id)
    )
    return [_watched(row) for row in session.execute(query).mappings()]


def is_active() -> tuple[ColumnElement[bool], ...]:
    return OrgScheduleRow.state == ScheduleState.ACTIVE, OrgScheduleRow.deleted_at.is_(None)


def _watched(row: Mapping[Any, Any]) -> WatchedSchedule:  # a row by its columns' names
    timing = {label.name: row[label.name] for label in _TIMING}
    # Equal for all that are due at the same times: they are reckoned out once.
    seed = row["id"] if row["jitter_seconds"] else ""
    fields = TimingFields(seed=seed, excluded_on=tuple(row["excluded_on"]), **timing)
    return WatchedSchedule(
        org_id=row["org_id"], id=row["id"], name=row["name"], since=row["since"], timing=fields
    )


def silent_hosts(session: Session, now: datetime, silent_for: timedelta) -> list[QuietHost]:
    """Two queries. One that was never heard of is silent since it was made."""
    silent_since = func.coalesce(HostRow.last_seen_at, HostRow.created_at)
    has_servers = exists().where(ServerRow.host_id == HostRow.id, ServerRow.is_enabled)
    is_left_alone = or_(HostRow.maintenance_until.is_(None), HostRow.maintenance_until <= now)
    query = (
        select(
            HostRow.org_id,
            HostRow.id,
            HostRow.name,
            silent_since,
            HostRow.last_seen_at,
            has_servers,
        )
        .join(OrganisationRow, OrganisationRow.id == HostRow.org_id)
        .where(silent_since < now - silent_for, is_left_alone, is_open(now))
    )
    found = session.execute(query.order_by(HostRow.id)).tuples().all()
    jobs = _active_jobs(session, [id_ for _, id_, *_ in found])
    return [
        QuietHost(
            org_id=org,
            id=id_,
            name=name,
            silent_since=since,
            was_seen=seen is not None,
            waiting=jobs[id_, False],
            at_work=jobs[id_, True],
            has_servers=bool(servers),
        )
        for org, id_, name, since, seen, servers in found
    ]


def _active_jobs(session: Session, host_ids: Collection[int]) -> Counter[tuple[int, bool]]:
    """By host and whether it has begun. What waits is for the host that its server is on by now."""
    host = case(
        (JobRunRow.status == OrgJobsRunState.RUNNING, JobRunRow.host_id), else_=ServerRow.host_id
    )
    query = (
        select(host, JobRunRow.status, func.count())
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .outerjoin(ServerRow, ServerRow.id == OrgJobRow.server_instance_id)
        .where(JobRunRow.status.in_(ACTIVE_RUN_STATES), JobRunRow.performer == Performer.AGENT)
        .where(among(session, host, host_ids))
        .group_by(host, JobRunRow.status)
    )
    counts: Counter[tuple[int, bool]] = Counter()
    for host_id, status, count in session.execute(query).tuples():
        counts[host_id or 0, status == OrgJobsRunState.RUNNING] += count
    return counts


LONGEST_ERROR = 300


def health_of_all(session: Session, now: datetime) -> OrgHealth:
    since = now - LOOK_BACK
    jobs = _failed_jobs(session, since)
    return OrgHealth(
        oldest_due_at=oldest_due_at(session, now),
        failed_jobs=jobs,
        failing=_failing(session, jobs, since),
        unreadable=_unreadable(session),
        watched=watched_schedules(session, now),
        quiet_hosts=silent_hosts(session, now, HEARTBEAT_MISSED_AFTER),
        batches=_spoilt(session, since),
    )


def oldest_due_at(session: Session, now: datetime) -> datetime | None:
    """Of the schedules that are due by now, when the first of them was."""
    return session.scalar(
        select(func.min(OrgScheduleRow.next_run_at)).where(
            *is_active(), OrgScheduleRow.next_run_at <= now
        )
    )


def _failed_jobs(session: Session, since: datetime) -> list[FailedJobs]:
    of = case((OrgJobRow.schedule_id.is_(None), OrgJobRow.type))
    query = (
        select(
            OrgJobRow.org_id,
            OrgJobRow.schedule_id,
            func.max(OrgJobRow.type),
            func.count(),
            func.max(OrgJobRow.id),
        )
        .add_columns(func.max(OrgJobRow.finished_at))
        .where(OrgJobRow.finished_at > since, OrgJobRow.status == OrgJobsRunState.FAILED)
        .group_by(OrgJobRow.org_id, OrgJobRow.schedule_id, of)
    )
    found = [
        FailedJobs(
            org_id=org, schedule_id=schedule, type=type_, count=count, last_id=last, last_at=at
        )
        for org, schedule, type_, count, last, at in session.execute(query).tuples()
        if at is not None
    ]
    errors = _errors(session, [one.last_id for one in found])
    return [replace(one, last_error=errors.get(one.last_id)) for one in found]


def _errors(session: Session, job_ids: Collection[int]) -> Mapping[int, str]:
    """Of the newest run of each that failed."""
    query = (
        select(JobRunRow.job_id, JobRunRow.error)
        .where(among(session, JobRunRow.job_id, job_ids), JobRunRow.error.is_not(None))
        .order_by(JobRunRow.id)
    )
    return {
        job_id: (error or "")[:LONGEST_ERROR] for job_id, error in session.execute(query).tuples()
    }


def _failing(
    session: Session, jobs: Sequence[FailedJobs], since: datetime
) -> list[FailingSchedule]:
    query = (
        select(FireRow.schedule_id, func.max(FireRow.fired_at))
        .where(FireRow.fired_at > since, FireRow.outcome == FireOutcome.FAILED)
        .group_by(FireRow.schedule_id)
    )
    last_at: dict[str, datetime] = dict(session.execute(query).tuples().all())
    for job in jobs:
        if job.schedule_id is not None:
            last_at[job.schedule_id] = max(job.last_at, last_at.get(job.schedule_id, job.last_at))
    is_too_many = OrgScheduleRow.auto_pause_after.between(1, OrgScheduleRow.consecutive_failures)
    is_paused = case((is_too_many, OrgScheduleRow.state == ScheduleState.PAUSED), else_=False)
    schedules = select(
        OrgScheduleRow.org_id,
        OrgScheduleRow.id,
        OrgScheduleRow.name,
        OrgScheduleRow.consecutive_failures,
        is_paused,
    )
    chosen = schedules.where(
        among(session, OrgScheduleRow.id, last_at), OrgScheduleRow.deleted_at.is_(None)
    )
    return [
        FailingSchedule(
            org_id=org,
            id=id_,
            name=name,
            in_a_row=in_a_row,
            is_paused_for_it=bool(paused),
            last_at=last_at[id_],
        )
        for org, id_, name, in_a_row, paused in session.execute(
            chosen.order_by(OrgScheduleRow.id)
        ).tuples()
    ]


def _unreadable(session: Session) -> list[UnreadableSchedule]:
    columns = (
        OrgScheduleRow.org_id,
        OrgScheduleRow.id,
        OrgScheduleRow.name,
        OrgScheduleRow.cron_expression,
        OrgScheduleRow.updated_at,
    )
    query = select(*columns).where(
        OrgScheduleRow.state == ScheduleState.INVALID_CRON, OrgScheduleRow.deleted_at.is_(None)
    )
    return [
        UnreadableSchedule(org_id=org, id=id_, name=name, cron_expression=cron, since=since)
        for org, id_, name, cron, since in session.execute(
            query.order_by(OrgScheduleRow.id)
        ).tuples()
    ]


def _spoilt(session: Session, since: datetime) -> list[SpoiltBatch]:
    query = select(BatchRow.org_id, BatchRow.id, BatchRow.schedule_id, BatchRow.finished_at).where(
        BatchRow.status == BatchState.COMPLETED_WITH_FAILURES, BatchRow.finished_at > since
    )
    return [
        SpoiltBatch(org_id=org, id=id_, schedule_id=schedule, finished_at=at)
        for org, id_, schedule, at in session.execute(query.order_by(BatchRow.id)).tuples()
        if at is not None
    ]


def lock_alerts(session: Session) -> None:
    advisory_lock(session, "org-alerts")


def last_raised(
    session: Session, subjects: Iterable[str]
) -> Mapping[tuple[OrgJobsAlertName, str], LastRaised]:
    """By name and subject."""
    newest = (
        select(func.max(OrgAlertRow.id))
        .where(among(session, OrgAlertRow.subject, subjects))
        .group_by(OrgAlertRow.name, OrgAlertRow.subject)
    )
    rows = session.execute(
        select(
            OrgAlertRow.name, OrgAlertRow.subject, OrgAlertRow.severity, OrgAlertRow.raised_at
        ).where(OrgAlertRow.id.in_(newest))
    ).tuples()
    return {
        (OrgJobsAlertName(name), subject): LastRaised(AlertSeverity(severity), at)
        for name, subject, severity, at in rows
    }


def add_alerts(
    session: Session, raised: Sequence[OrgAlertCondition], now: datetime, *, has_webhook: bool
) -> list[OrgAlert]:
    """With a webhook they wait to be carried there."""
    status = AlertStatus.PENDING if has_webhook else AlertStatus.UNSENT
    rows = [
        OrgAlertRow(
            org_id=alert.org_id,
            name=alert.name,
            severity=alert.severity,
            subject=alert.subject,
            message=alert.message,
            raised_at=now,
            status=status,
            attempts=0,
            next_retry_at=database_now(),
        )
        for alert in raised
    ]
    session.add_all(rows)
    session.flush()
    return [_alert(row) for row in rows]


def list_alerts(
    session: Session, within: OrgScope, *, org_id: str | None = None, limit: int, offset: int
) -> list[OrgAlert]:
    """Newest first. Those about the scheduler itself are for who reaches everywhere."""
    query = (
        select(OrgAlertRow)
        .where(*_of(within, org_id))
        .order_by(OrgAlertRow.id.desc())
        .limit(limit)
        .offset(offset)
    )
    return [_alert(row) for row in session.scalars(query)]


def count_alerts(session: Session, within: OrgScope, *, org_id: str | None = None) -> int:
    return session.scalar(select(func.count(OrgAlertRow.id)).where(*_of(within, org_id))) or 0


def is_alert_due(session: Session) -> bool:
    return is_any_due(session, OrgAlertRow)


def claim_due(session: Session, *, limit: int, hold_seconds: float) -> list[DueOrgAlert]:
    return [
        _due_alert(row)
        for row in claim_oldest(session, OrgAlertRow, limit=limit, hold_seconds=hold_seconds)
    ]


def record_delivery(session: Session, due: DueOrgAlert, delivery: Delivery) -> None:
    record_attempt(session, OrgAlertRow, due.id, due.attempt, delivery)


def _of(within: OrgScope, org_id: str | None) -> list[ColumnElement[bool]]:
    return [OrgAlertRow.org_id == one for one in (within.org_id, org_id) if one is not None]


def _alert(row: OrgAlertRow) -> OrgAlert:
    return OrgAlert.model_validate({name: getattr(row, name) for name in OrgAlert.model_fields})


def _due_alert(row: OrgAlertRow) -> DueOrgAlert:
    return DueOrgAlert(
        id=row.id,
        org_id=row.org_id,
        name=row.name,
        severity=row.severity,
        subject=row.subject,
        message=row.message,
        raised_at=row.raised_at,
        attempt=row.attempts,
    )


@dataclass(frozen=True)
class DueScheduleCounts:
    """`age_seconds` is how long the oldest has been due, 0 when none is."""

    count: int
    age_seconds: float


@dataclass(frozen=True)
class ActiveRuns:
    """Of one organisation and performer."""

    org_id: str
    performer: str
    waiting: int
    running: int


def due_schedules(session: Session, now: datetime) -> DueScheduleCounts:
    query = select(func.count(), func.min(OrgScheduleRow.next_run_at)).where(
        *is_active(), OrgScheduleRow.next_run_at <= now
    )
    count, oldest = session.execute(query).tuples().one()
    return DueScheduleCounts(
        count, 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())
    )


def schedules_by_state(session: Session) -> Mapping[ScheduleState, int]:
    query = (
        select(OrgScheduleRow.state, func.count())
        .where(OrgScheduleRow.deleted_at.is_(None))
        .group_by(OrgScheduleRow.state)
    )
    return {ScheduleState(state): count for state, count in session.execute(query).tuples()}


def active_runs(session: Session) -> list[ActiveRuns]:
    """Those that have any."""
    status, key = JobRunRow.status, (JobRunRow.org_id, JobRunRow.performer)
    query = (
        select(
            *key,
            func.count().filter(status == OrgJobsRunState.PENDING),
            func.count().filter(status == OrgJobsRunState.RUNNING),
        )
        .where(status.in_(ACTIVE_RUN_STATES))
        .group_by(*key)
        .order_by(*key)
    )
    return [ActiveRuns(*row) for row in session.execute(query).tuples()]


def day_of_jobs(session: Session, since: datetime, until: datetime, now: datetime) -> Day:
    """Fires by when they were decided upon, jobs by when they ended. `until` is not part of the
    span."""
    return Day(
        fires=_fires(session, since, until),
        jobs=_jobs(session, since, until),
        oldest_due_seconds=due_schedules(session, now).age_seconds,
        unreadable=_unreadable_of_statistics(session),
    )


def _fires(session: Session, since: datetime, until: datetime) -> list[DayFires]:
    is_timed = (FireRow.trigger == FireTrigger.CRON) & (FireRow.outcome == FireOutcome.DISPATCHED)
    latency = func.avg(epoch(FireRow.fired_at) - epoch(FireRow.effective_for)).filter(is_timed)
    key = FireRow.org_id, FireRow.outcome, FireRow.skip_reason
    query = (
        select(*key, func.count(), func.count().filter(is_timed), latency)
        .where(FireRow.fired_at >= since, FireRow.fired_at < until)
        .group_by(*key)
        .order_by(*key)
    )
    return [
        DayFires(
            org_id=org,
            outcome=FireOutcome(outcome),
            skip_reason=reason,
            count=count,
            timed=timed,
            latency_seconds=float(seconds or 0.0),
        )
        for org, outcome, reason, count, timed, seconds in session.execute(query).tuples()
    ]


def _jobs(session: Session, since: datetime, until: datetime) -> list[DayJobs]:
    key = OrgJobRow.org_id, OrgJobRow.status, OrgJobRow.type
    ended = OrgJobRow.finished_at >= since, OrgJobRow.finished_at < until
    query = select(*key, func.count()).where(*ended).group_by(*key).order_by(*key)
    return [
        DayJobs(org_id=org, status=OrgJobsRunState(status), type=type_, count=count)
        for org, status, type_, count in session.execute(query).tuples()
    ]


def _unreadable_of_statistics(session: Session) -> list[str]:
    is_unreadable = (
        OrgScheduleRow.state == ScheduleState.INVALID_CRON,
        OrgScheduleRow.deleted_at.is_(None),
    )
    return list(
        session.scalars(select(OrgScheduleRow.id).where(*is_unreadable).order_by(OrgScheduleRow.id))
    )
