"""Purge of rows older than their retention period."""

from datetime import timedelta

from sqlalchemy import func, select

from automation_pipeline.org_jobs.models.jobs import attempt_cancelled
from automation_pipeline.org_jobs.queries.attempts import end_attempts
from automation_pipeline.org_jobs.queries.organisations import add_audit_entry
from automation_pipeline.org_jobs.tables import (
    AttemptRow,
    BatchRow,
    JobRunRow,
    OrgAlertRow,
    OrgScheduleRow,
)
from automation_pipeline.retention import KINDS, purge
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline_tests.org_jobs.data import ACTOR, ORG, OTHER_ORG, OrgJobsData

NOTHING: dict[str, int] = {}


def purged(
    data: OrgJobsData,
    limit: int = 100,
    keep_days: int = 90,
    keep_audit_days: int = 365,
    **dry: bool,
) -> dict:
    """The number of deleted rows per kind, without zeros."""
    kept = {"org_jobs_keep_days": keep_days, "org_jobs_audit_keep_days": keep_audit_days}
    deleted = {
        kind.name: purge(
            kind, data.now - timedelta(days=days), limit, database=data.database, **dry
        )
        for setting, days in kept.items()
        for kind in KINDS[setting]
    }
    return {kind: rows for kind, rows in deleted.items() if rows}


def count(data: OrgJobsData, table: object) -> int:
    return data.rows(select(func.count()).select_from(table))[0]


def add_cancelled_job(data: OrgJobsData, org_id: str = ORG, **of_job: object) -> int:
    """Insert a job with one attempt, cancelled while it ran."""
    job_id = data.running_job(org_id, **of_job)
    with data.database.transaction() as session:
        end_attempts(session, {data.run_row(job_id).id: attempt_cancelled()}, ACTOR, data.now)
    return job_id


def add_batch(data: OrgJobsData, schedule_id: str, status: str) -> None:
    times = {
        "from_at": data.now,
        "until_at": data.now,
        "created_at": data.now,
        "finished_at": data.now,
    }
    values = {"type": "backfill", "behaviour": "none", "total": 0, "created_by": ACTOR}
    with data.database.transaction() as session:
        session.add(BatchRow(org_id=ORG, schedule_id=schedule_id, status=status, **times, **values))


def test_old_jobs_are_deleted_with_runs_and_attempts(data: OrgJobsData) -> None:
    schedule = data.schedule()
    fire = data.fire(schedule)
    add_cancelled_job(data, schedule_id=schedule, fire_id=fire)
    add_cancelled_job(data, OTHER_ORG)
    waiting = data.job()
    data.clock.advance(timedelta(days=90))
    assert purged(data) == NOTHING
    data.advance_minutes(1)
    young = add_cancelled_job(data, schedule_id=schedule, fire_id=data.fire(schedule))
    assert purged(data, is_dry=True) == {"org_jobs": 2}
    moves = {"state_transitions, org_jobs": 2}
    assert purged(data) == {"org_jobs": 2, "org_schedule_fires": 1} | moves
    assert [job.id for job in data.jobs()] == [waiting, young]
    assert (
        count(data, JobRunRow),
        count(data, AttemptRow),
        count(data, TransitionRow),
    ) == (2, 1, 1)
    assert len(data.fires(schedule)) == 1


def test_old_logs_alerts_backfills_and_deleted_schedules_are_deleted(data: OrgJobsData) -> None:
    deleted_schedule, kept = data.schedule(deleted_at=data.now), data.schedule()
    data.fire(deleted_schedule, outcome="SKIPPED", skip_reason="overlap")
    data.fire(kept, outcome="SKIPPED", skip_reason="overlap")
    for status in ("completed", "running"):
        add_batch(data, kept, status)
    values = {
        "name": "x",
        "severity": "warning",
        "subject": "s",
        "message": "m",
        "status": "unsent",
    }
    with data.database.transaction() as session:
        about = {"org_id": ORG, "entity": "schedule", "entity_id": kept}
        add_audit_entry(session, **about, actor=ACTOR, action="update", now=data.now)
        for machine, entity_id in (
            ("schedule", deleted_schedule),
            ("schedule", kept),
            ("rule run", deleted_schedule),
        ):
            states = {"from_state": "ACTIVE", "to_state": "PAUSED", "actor": ACTOR}
            move = {"machine": machine, "entity_id": entity_id, "at": data.now}
            session.add(TransitionRow(**move, **states))
        for days in (0, 91):
            at = data.now + timedelta(days=days)
            session.add(OrgAlertRow(**values, raised_at=at, next_retry_at=at))
    data.clock.advance(timedelta(days=91))
    deleted = {"org_schedule_fires": 1, "org_job_batches": 1, "org_schedules": 1, "org_alerts": 1}
    assert purged(data) == {**deleted, "state_transitions, org_jobs": 1}
    assert data.transitions("schedule", kept) == [("ACTIVE", "PAUSED")]
    assert data.transitions("rule run", deleted_schedule) == [("ACTIVE", "PAUSED")]
    assert data.rows(select(OrgScheduleRow.id)) == [kept]
    assert data.rows(select(BatchRow.status)) == ["running"]


def test_audit_log_is_kept_as_long_as_configured(data: OrgJobsData) -> None:
    data.organisation()
    with data.database.transaction() as session:
        for number in range(3):
            at = data.now + timedelta(days=number)
            add_audit_entry(
                session,
                org_id=ORG,
                entity="host",
                entity_id="1",
                actor=ACTOR,
                action="update",
                now=at,
            )
    data.clock.advance(timedelta(days=365))
    assert purged(data) == NOTHING
    data.advance_minutes(1)
    assert purged(data) == {"org_audit_log": 1}
    assert len(data.audit()) == 2
    assert purged(data, keep_days=3650, keep_audit_days=30) == {"org_audit_log": 1}


def test_purge_is_limited_per_kind(data: OrgJobsData) -> None:
    for _ in range(4):
        add_cancelled_job(data)
    data.clock.advance(timedelta(days=91))
    assert [purged(data, limit=2).get("org_jobs", 0) for _ in range(3)] == [2, 1, 0]


def test_ids_of_jobs_and_runs_are_not_reused(data: OrgJobsData) -> None:
    """Run requests use keys with the run's id, and Dagster launches each key once."""
    oldest, middle, newest = (add_cancelled_job(data) for _ in range(3))
    retried = data.run_row(oldest)
    columns = {
        one.key: getattr(retried, one.key) for one in JobRunRow.__table__.columns if one.key != "id"
    }
    with data.database.transaction() as session:
        session.add(JobRunRow(**columns))
    data.clock.advance(timedelta(days=91))
    assert purged(data)["org_jobs"] == 1
    assert {job.id for job in data.jobs()} == {oldest, newest}
    assert middle not in {job.id for job in data.jobs()}
