"""Tables of organisations, their schedules, jobs with runs, and logs."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, synonym

from automation_pipeline.storage.types import BigId, Json, JsonObject, Table, TextList, UtcDateTime


class OrganisationRow(Table):
    """A tenant. At most `max_running` of its jobs run at the same time."""

    __tablename__ = "organisations"
    __table_args__ = (CheckConstraint("max_running BETWEEN 1 AND 1000", name="max_running"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    # Equals `id`; the column has the same name as in the other tables of organisations.
    org_id: Mapped[str] = synonym("id")
    name: Mapped[str]
    max_running: Mapped[int]
    suspended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    suspend_reason: Mapped[str | None]
    maintenance_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class HostRow(Table):
    """A machine with an agent. `last_seen_at` is the agent's last call, by the database's clock."""

    __tablename__ = "org_hosts"
    __table_args__ = (UniqueConstraint("org_id", "name"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    name: Mapped[str]
    maintenance_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    agent_version: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ServerRow(Table):
    """The subject of agents' jobs. Its jobs wait while it has no host."""

    __tablename__ = "server_instances"
    __table_args__ = (UniqueConstraint("org_id", "name"), Index(None, "host_id"))

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    host_id: Mapped[int | None] = mapped_column(ForeignKey("org_hosts.id"))
    name: Mapped[str]
    is_enabled: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


_ACTIVE = text("state = 'ACTIVE' AND deleted_at IS NULL")
_PAUSED_UNTIL = text("paused_until IS NOT NULL")
_BY_CRON = text("trigger IN ('CRON', 'CATCHUP')")
_OF_A_BATCH = text("batch_id IS NOT NULL")
_BY_HAND = text("client_key IS NOT NULL")


