"""Queries about schedules, jobs and hosts: alerts, counts and days."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import case, exists, func, select
from sqlalchemy.orm import Session

from automation_pipeline.core.alerts import AlertCondition, AlertSeverity
from automation_pipeline.core.scheduling.timing import TimingFields
from automation_pipeline.org_jobs.models.jobs import (
    BatchState,
    FireOutcome,
    FireTrigger,
    OrgJobsRunState,
    Performer,
    ScheduleState,
)
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.queries.queue import (
    IS_ACTIVE,
    IS_PENDING,
    IS_RUNNING,
    is_in_future,
    is_open,
)
from automation_pipeline.org_jobs.rules.health import (
    HEARTBEAT_MISSED_AFTER,
    LATE_AFTER,
    LOOK_BACK,
    Day,
    DayFires,
    DayJobs,
    OrgAlert,
    batch_alert,
    failed_jobs_alert,
    failing_alerts,
    host_alerts,
    late_alerts,
    silent_alerts,
    unreadable_alert,
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
from automation_pipeline.storage.alerts import AlertTable
from automation_pipeline.storage.statements import among, epoch, where_given

LONGEST_ERROR = 300

_IS_KEPT = OrgScheduleRow.deleted_at.is_(None)
_IS_ACTIVE_SCHEDULE = _IS_KEPT & (OrgScheduleRow.state == ScheduleState.ACTIVE)
_IS_UNREADABLE = _IS_KEPT & (OrgScheduleRow.state == ScheduleState.INVALID_CRON)
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


def due_alerts(session: Session, now: datetime) -> list[AlertCondition]:
    """What is wrong now, by a constant number of queries. At most one per name and subject."""
    oldest = select(func.min(OrgScheduleRow.next_run_at))
    return [
        *late_alerts(
            session.scalar(oldest.where(_IS_ACTIVE_SCHEDULE, OrgScheduleRow.next_run_at <= now)),
            now,
        ),
        *_unreadable(session),
        *_failures(session, now - LOOK_BACK),
        *_failed_batches(session, now - LOOK_BACK),
        *_silent_hosts(session, now),
        *_silent_schedules(session, now),
    ]


def _unreadable(session: Session) -> Iterator[AlertCondition]:
    query = select(OrgScheduleRow).where(_IS_UNREADABLE).order_by(OrgScheduleRow.id)
    for row in session.scalars(query):
        yield unreadable_alert(row.org_id, row.id, row.name, row.cron_expression, row.updated_at)


def _failures(session: Session, since: datetime) -> Iterator[AlertCondition]:
    """About schedules whose jobs failed or that could not be dispatched, then about the jobs."""
    fires = (
        select(FireRow.schedule_id, func.max(FireRow.fired_at))
        .where(FireRow.fired_at > since, FireRow.outcome == FireOutcome.FAILED)
        .group_by(FireRow.schedule_id)
    )
    last_at: dict[str, datetime] = dict(session.execute(fires).tuples().all())
    type_ = case((OrgJobRow.schedule_id.is_(None), OrgJobRow.type))
    failed_jobs = (
        select(OrgJobRow.org_id, OrgJobRow.schedule_id, func.max(OrgJobRow.type))
        .add_columns(func.count(), func.max(OrgJobRow.id), func.max(OrgJobRow.finished_at))
        .where(OrgJobRow.finished_at > since, OrgJobRow.status == OrgJobsRunState.FAILED)
        .group_by(OrgJobRow.org_id, OrgJobRow.schedule_id, type_)
    )
    jobs = session.execute(failed_jobs).tuples().all()
    for _, schedule_id, *_, at in jobs:
        if schedule_id is not None:
            last_at[schedule_id] = max(at, last_at.get(schedule_id, at))
    yield from _failing_schedules(session, last_at)
    errors = _errors(session, [last_id for *_, last_id, _ in jobs])
    for org_id, schedule_id, name, count, last_id, at in jobs:
        error = errors.get(last_id)
        yield failed_jobs_alert(org_id, schedule_id, name, count, last_id, at, error)


def _failing_schedules(
    session: Session, last_at: Mapping[str, datetime]
) -> Iterator[AlertCondition]:
    is_too_many = OrgScheduleRow.auto_pause_after.between(1, OrgScheduleRow.consecutive_failures)
    is_paused = case((is_too_many, OrgScheduleRow.state == ScheduleState.PAUSED), else_=False)
    query = select(
        OrgScheduleRow.org_id,
        OrgScheduleRow.id,
        OrgScheduleRow.name,
        OrgScheduleRow.consecutive_failures,
        is_paused,
    ).where(among(session, OrgScheduleRow.id, last_at), _IS_KEPT)
    for org, id_, name, in_a_row, paused in session.execute(query.order_by(OrgScheduleRow.id)):
        yield from failing_alerts(org, id_, name, in_a_row, bool(paused), last_at[id_])


def _errors(session: Session, job_ids: Collection[int]) -> Mapping[int, str]:
    """The error of the newest run of each job."""
    query = (
        select(JobRunRow.job_id, func.substr(JobRunRow.error, 1, LONGEST_ERROR))
        .where(among(session, JobRunRow.job_id, job_ids), JobRunRow.error.is_not(None))
        .order_by(JobRunRow.id)
    )
    return dict(session.execute(query).tuples().all())


def _failed_batches(session: Session, since: datetime) -> Iterator[AlertCondition]:
    has_failed = BatchRow.status == BatchState.COMPLETED_WITH_FAILURES
    recent = (
        select(BatchRow.org_id, BatchRow.id, BatchRow.schedule_id, BatchRow.finished_at)
        .where(has_failed, BatchRow.finished_at > since)
        .order_by(BatchRow.id)
    )
    for org_id, batch_id, schedule_id, finished_at in session.execute(recent).tuples():
        if finished_at is not None:
            yield batch_alert(org_id, batch_id, schedule_id, finished_at)


def _silent_hosts(session: Session, now: datetime) -> Iterator[AlertCondition]:
    """A host whose agent has never called is silent since the host was created."""
    silent_since = func.coalesce(HostRow.last_seen_at, HostRow.created_at)
    is_silent = silent_since < now - HEARTBEAT_MISSED_AFTER
    has_servers = exists().where(ServerRow.host_id == HostRow.id, ServerRow.is_enabled)
    columns = HostRow.org_id, HostRow.id, HostRow.name, silent_since, HostRow.last_seen_at
    query = (
        select(*columns, has_servers)
        .join(OrganisationRow, OrganisationRow.id == HostRow.org_id)
        .where(is_silent, ~is_in_future(HostRow.maintenance_until, now), is_open(now))
        .order_by(HostRow.id)
    )
    found = session.execute(query).tuples().all()
    jobs = _active_jobs(session, [host_id for _, host_id, *_ in found])
    for org_id, host_id, name, since, seen, servers in found:
        yield from host_alerts(
            org_id,
            host_id,
            name,
            now,
            silent_since=since,
            was_seen=seen is not None,
            waiting=jobs[host_id, False],
            at_work=jobs[host_id, True],
            has_servers=bool(servers),
        )


def _active_jobs(session: Session, host_ids: Collection[int]) -> Counter[tuple[int, bool]]:
    """By host, and whether they have started. A waiting job belongs to the current host of its
    server."""
    host = case((IS_RUNNING, JobRunRow.host_id), else_=ServerRow.host_id)
    query = (
        select(host, JobRunRow.status, func.count())
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .outerjoin(ServerRow, ServerRow.id == OrgJobRow.server_instance_id)
        .where(IS_ACTIVE, JobRunRow.performer == Performer.AGENT, among(session, host, host_ids))
        .group_by(host, JobRunRow.status)
    )
    counts: Counter[tuple[int, bool]] = Counter()
    for host_id, status, count in session.execute(query).tuples():
        counts[host_id or 0, status == OrgJobsRunState.RUNNING] += count
    return counts


def _silent_schedules(session: Session, now: datetime) -> Iterator[AlertCondition]:
    """Without the schedules that were due or changed recently, which cannot be overdue."""
    last, changed = OrgScheduleRow.last_scheduled_for, OrgScheduleRow.updated_at
    since = case((last > changed, last), else_=changed)
    watched = select(
        OrgScheduleRow.org_id,
        OrgScheduleRow.id,
        OrgScheduleRow.name,
        since.label("since"),
        OrgScheduleRow.excluded_on,
        *_TIMING,
    ).where(_IS_ACTIVE_SCHEDULE, since < now - LATE_AFTER)
    for row in session.execute(watched.order_by(OrgScheduleRow.id)).mappings():
        # Without jitter, schedules with the same times share one computation.
        seed = row["id"] if row["jitter_seconds"] else ""
        times = {label.name: row[label.name] for label in _TIMING}
        fields = TimingFields(seed=seed, excluded_on=tuple(row["excluded_on"]), **times)
        yield from silent_alerts(row["org_id"], row["id"], row["name"], fields, row["since"], now)


ORG_ALERTS = AlertTable(
    row=OrgAlertRow,
    event="org_jobs.alert",
    cooldowns=dict.fromkeys(AlertSeverity, timedelta(minutes=15)),
    conditions=due_alerts,
    subject=OrgAlertRow.subject.expression,
    columns=lambda condition: {"org_id": condition.org_id, "subject": condition.subject},
    about=lambda alert: {"subject": alert.subject, "orgId": alert.org_id},
)


def list_alerts(
    session: Session, within: OrgScope, *, org_id: str | None = None, limit: int, offset: int
) -> list[OrgAlert]:
    """Newest first. Only callers of no organisation see alerts about the scheduler."""
    wanted = where_given((OrgAlertRow.org_id, within.org_id), (OrgAlertRow.org_id, org_id))
    rows = session.scalars(
        select(OrgAlertRow)
        .where(*wanted)
        .order_by(OrgAlertRow.id.desc())
        .limit(limit)
        .offset(offset)
    )
    return [OrgAlert.model_validate(row, from_attributes=True) for row in rows]


@dataclass(frozen=True)
class DueScheduleCounts:
    """`age_seconds` is how long the oldest has been due; 0 without any."""

    count: int
    age_seconds: float


@dataclass(frozen=True)
class ActiveRuns:
    org_id: str
    performer: str
    waiting: int
    running: int


def due_schedules(session: Session, now: datetime) -> DueScheduleCounts:
    due = select(func.count(), func.min(OrgScheduleRow.next_run_at)).where(
        _IS_ACTIVE_SCHEDULE, OrgScheduleRow.next_run_at <= now
    )
    count, oldest = session.execute(due).tuples().one()
    return DueScheduleCounts(count, 0.0 if oldest is None else (now - oldest).total_seconds())


def schedules_by_state(session: Session) -> Mapping[ScheduleState, int]:
    query = (
        select(OrgScheduleRow.state, func.count()).where(_IS_KEPT).group_by(OrgScheduleRow.state)
    )
    return {ScheduleState(state): count for state, count in session.execute(query).tuples()}


def active_runs(session: Session) -> list[ActiveRuns]:
    key = JobRunRow.org_id, JobRunRow.performer
    query = (
        select(*key, func.count().filter(IS_PENDING), func.count().filter(IS_RUNNING))
        .where(IS_ACTIVE)
        .group_by(*key)
        .order_by(*key)
    )
    return [ActiveRuns(*row) for row in session.execute(query).tuples()]


def day_of_jobs(session: Session, since: datetime, until: datetime, now: datetime) -> Day:
    """The fires that were decided and the jobs that ended in the period, which excludes `until`."""
    unreadable = select(OrgScheduleRow.id).where(_IS_UNREADABLE).order_by(OrgScheduleRow.id)
    return Day(
        fires=_fires(session, since, until),
        jobs=_jobs(session, since, until),
        oldest_due_seconds=due_schedules(session, now).age_seconds,
        unreadable=session.scalars(unreadable).all(),
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
    query = (
        select(*key, func.count())
        .where(OrgJobRow.finished_at >= since, OrgJobRow.finished_at < until)
        .group_by(*key)
        .order_by(*key)
    )
    return [
        DayJobs(org_id=org, status=OrgJobsRunState(status), type=type_, count=count)
        for org, status, type_, count in session.execute(query).tuples()
    ]
