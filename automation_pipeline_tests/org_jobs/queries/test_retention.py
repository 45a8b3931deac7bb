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
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench

NOTHING: dict[str, int] = {}


def purged(
    bench: Bench, limit: int = 100, keep_days: int = 90, keep_audit_days: int = 365, **dry: bool
) -> dict:
    """The number of deleted rows per kind, without zeros."""
    kept = {"org_jobs_keep_days": keep_days, "org_jobs_audit_keep_days": keep_audit_days}
    deleted = {
        kind.name: purge(
            kind, bench.now - timedelta(days=days), limit, database=bench.database, **dry
        )
        for setting, days in kept.items()
        for kind in KINDS[setting]
    }
    return {kind: rows for kind, rows in deleted.items() if rows}


def count(bench: Bench, table: object) -> int:
    return bench.rows(select(func.count()).select_from(table))[0]


def done(bench: Bench, org_id: str = ORG, **of_job: object) -> int:
    """Insert a job with one attempt, cancelled while it ran."""
    job_id = bench.running_job(org_id, **of_job)
    with bench.database.transaction() as session:
        end_attempts(session, {bench.run_row(job_id).id: attempt_cancelled()}, ACTOR, bench.now)
    return job_id


def batch(bench: Bench, schedule_id: str, status: str) -> None:
    times = {
        "from_at": bench.now,
        "until_at": bench.now,
        "created_at": bench.now,
        "finished_at": bench.now,
    }
    values = {"type": "backfill", "behaviour": "none", "total": 0, "created_by": ACTOR}
    with bench.database.transaction() as session:
        session.add(BatchRow(org_id=ORG, schedule_id=schedule_id, status=status, **times, **values))


def test_old_jobs_are_deleted_with_runs_and_attempts(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    fire = org_bench.fire(schedule)
    done(org_bench, schedule_id=schedule, fire_id=fire)
    done(org_bench, OTHER_ORG)
    waiting = org_bench.job()
    org_bench.clock.pass_time(timedelta(days=90))
    assert purged(org_bench) == NOTHING
    org_bench.pass_minutes(1)
    young = done(org_bench, schedule_id=schedule, fire_id=org_bench.fire(schedule))
    assert purged(org_bench, is_dry=True) == {"org_jobs": 2}
    moves = {"state_transitions, org_jobs": 2}
    assert purged(org_bench) == {"org_jobs": 2, "org_schedule_fires": 1} | moves
    assert [job.id for job in org_bench.jobs()] == [waiting, young]
    assert (
        count(org_bench, JobRunRow),
        count(org_bench, AttemptRow),
        count(org_bench, TransitionRow),
    ) == (2, 1, 1)
    assert len(org_bench.fires(schedule)) == 1


def test_old_logs_alerts_backfills_and_deleted_schedules_are_deleted(org_bench: Bench) -> None:
    gone, kept = org_bench.schedule(deleted_at=org_bench.now), org_bench.schedule()
    org_bench.fire(gone, outcome="SKIPPED", skip_reason="overlap")
    org_bench.fire(kept, outcome="SKIPPED", skip_reason="overlap")
    for status in ("completed", "running"):
        batch(org_bench, kept, status)
    values = {
        "name": "x",
        "severity": "warning",
        "subject": "s",
        "message": "m",
        "status": "unsent",
    }
    with org_bench.database.transaction() as session:
        about = {"org_id": ORG, "entity": "schedule", "entity_id": kept}
        add_audit_entry(session, **about, actor=ACTOR, action="update", now=org_bench.now)
        for machine, entity_id in (("schedule", gone), ("schedule", kept), ("rule run", gone)):
            states = {"from_state": "ACTIVE", "to_state": "PAUSED", "actor": ACTOR}
            move = {"machine": machine, "entity_id": entity_id, "at": org_bench.now}
            session.add(TransitionRow(**move, **states))
        for days in (0, 91):
            at = org_bench.now + timedelta(days=days)
            session.add(OrgAlertRow(**values, raised_at=at, next_retry_at=at))
    org_bench.clock.pass_time(timedelta(days=91))
    went = {"org_schedule_fires": 1, "org_job_batches": 1, "org_schedules": 1, "org_alerts": 1}
    assert purged(org_bench) == {**went, "state_transitions, org_jobs": 1}
    assert org_bench.moves("schedule", kept) == [("ACTIVE", "PAUSED")]
    assert org_bench.moves("rule run", gone) == [("ACTIVE", "PAUSED")]
    assert org_bench.rows(select(OrgScheduleRow.id)) == [kept]
    assert org_bench.rows(select(BatchRow.status)) == ["running"]


def test_audit_log_is_kept_as_long_as_configured(org_bench: Bench) -> None:
    org_bench.organisation()
    with org_bench.database.transaction() as session:
        for number in range(3):
            at = org_bench.now + timedelta(days=number)
            add_audit_entry(
                session,
                org_id=ORG,
                entity="host",
                entity_id="1",
                actor=ACTOR,
                action="update",
                now=at,
            )
    org_bench.clock.pass_time(timedelta(days=365))
    assert purged(org_bench) == NOTHING
    org_bench.pass_minutes(1)
    assert purged(org_bench) == {"org_audit_log": 1}
    assert len(org_bench.audit()) == 2
    assert purged(org_bench, keep_days=3650, keep_audit_days=30) == {"org_audit_log": 1}


def test_purge_is_limited_per_kind(org_bench: Bench) -> None:
    for _ in range(4):
        done(org_bench)
    org_bench.clock.pass_time(timedelta(days=91))
    assert [purged(org_bench, limit=2).get("org_jobs", 0) for _ in range(3)] == [2, 1, 0]


def test_ids_of_jobs_and_runs_are_not_reused(org_bench: Bench) -> None:
    """Run requests use keys with the run's id, and Dagster launches each key once."""
    oldest, middle, newest = (done(org_bench) for _ in range(3))
    retried = org_bench.run_row(oldest)
    columns = {
        one.key: getattr(retried, one.key) for one in JobRunRow.__table__.columns if one.key != "id"
    }
    with org_bench.database.transaction() as session:
        session.add(JobRunRow(**columns))
    org_bench.clock.pass_time(timedelta(days=91))
    assert purged(org_bench)["org_jobs"] == 1
    assert {job.id for job in org_bench.jobs()} == {oldest, newest}
    assert middle not in {job.id for job in org_bench.jobs()}
