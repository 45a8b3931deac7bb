"""Rows of organisations, hosts, servers, schedules and jobs for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import select, update

from automation_pipeline.core.events import Event
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.scheduling.timing import next_planned
from automation_pipeline.org_jobs.models.jobs import JobType, Performer, RetryPolicy
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.jobs import NewJob, add_jobs
from automation_pipeline.org_jobs.queries.schedules import plan, timing_of
from automation_pipeline.org_jobs.tables import (
    AttemptRow,
    AuditLogRow,
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
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.outbox import OutboxRow, event_in
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.fakes.clock import FakeClock

ORG, OTHER_ORG = "acme", "globex"
ACTOR = "user:1"


def make_type(
    name: str, performer: Performer, *, is_mutation: bool = True, limit_seconds: int = 900
) -> JobType:
    """A job type for jobs that tests insert directly."""
    return JobType(
        name=name,
        performer=performer,
        is_mutation=is_mutation,
        limit_seconds=limit_seconds,
        payload=JsonModel,
        summary="For tests.",
    )


CHANGING = make_type("SERVER_RESTART", Performer.AGENT, limit_seconds=86_400)
READING = make_type("SAVE_LIST", Performer.AGENT, is_mutation=False, limit_seconds=180)
SERVICE = make_type("HTTPS_CALL", Performer.SERVICE, limit_seconds=180)


@dataclass
class OrgJobsData:
    """Inserts rows without validation. Organisations are created on first use."""

    database: Database
    clock: FakeClock
    meter: Meter = field(default_factory=Meter)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    @property
    def services(self) -> dict[str, Any]:
        """The arguments of use cases that the scheduler calls."""
        return {"database": self.database, "clock": self.clock, "meter": self.meter}

    def context(self, within: OrgScope = ALL_ORGANISATIONS, actor: str = ACTOR) -> dict[str, Any]:
        """The arguments of use cases that a caller requests."""
        return {"within": within, "database": self.database, "clock": self.clock, "actor": actor}

    def advance_minutes(self, minutes: float) -> None:
        self.clock.advance(timedelta(minutes=minutes))

    def organisation(self, org_id: str = ORG, **columns: Any) -> str:
        """Create the organisation, or update its columns."""
        values = {
            "name": org_id.title(),
            "max_running": 20,
            "created_at": self.now,
            "updated_at": self.now,
        }
        with self.database.transaction() as session:
            if session.get(OrganisationRow, org_id) is None:
                session.add(OrganisationRow(id=org_id, **(values | columns)))
            elif columns:
                session.execute(
                    update(OrganisationRow).where(OrganisationRow.id == org_id).values(**columns)
                )
        return org_id

    def host(self, org_id: str = ORG, name: str | None = None, **columns: Any) -> int:
        """Insert a host whose agent sent its last heartbeat now, by the test's clock."""
        self.organisation(org_id)
        times = {"last_seen_at": self.now, "created_at": self.now, "updated_at": self.now}
        return self._add(
            HostRow(org_id=org_id, name=name or _unique_name("host"), **(times | columns))
        )

    def server(
        self,
        org_id: str = ORG,
        name: str | None = None,
        *,
        host_id: int | None = None,
        **columns: Any,
    ) -> int:
        """Insert a server, by default without a host."""
        self.organisation(org_id)
        values = {"is_enabled": True, "created_at": self.now, "updated_at": self.now}
        return self._add(
            ServerRow(
                org_id=org_id,
                host_id=host_id,
                name=name or _unique_name("server"),
                **(values | columns),
            )
        )

    def schedule(self, org_id: str = ORG, **columns: Any) -> str:
        """Insert an active schedule at 02:00 UTC with its own server. `columns` override the defaults."""
        self.organisation(org_id)
        if (
            "server_instance_id" not in columns
            and columns.get("job_type", CHANGING.name) == CHANGING.name
        ):
            columns["server_instance_id"] = self.server(org_id)
        row = OrgScheduleRow(**(self._schedule_columns() | {"org_id": org_id} | columns))
        if row.state == "ACTIVE" and "next_run_at" not in columns:
            plan(row, next_planned(timing_of(row), self.now))
        elif row.next_run_at is not None and row.next_scheduled_for is None:
            row.next_scheduled_for = row.next_run_at
        return self._add(row)

    def _schedule_columns(self) -> dict[str, Any]:
        return {
            "id": str(uuid4()),
            "name": "Nightly restart",
            "cron_expression": "0 2 * * *",
            "timezone": "UTC",
            "job_type": CHANGING.name,
            "payload": {},
            "priority": 5,
            "enabled": True,
            "state": "ACTIVE",
            "window_policy": "CLAMP",
            "latest_start_cutoff_min": 0,
            "misfire_policy": "FIRE_ONCE",
            "misfire_grace_s": 3600,
            "overlap_policy": "SKIP",
            "jitter_s": 0,
            "excluded_on": [],
            "skip_if_offline": False,
            "auto_pause_after": 10,
            "created_by": ACTOR,
            "created_at": self.now,
            "updated_at": self.now,
        }

    def fire(self, schedule_id: str, scheduled_for: datetime | None = None, **columns: Any) -> int:
        """Insert a dispatched due time. `columns` override the defaults."""
        at = scheduled_for or self.now
        values = {
            "effective_for": at,
            "fired_at": at,
            "trigger": "CRON",
            "outcome": "DISPATCHED",
            "actor": "scheduler",
        }
        org_id = self.schedule_row(schedule_id).org_id
        return self._add(
            FireRow(org_id=org_id, schedule_id=schedule_id, scheduled_for=at, **(values | columns)),
        )

    def job(
        self,
        org_id: str = ORG,
        of_type: JobType = CHANGING,
        *,
        retry: RetryPolicy | None = None,
        payload: Mapping[str, object] | None = None,
        run: Mapping[str, Any] | None = None,
        **of_job: Any,
    ) -> int:
        """Insert a job with a pending first run; `run` overrides columns of the run."""
        self.organisation(org_id)
        new = NewJob(
            org_id=org_id,
            type=of_type,
            payload=payload or {},
            retry=retry or RetryPolicy(),
            **({"created_by": ACTOR, "priority": 5} | of_job),
        )
        with self.database.transaction() as session:
            (job_id,) = add_jobs(session, [new], self.now)
        if run:
            self.set_run(self.run_row(job_id).id, **run)
        return job_id

    def running_job(self, org_id: str = ORG, of_type: JobType = CHANGING, **of_job: Any) -> int:
        """Insert a running job with a lease of one minute."""
        job_id = self.job(org_id, of_type, **of_job)
        self.set_run(
            self.run_row(job_id).id,
            status="running",
            started_at=self.now,
            lease_owner="worker",
            lease_token=1,
            lease_until=database_now(60.0),
        )
        return job_id

    def set_run(self, run_id: int, **columns: Any) -> None:
        """Update the run and the status of its job."""
        with self.database.transaction() as session:
            session.execute(update(JobRunRow).where(JobRunRow.id == run_id).values(**columns))
            if "status" in columns:
                its_job = select(JobRunRow.job_id).where(JobRunRow.id == run_id).scalar_subquery()
                session.execute(
                    update(OrgJobRow)
                    .where(OrgJobRow.id == its_job)
                    .values(status=columns["status"])
                )

    def set_job(self, job_id: int, **columns: Any) -> None:
        self._set(OrgJobRow, job_id, columns)

    def set_schedule(self, schedule_id: str, **columns: Any) -> None:
        self._set(OrgScheduleRow, schedule_id, columns)

    def set_host(self, host_id: int, **columns: Any) -> None:
        self._set(HostRow, host_id, columns)

    def set_server(self, server_id: int, **columns: Any) -> None:
        self._set(ServerRow, server_id, columns)

    def expire_lease(self, run_id: int) -> None:
        """Expire the lease, as after missing heartbeats."""
        self.set_run(run_id, lease_until=database_now(-1.0))

    def organisation_row(self, org_id: str = ORG) -> OrganisationRow:
        return self._one(OrganisationRow, org_id)

    def host_row(self, host_id: int) -> HostRow:
        return self._one(HostRow, host_id)

    def server_row(self, server_id: int) -> ServerRow:
        return self._one(ServerRow, server_id)

    def schedule_row(self, schedule_id: str) -> OrgScheduleRow:
        return self._one(OrgScheduleRow, schedule_id)

    def batch_row(self, batch_id: int) -> BatchRow:
        return self._one(BatchRow, batch_id)

    def job_row(self, job_id: int) -> OrgJobRow:
        return self._one(OrgJobRow, job_id)

    def run_row(self, job_id: int) -> JobRunRow:
        """The newest run of a job."""
        return self.runs(job_id)[-1]

    def run_by_id(self, run_id: int) -> JobRunRow:
        return self._one(JobRunRow, run_id)

    def runs(self, job_id: int) -> Sequence[JobRunRow]:
        return self.rows(select(JobRunRow).where(JobRunRow.job_id == job_id).order_by(JobRunRow.id))

    def attempts(self, run_id: int) -> Sequence[AttemptRow]:
        return self.rows(
            select(AttemptRow).where(AttemptRow.run_id == run_id).order_by(AttemptRow.attempt_no)
        )

    def jobs(self, schedule_id: str | None = None) -> Sequence[OrgJobRow]:
        query = select(OrgJobRow).order_by(OrgJobRow.id)
        return self.rows(
            query if schedule_id is None else query.where(OrgJobRow.schedule_id == schedule_id)
        )

    def fires(self, schedule_id: str) -> Sequence[FireRow]:
        return self.rows(
            select(FireRow).where(FireRow.schedule_id == schedule_id).order_by(FireRow.id)
        )

    def alerts(self) -> Sequence[OrgAlertRow]:
        return self.rows(select(OrgAlertRow).order_by(OrgAlertRow.id))

    def audit(self, entity_id: str | None = None) -> Sequence[AuditLogRow]:
        query = select(AuditLogRow).order_by(AuditLogRow.id)
        return self.rows(
            query if entity_id is None else query.where(AuditLogRow.entity_id == entity_id)
        )

    def transitions(self, machine: str, entity_id: str | int) -> list[tuple[str, str]]:
        """The state changes in order. The machine is "schedule" or "job run"."""
        query = select(TransitionRow).where(
            TransitionRow.machine == machine, TransitionRow.entity_id == str(entity_id)
        )
        rows = self.rows(query.order_by(TransitionRow.id))
        return [(row.from_state, row.to_state) for row in rows]

    def events(self, name: str | None = None) -> list[Event]:
        """The events in the outbox, or those with this name."""
        found = [event_in(row) for row in self.rows(select(OutboxRow).order_by(OutboxRow.id))]
        return [event for event in found if name in {None, event.name}]

    def requests(self) -> list[tuple[str, Mapping[str, object]]]:
        """The keys and configs of the run requests."""
        return [
            (row.request_key, row.config)
            for row in self.rows(select(RunRequestRow).order_by(RunRequestRow.id))
        ]

    def rows(self, query: Any) -> Sequence[Any]:
        with self.database.reading() as session:
            return list(session.scalars(query))

    def _one(self, table: Any, key: object) -> Any:
        with self.database.reading() as session:
            return session.get_one(table, key)

    def _add(self, row: Any) -> Any:
        with self.database.transaction() as session:
            session.add(row)
            session.flush()
            return row.id

    def _set(self, table: Any, key: object, columns: Mapping[str, Any]) -> None:
        with self.database.transaction() as session:
            session.execute(update(table).where(table.id == key).values(**columns))


def _unique_name(noun: str) -> str:
    return f"{noun}-{uuid4().hex[:8]}"