class OrgScheduleRow(Table):
    """`next_run_at` is when the schedule may be dispatched next, for the due time
    `next_scheduled_for` of its cron. Both are NULL unless it is ACTIVE. `enabled` is what the
    operator wants. `version` rises with every change."""

    __tablename__ = "org_schedules"
    __table_args__ = (
        CheckConstraint("state IN ('ACTIVE', 'PAUSED', 'INVALID_CRON', 'COMPLETED')", name="state"),
        CheckConstraint(
            "state <> 'ACTIVE' OR (enabled AND next_run_at IS NOT NULL)", name="active_is_due"
        ),
        CheckConstraint("state = 'ACTIVE' OR next_run_at IS NULL", name="only_active_is_due"),
        CheckConstraint("(next_run_at IS NULL) = (next_scheduled_for IS NULL)", name="next"),
        CheckConstraint(
            "(execution_window_start IS NULL) = (execution_window_end IS NULL)"
            " AND (execution_window_start IS NULL OR execution_window_start <> execution_window_end)",
            name="execution_window",
        ),
        CheckConstraint("window_policy IN ('CLAMP', 'FILTER')", name="window_policy"),
        CheckConstraint(
            "misfire_policy IN ('SKIP', 'FIRE_ONCE', 'FIRE_ALL')", name="misfire_policy"
        ),
        CheckConstraint(
            "overlap_policy IN ('SKIP', 'BUFFER_ONE', 'BUFFER_ALL', 'CANCEL_OTHER', 'TERMINATE_OTHER', 'ALLOW_ALL')",
            name="overlap_policy",
        ),
        Index(
            "ix_org_schedules_due", "next_run_at", postgresql_where=_ACTIVE, sqlite_where=_ACTIVE
        ),
        Index(
            "ix_org_schedules_paused_until",
            "paused_until",
            postgresql_where=_PAUSED_UNTIL,
            sqlite_where=_PAUSED_UNTIL,
        ),
        Index(None, "org_id", "created_at"),
        Index(None, "server_instance_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    server_instance_id: Mapped[int | None] = mapped_column(ForeignKey("server_instances.id"))
    name: Mapped[str]
    description: Mapped[str | None]
    cron_expression: Mapped[str]
    timezone: Mapped[str]
    job_type: Mapped[str]
    payload: Mapped[JsonObject] = mapped_column(Json)
    priority: Mapped[int]
    enabled: Mapped[bool]
    state: Mapped[str]
    execution_window_start: Mapped[str | None]
    execution_window_end: Mapped[str | None]
    window_policy: Mapped[str]
    latest_start_cutoff_min: Mapped[int]
    retry_policy: Mapped[JsonObject | None] = mapped_column(Json)
    misfire_policy: Mapped[str]
    misfire_grace_s: Mapped[int]
    overlap_policy: Mapped[str]
    jitter_s: Mapped[int]
    start_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    end_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Days as YYYY-MM-DD in the time zone of the schedule.
    excluded_on: Mapped[Sequence[str]] = mapped_column(TextList)
    skip_if_offline: Mapped[bool]
    auto_pause_after: Mapped[int]
    paused_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    pause_reason: Mapped[str | None]
    # Whether it is paused with its organisation, and will be resumed with it.
    is_suspended: Mapped[bool] = mapped_column(default=False)
    skip_next_run: Mapped[bool] = mapped_column(default=False)
    skip_next_run_reason: Mapped[str | None]
    skip_next_run_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    next_run_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    next_scheduled_for: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_run_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_run_job_id: Mapped[int | None] = mapped_column(BigInteger)
    last_dispatch_status: Mapped[str | None]
    last_job_status: Mapped[str | None]
    last_scheduled_for: Mapped[datetime | None] = mapped_column(UtcDateTime)
    run_count: Mapped[int] = mapped_column(default=0)
    failure_count: Mapped[int] = mapped_column(default=0)
    consecutive_failures: Mapped[int] = mapped_column(default=0)
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    version: Mapped[int] = mapped_column(default=1)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class FireRow(Table):
    """One due time of a schedule and its outcome. A due time is decided once for the cron, once per
    backfill, and once per key of a manual run."""

    __tablename__ = "org_schedule_fires"
    __table_args__ = (
        CheckConstraint("trigger IN ('CRON', 'CATCHUP', 'MANUAL', 'BACKFILL')", name="trigger"),
        CheckConstraint("outcome IN ('DISPATCHED', 'SKIPPED', 'FAILED')", name="outcome"),
        CheckConstraint("(outcome = 'SKIPPED') = (skip_reason IS NOT NULL)", name="skip_reason"),
        CheckConstraint("(outcome = 'FAILED') = (error IS NOT NULL)", name="error"),
        CheckConstraint("(trigger = 'BACKFILL') = (batch_id IS NOT NULL)", name="batch"),
        Index(
            "uq_org_schedule_fires_cron",
            "schedule_id",
            "scheduled_for",
            unique=True,
            postgresql_where=_BY_CRON,
            sqlite_where=_BY_CRON,
        ),
        Index(
            "uq_org_schedule_fires_batch",
            "batch_id",
            "scheduled_for",
            unique=True,
            postgresql_where=_OF_A_BATCH,
            sqlite_where=_OF_A_BATCH,
        ),
        Index(
            "uq_org_schedule_fires_client_key",
            "schedule_id",
            "client_key",
            unique=True,
            postgresql_where=_BY_HAND,
            sqlite_where=_BY_HAND,
        ),
        Index(None, "schedule_id", "fired_at"),
        Index(None, "fired_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    schedule_id: Mapped[str] = mapped_column(ForeignKey("org_schedules.id", ondelete="CASCADE"))
    scheduled_for: Mapped[datetime] = mapped_column(UtcDateTime)
    effective_for: Mapped[datetime] = mapped_column(UtcDateTime)
    fired_at: Mapped[datetime] = mapped_column(UtcDateTime)
    trigger: Mapped[str]
    outcome: Mapped[str]
    skip_reason: Mapped[str | None]
    batch_id: Mapped[int | None] = mapped_column(
        ForeignKey("org_job_batches.id", ondelete="CASCADE")
    )
    client_key: Mapped[str | None]
    actor: Mapped[str]
    # The error of a failed fire, or details of a skipped one.
    error: Mapped[str | None]
    note: Mapped[str | None]


_STATES = "('pending', 'running', 'success', 'failed', 'cancelled')"
_PENDING = text("status = 'pending'")
_RUNNING = text("status = 'running'")
_ACTIVE_RUN = text("status IN ('pending', 'running')")


class BatchRow(Table):
    __tablename__ = "org_job_batches"
    __table_args__ = (
        CheckConstraint(
            "status IN ('running', 'completed', 'completed_with_failures', 'cancelled')",
            name="status",
        ),
        Index(None, "org_id", "created_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    schedule_id: Mapped[str] = mapped_column(
        ForeignKey("org_schedules.id", ondelete="CASCADE"), index=True
    )
    type: Mapped[str]
    status: Mapped[str]
    # The due times that are repeated: those without a job, also failed ones, or also completed
    # ones.
    behaviour: Mapped[str]
    from_at: Mapped[datetime] = mapped_column(UtcDateTime)
    until_at: Mapped[datetime] = mapped_column(UtcDateTime)
    total: Mapped[int]
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class OrgJobTypeRow(Table):
    """A type of job that an organisation defines for its agents. `payload_schema` is a JSON Schema;
    NULL accepts any object."""

    __tablename__ = "org_job_types"
    __table_args__ = (
        CheckConstraint("limit_seconds BETWEEN 1 AND 86400", name="limit_seconds"),
        UniqueConstraint("org_id", "name"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    name: Mapped[str]
    summary: Mapped[str]
    is_mutation: Mapped[bool]
    limit_seconds: Mapped[int]
    payload_schema: Mapped[JsonObject | None] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class OrgJobRow(Table):
    """A job as it was requested. `status` is that of its newest run. `start_window` is when
    attempts may start, {"start", "end", "timezone"}; NULL: at any time."""

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
    batch_id: Mapped[int | None] = mapped_column(
        ForeignKey("org_job_batches.id", ondelete="CASCADE")
    )
    server_instance_id: Mapped[int | None] = mapped_column(ForeignKey("server_instances.id"))
    schedule_id: Mapped[str | None] = mapped_column(
        ForeignKey("org_schedules.id", ondelete="CASCADE")
    )
    schedule_fire_id: Mapped[int | None] = mapped_column(
        ForeignKey("org_schedule_fires.id", ondelete="CASCADE"), unique=True
    )
    scheduled_for: Mapped[datetime | None] = mapped_column(UtcDateTime)
    type: Mapped[str]
    performer: Mapped[str]
    # How long an attempt may take.
    limit_seconds: Mapped[int]
    payload: Mapped[JsonObject] = mapped_column(Json)
    priority: Mapped[int]
    retry_policy: Mapped[JsonObject] = mapped_column(Json)
    start_window: Mapped[JsonObject | None] = mapped_column(Json)
    status: Mapped[str]
    # A job that has not started by then fails.
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class JobRunRow(Table):
    """Up to `max_attempts` attempts at a job; an operator's retry is another run. `lease_*` is the
    claim of its worker or agent. `following` names work of another package, which needs no worker.
    Runs of one `line` start one at a time, in the order of their ids."""

    __tablename__ = "org_job_runs"
    __table_args__ = (
        CheckConstraint(f"status IN {_STATES}", name="status"),
        CheckConstraint("performer IN ('agent', 'service')", name="performer"),
        CheckConstraint("attempt_no BETWEEN 1 AND max_attempts", name="attempt_no"),
        CheckConstraint(
            "(status IN ('pending', 'running')) = (finished_at IS NULL)", name="finished"
        ),
        CheckConstraint("status <> 'running' OR started_at IS NOT NULL", name="started"),
        CheckConstraint("status <> 'failed' OR error_code IS NOT NULL", name="error_code"),
        Index(
            "ix_org_job_runs_pending",
            "org_id",
            "priority",
            "id",
            postgresql_where=_PENDING,
            sqlite_where=_PENDING,
        ),
        Index(
            "ix_org_job_runs_running",
            "lease_until",
            postgresql_where=_RUNNING,
            sqlite_where=_RUNNING,
        ),
        Index(
            "ix_org_job_runs_line",
            "line",
            "id",
            postgresql_where=_ACTIVE_RUN,
            sqlite_where=_ACTIVE_RUN,
        ),
        Index(
            "ix_org_job_runs_host",
            "host_id",
            postgresql_where=_ACTIVE_RUN,
            sqlite_where=_ACTIVE_RUN,
        ),
        Index(
            "ix_org_job_runs_schedule",
            "schedule_id",
            postgresql_where=_ACTIVE_RUN,
            sqlite_where=_ACTIVE_RUN,
        ),
        Index(None, "job_id"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("org_jobs.id", ondelete="CASCADE"))
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    schedule_id: Mapped[str | None]
    # The host of the server, known at the latest when an agent takes the run.
    host_id: Mapped[int | None] = mapped_column(ForeignKey("org_hosts.id"))
    performer: Mapped[str]
    is_mutation: Mapped[bool]
    priority: Mapped[int]
    line: Mapped[str | None]
    status: Mapped[str]
    attempt_no: Mapped[int] = mapped_column(default=1)
    max_attempts: Mapped[int]
    next_attempt_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When a worker was requested for this attempt; the total number of requests.
    requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    requests: Mapped[int] = mapped_column(default=0)
    lease_owner: Mapped[str | None]
    lease_token: Mapped[int] = mapped_column(BigInteger, default=0)
    lease_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # The start and the latest end of the attempt.
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
    """One attempt that has ended. `late_report` is what an agent reported after that."""

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


class AuditLogRow(Table):
    """An action of a user, with the changes."""

    __tablename__ = "org_audit_log"
    __table_args__ = (Index(None, "org_id", "at"), Index(None, "entity", "entity_id"))

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    actor: Mapped[str]
    action: Mapped[str]
    entity: Mapped[str]
    entity_id: Mapped[str]
    before: Mapped[JsonObject | None] = mapped_column(Json)
    after: Mapped[JsonObject | None] = mapped_column(Json)
    reason: Mapped[str | None]
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class OrgAlertRow(Table):
    """An alert and the delivery of its webhook. `subject` is the id of the schedule, host or
    backfill, or another key."""

    __tablename__ = "org_alerts"
    __table_args__ = (
        CheckConstraint("severity IN ('warning', 'critical')", name="severity"),
        CheckConstraint("status IN ('pending', 'sent', 'failed', 'unsent')", name="status"),
        Index(None, "name", "subject", "raised_at"),
        Index(None, "org_id", "raised_at"),
        Index(None, "status", "next_retry_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    # NULL: about the scheduler itself.
    org_id: Mapped[str | None] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    name: Mapped[str]
    severity: Mapped[str]
    subject: Mapped[str]
    message: Mapped[str]
    raised_at: Mapped[datetime] = mapped_column(UtcDateTime)
    # `unsent`: no webhook was configured.
    status: Mapped[str]
    attempts: Mapped[int] = mapped_column(default=0)
    status_code: Mapped[int | None]
    last_error: Mapped[str | None]
    next_retry_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
