"""Jobs of organisations by the API, their backfills, alerts and what was changed. Schedules and organisations are in
the neighbours."""

from collections.abc import Sequence

from automation_pipeline.cli.desk.remote.api import Api, Document, as_model, data_of, list_of
from automation_pipeline.cli.desk.remote.org_schedules import RemoteOrgSchedules, newest
from automation_pipeline.cli.desk.remote.organisations import (
    RemoteHosts,
    RemoteOrganisations,
    RemoteServers,
    refuse_strange_org,
)
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.org_jobs.domain.audit_entry import AuditEntry
from automation_pipeline.org_jobs.domain.backfill import Backfill
from automation_pipeline.org_jobs.domain.job_types import JobTypeCard
from automation_pipeline.org_jobs.domain.org_job import JobFilter, JobMove, OrgJob, QueueStanding
from automation_pipeline.org_jobs.domain.raised_alert import OrgAlert

JOBS, BACKFILLS = "/api/org-jobs", "/api/org-backfills"


class RemoteJobs:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: Document, org_id: str | None) -> OrgJob:
        return as_model(OrgJob, data_of(self._api.post(JOBS, given, query={"org": org_id})))

    def listed(self, chosen: JobFilter, span: Span) -> Sequence[OrgJob]:
        refuse_strange_org(self._api, chosen.org_id)
        asked = {
            "org": chosen.org_id,
            "status": chosen.status,
            "type": chosen.type,
            "schedule": chosen.schedule_id,
            "server": chosen.server_instance_id,
            "batch": chosen.batch_id,
            "limit": span.limit,
            "offset": span.offset,
        }
        return [as_model(OrgJob, one) for one in list_of(self._api.get(JOBS, asked))]

    def get(self, job_id: int) -> OrgJob:
        return as_model(OrgJob, data_of(self._api.get(f"{JOBS}/{job_id}")))

    def cancel(self, job_id: int, *, reason: str | None, at_once: bool) -> OrgJob:
        wish = {"reason": reason, "atOnce": at_once}
        return as_model(OrgJob, data_of(self._api.post(f"{JOBS}/{job_id}/cancel", wish)))

    def retry(self, job_id: int) -> OrgJob:
        return as_model(OrgJob, data_of(self._api.post(f"{JOBS}/{job_id}/retry")))

    def log(self, job_id: int, *, limit: int, after_id: int = 0) -> Sequence[JobMove]:
        moves = list_of(self._api.get(f"{JOBS}/{job_id}/log", {"limit": limit, "after": after_id}))
        return [as_model(JobMove, one) for one in moves]

    def queues(self, org_id: str | None) -> Sequence[QueueStanding]:
        refuse_strange_org(self._api, org_id)
        return [as_model(QueueStanding, one) for one in list_of(self._api.get(f"{JOBS}/queues", {"org": org_id}))]

    def types(self) -> Sequence[JobTypeCard]:
        return [as_model(JobTypeCard, one) for one in list_of(self._api.get(f"{JOBS}/types"))]


class RemoteBackfills:
    def __init__(self, api: Api) -> None:
        self._api = api

    def listed(self, org_id: str | None, span: Span) -> Sequence[Backfill]:
        refuse_strange_org(self._api, org_id)
        asked = {"org": org_id, "limit": span.limit, "offset": span.offset}
        return [as_model(Backfill, one) for one in list_of(self._api.get(BACKFILLS, asked))]

    def get(self, batch_id: int) -> Backfill:
        return as_model(Backfill, data_of(self._api.get(f"{BACKFILLS}/{batch_id}")))

    def cancel(self, batch_id: int) -> Backfill:
        return as_model(Backfill, data_of(self._api.post(f"{BACKFILLS}/{batch_id}/cancel")))


class RemoteOrgJobs:
    def __init__(self, api: Api) -> None:
        self._api = api
        self.schedules = RemoteOrgSchedules(api)
        self.jobs = RemoteJobs(api)
        self.backfills = RemoteBackfills(api)
        self.organisations = RemoteOrganisations(api)
        self.hosts = RemoteHosts(api)
        self.servers = RemoteServers(api)

    def alerts(self, org_id: str | None, span: Span) -> Sequence[OrgAlert]:
        refuse_strange_org(self._api, org_id)
        asked = {"org": org_id, "limit": span.limit, "offset": span.offset}
        return [as_model(OrgAlert, one) for one in list_of(self._api.get("/api/org-alerts", asked))]

    def audit_log(
        self, org_id: str | None, *, entity: str | None, entity_id: str | None, limit: int, after_id: int = 0
    ) -> Sequence[AuditEntry]:
        refuse_strange_org(self._api, org_id)
        asked = {"org": org_id, "entity": entity, "entity_id": entity_id, **newest(limit, after_id)}
        return [as_model(AuditEntry, one) for one in list_of(self._api.get("/api/org-audit-log", asked))]
