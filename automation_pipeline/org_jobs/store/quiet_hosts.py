"""Hosts whose agents are silent though nobody has put them into maintenance, and what waits for them."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import case, exists, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.health import QuietHost
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.states import ACTIVE_RUN_STATES, RunState
from automation_pipeline.org_jobs.store.readiness import is_open
from automation_pipeline.org_jobs.tables import HostRow, JobRow, JobRunRow, OrganisationRow, ServerRow
from automation_pipeline.storage.bulk import among


def quiet_hosts(session: Session, now: datetime, silent_for: timedelta) -> list[QuietHost]:
    """Two queries. One that was never heard of is silent since it was made."""
    silent_since = func.coalesce(HostRow.last_seen_at, HostRow.created_at)
    has_servers = exists().where(ServerRow.host_id == HostRow.id, ServerRow.is_enabled)
    is_left_alone = or_(HostRow.maintenance_until.is_(None), HostRow.maintenance_until <= now)
    query = (
        select(HostRow.org_id, HostRow.id, HostRow.name, silent_since, HostRow.last_seen_at, has_servers)
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
    host = case((JobRunRow.status == RunState.RUNNING, JobRunRow.host_id), else_=ServerRow.host_id)
    query = (
        select(host, JobRunRow.status, func.count())
        .join(JobRow, JobRow.id == JobRunRow.job_id)
        .outerjoin(ServerRow, ServerRow.id == JobRow.server_instance_id)
        .where(JobRunRow.status.in_(ACTIVE_RUN_STATES), JobRunRow.performer == Performer.AGENT)
        .where(among(session, host, host_ids))
        .group_by(host, JobRunRow.status)
    )
    counts: Counter[tuple[int, bool]] = Counter()
    for host_id, status, count in session.execute(query).tuples():
        counts[host_id or 0, status == RunState.RUNNING] += count
    return counts
