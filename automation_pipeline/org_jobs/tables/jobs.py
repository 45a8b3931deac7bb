"""Jobs, their runs and the attempts of those, and batches of jobs."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, UtcDateTime

_STATES = "('pending', 'running', 'success', 'failed', 'cancelled')"
_PENDING = text("status = 'pending'")
_RUNNING = text("status = 'running'")
_ACTIVE = text("status IN ('pending', 'running')")


class BatchRow(Table):
    """Jobs that were made together: a backfill."""

    __tablename__ = "org_job_batches"
    __table_args__ = (
        CheckConstraint("status IN ('running', 'completed', 'completed_with_failures', 'cancelled')", name="status"),
        Index(None, "org_id", "created_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    schedule_id: Mapped[str] = mapped_column(ForeignKey("org_schedules.id", ondelete="CASCADE"), index=True)
    type: Mapped[str]
    status: Mapped[str]
    # Which due times of the period: none, failed or completed ones are done again.
    behaviour: Mapped[str]
    from_at: Mapped[datetime] = mapped_column(UtcDateTime)
    until_at: Mapped[datetime] = mapped_column(UtcDateTime)
    total: Mapped[int]
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class JobRow(Table):
    """What is to be done, as it was when it was asked for. `status` is that of its newest run. `start_window` is where
    its attempts may begin: {"start", "end", "timezone"}; NULL: whenever."""

    __tablename__ = "org_jobs"
    __table_args__ = (
        CheckConstraint(f"status IN {_STATES}", name="status"),
        CheckConstraint("performer IN ('agent', 'service')", name="performer"),
        Index(None, "org_id", "created_at"),
        Index(None, "schedule_id", "created_at"),
        Index(None, "batch_id"),
        Index(None, "server_instance_id"),
        Index(None, "finished_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("org_job_batches.id", ondelete="CASCADE"))
    server_instance_id: Mapped[int | None] = mapped_column(ForeignKey("server_instances.id"))
    schedule_id: Mapped[str | None] = mapped_column(ForeignKey("org_schedules.id", ondelete="CASCADE"))
    schedule_fire_id: Mapped[int | None] = mapped_column(
        ForeignKey("org_schedule_fires.id", ondelete="CASCADE"), unique=True
    )
    scheduled_for: Mapped[datetime | None] = mapped_column(UtcDateTime)
    type: Mapped[str]
    performer: Mapped[str]
    payload: Mapped[JsonObject] = mapped_column(Json)
    priority: Mapped[int]
    retry_policy: Mapped[JsonObject] = mapped_column(Json)
    start_window: Mapped[JsonObject | None] = mapped_column(Json)
    status: Mapped[str]
    # Unless it has begun by then, it fails.
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class JobRunRow(Table):
    """A job being done, with up to `max_attempts` attempts; an operator's retry is another run. While somebody has it,
    `lease_until` lies ahead by the database's clock; a later holder has a higher `lease_token`. `following` names what
    was begun elsewhere and is waited for without a worker. Runs of one `line` are begun one at a time, in the order of
    their ids."""

    __tablename__ = "org_job_runs"
    __table_args__ = (
        CheckConstraint(f"status IN {_STATES}", name="status"),
        CheckConstraint("performer IN ('agent', 'service')", name="performer"),
        CheckConstraint("attempt_no BETWEEN 1 AND max_attempts", name="attempt_no"),
        CheckConstraint("(status IN ('pending', 'running')) = (finished_at IS NULL)", name="finished"),
        CheckConstraint("status <> 'running' OR started_at IS NOT NULL", name="started"),
        CheckConstraint("status <> 'failed' OR error_code IS NOT NULL", name="error_code"),
        Index("ix_org_job_runs_pending", "org_id", "priority", "id", postgresql_where=_PENDING, sqlite_where=_PENDING),
        Index("ix_org_job_runs_running", "lease_until", postgresql_where=_RUNNING, sqlite_where=_RUNNING),
        Index("ix_org_job_runs_line", "line", "id", postgresql_where=_ACTIVE, sqlite_where=_ACTIVE),
        Index("ix_org_job_runs_host", "host_id", postgresql_where=_ACTIVE, sqlite_where=_ACTIVE),
        Index("ix_org_job_runs_schedule", "schedule_id", postgresql_where=_ACTIVE, sqlite_where=_ACTIVE),
        Index(None, "job_id"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("org_jobs.id", ondelete="CASCADE"))
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    schedule_id: Mapped[str | None]
    # For jobs of agents: the host of its server, known at the latest when an agent takes it.
    host_id: Mapped[int | None] = mapped_column(ForeignKey("org_hosts.id"))
    performer: Mapped[str]
    is_mutation: Mapped[bool]
    priority: Mapped[int]
    line: Mapped[str | None]
    status: Mapped[str]
    attempt_no: Mapped[int] = mapped_column(default=1)
    max_attempts: Mapped[int]
    next_attempt_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When Dagster was asked for a worker for this attempt; how often it was asked in all.
    requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    requests: Mapped[int] = mapped_column(default=0)
    lease_owner: Mapped[str | None]
    lease_token: Mapped[int] = mapped_column(BigInteger, default=0)
    lease_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # The beginning and the latest end of the attempt.
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    deadline_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    progress: Mapped[JsonObject | None] = mapped_column(Json)
    progress_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    following: Mapped[JsonObject | None] = mapped_column(Json)
    cancel_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    cancelled_by: Mapped[str | None]
    cancel_reason: Mapped[str | None]
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    result: Mapped[JsonObject | None] = mapped_column(Json)
    log_ref: Mapped[str | None]
    error_code: Mapped[str | None]
    error: Mapped[str | None]
    dagster_run_id: Mapped[str | None]
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class AttemptRow(Table):
    """One attempt that has ended. `late_report` is what an agent said after its attempt was given up."""

    __tablename__ = "org_job_attempts"
    __table_args__ = (
        CheckConstraint("status IN ('success', 'failed', 'cancelled')", name="status"),
        UniqueConstraint("run_id", "attempt_no"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("org_job_runs.id", ondelete="CASCADE"))
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    attempt_no: Mapped[int]
    owner: Mapped[str | None]
    host_id: Mapped[int | None]
    status: Mapped[str]
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime] = mapped_column(UtcDateTime)
    error_code: Mapped[str | None]
    error: Mapped[str | None]
    result: Mapped[JsonObject | None] = mapped_column(Json)
    log_ref: Mapped[str | None]
    retry_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    late_report: Mapped[JsonObject | None] = mapped_column(Json)
