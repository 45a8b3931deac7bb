"""Jobs of organisations by the stages and stores, their backfills, alerts and what was changed. Schedules and
organisations are in the neighbours."""

from collections.abc import Mapping, Sequence

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.local.actor import actor
from automation_pipeline.cli.desk.local.org_choice import chosen_org, refuse_strange_org
from automation_pipeline.cli.desk.local.org_schedules import LocalOrgSchedules
from automation_pipeline.cli.desk.local.organisations import LocalHosts, LocalOrganisations, LocalServers
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.org_jobs.domain.audit_entry import AuditEntry
from automation_pipeline.org_jobs.domain.backfill import Backfill
from automation_pipeline.org_jobs.domain.job_types import JobTypeCard, job_types
from automation_pipeline.org_jobs.domain.org_job import JobFilter, JobMove, OrgJob, QueueStanding
from automation_pipeline.org_jobs.domain.raised_alert import OrgAlert
from automation_pipeline.org_jobs.domain.tenancy import EVERYWHERE, Within
from automation_pipeline.org_jobs.stages.cancel_backfill import cancel_backfill
from automation_pipeline.org_jobs.stages.cancel_job import cancel_job
from automation_pipeline.org_jobs.stages.request_job import request_job
from automation_pipeline.org_jobs.stages.retry_job import retry_job
from automation_pipeline.org_jobs.store.alerts import list_alerts
from automation_pipeline.org_jobs.store.audit_log import audit_log
from automation_pipeline.org_jobs.store.backfills import get_backfill, list_backfills
from automation_pipeline.org_jobs.store.job_views import get_job, list_jobs, queues, transitions_of

Document = Mapping[str, object]


class LocalJobs:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Document, org_id: str | None) -> OrgJob:
        our, org = self._services, chosen_org(self._services, org_id)
        return request_job(
            given,
            org_id=org,
            within=EVERYWHERE,
            database=our.database,
            clock=our.clock,
            actor=actor(),
            call_origins=our.settings.org_jobs_https_allowed_origins,
        )

    def listed(self, chosen: JobFilter, span: Span) -> Sequence[OrgJob]:
        refuse_strange_org(self._services, chosen.org_id)
        with self._services.database.reading() as session:
            return list_jobs(session, EVERYWHERE, chosen=chosen, limit=span.limit, offset=span.offset)

    def get(self, job_id: int) -> OrgJob:
        with self._services.database.reading() as session:
            return get_job(session, job_id, EVERYWHERE)

    def cancel(self, job_id: int, *, reason: str | None, at_once: bool) -> OrgJob:
        our = self._services
        return cancel_job(
            job_id,
            within=EVERYWHERE,
            database=our.database,
            clock=our.clock,
            actor=actor(),
            reason=reason,
            at_once=at_once,
        )

    def retry(self, job_id: int) -> OrgJob:
        our = self._services
        return retry_job(job_id, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())

    def log(self, job_id: int, *, limit: int, after_id: int = 0) -> Sequence[JobMove]:
        with self._services.database.reading() as session:
            return transitions_of(session, job_id, EVERYWHERE, limit, after_id)

    def queues(self, org_id: str | None) -> Sequence[QueueStanding]:
        refuse_strange_org(self._services, org_id)
        with self._services.database.reading() as session:
            return queues(session, Within(org_id), self._services.clock.now())

    def types(self) -> Sequence[JobTypeCard]:
        return job_types()


class LocalBackfills:
    def __init__(self, services: Services) -> None:
        self._services = services

    def listed(self, org_id: str | None, span: Span) -> Sequence[Backfill]:
        refuse_strange_org(self._services, org_id)
        with self._services.database.reading() as session:
            return list_backfills(session, EVERYWHERE, org_id=org_id, limit=span.limit, offset=span.offset)

    def get(self, batch_id: int) -> Backfill:
        with self._services.database.reading() as session:
            return get_backfill(session, batch_id, EVERYWHERE)

    def cancel(self, batch_id: int) -> Backfill:
        our = self._services
        return cancel_backfill(batch_id, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())


class LocalOrgJobs:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.schedules = LocalOrgSchedules(services)
        self.jobs = LocalJobs(services)
        self.backfills = LocalBackfills(services)
        self.organisations = LocalOrganisations(services)
        self.hosts = LocalHosts(services)
        self.servers = LocalServers(services)

    def alerts(self, org_id: str | None, span: Span) -> Sequence[OrgAlert]:
        refuse_strange_org(self._services, org_id)
        with self._services.database.reading() as session:
            return list_alerts(session, EVERYWHERE, org_id=org_id, limit=span.limit, offset=span.offset)

    def audit_log(
        self, org_id: str | None, *, entity: str | None, entity_id: str | None, limit: int, after_id: int = 0
    ) -> Sequence[AuditEntry]:
        refuse_strange_org(self._services, org_id)
        with self._services.database.reading() as session:
            return audit_log(
                session,
                Within(org_id),
                entity=entity,
                entity_id=entity_id,
                limit=limit,
                after_id=after_id,
                newest_first=True,
            )
