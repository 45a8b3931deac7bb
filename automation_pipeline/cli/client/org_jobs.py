"""Organisations, their schedules and jobs, here and by the API."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.client.http import Api, as_model, data_of, list_of
from automation_pipeline.cli.client.http import Document as ApiDocument
from automation_pipeline.cli.client.ports import Span
from automation_pipeline.cli.operations import actor
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.backfills import backfill_schedule, cancel_backfill
from automation_pipeline.org_jobs.jobs import cancel_job, request_job, retry_job
from automation_pipeline.org_jobs.models.job_types import TYPE_NAME, JobTypeCard
from automation_pipeline.org_jobs.models.jobs import JobFilter, JobMove, OrgJob, QueueCounts
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    AuditEntry,
    Host,
    Organisation,
    OrgScope,
    Server,
    id_fault,
)
from automation_pipeline.org_jobs.models.schedules import Dispatched, OrgSchedule, ScheduleFire
from automation_pipeline.org_jobs.organisations import (
    create_host,
    create_job_type,
    create_organisation,
    create_server,
    delete_host,
    delete_job_type,
    delete_server,
    resume_organisation,
    suspend_organisation,
    update_host,
    update_job_type,
    update_organisation,
    update_server,
)
from automation_pipeline.org_jobs.queries.backfills import get_backfill, list_backfills
from automation_pipeline.org_jobs.queries.health import list_alerts
from automation_pipeline.org_jobs.queries.jobs import get_job, list_jobs, queues, transitions_of
from automation_pipeline.org_jobs.queries.organisations import (
    audit_log,
    get_host,
    get_organisation,
    get_server,
    list_hosts,
    list_job_types,
    list_organisations,
    list_servers,
)
from automation_pipeline.org_jobs.queries.schedules import (
    ScheduleFilter,
    fires_of,
    get_schedule,
    list_schedules,
)
from automation_pipeline.org_jobs.rules.backfills import Backfill
from automation_pipeline.org_jobs.rules.health import OrgAlert
from automation_pipeline.org_jobs.rules.previews import SchedulePreview
from automation_pipeline.org_jobs.schedules import (
    coming_runs,
    create_schedule,
    delete_schedule,
    keep_next_run,
    pause_schedule,
    preview_schedule,
    resume_schedule,
    run_schedule_now,
    skip_next_run,
    update_schedule,
)


def chosen_org(services: Services, org_id: str | None) -> str:
    """NotFoundError for one that is not there."""
    with services.database.reading() as session:
        if org_id is not None:
            return get_organisation(session, org_id, ALL_ORGANISATIONS).id
        known = list_organisations(session, ALL_ORGANISATIONS, limit=2, offset=0)
    if not known:
        raise InvalidInputError(
            "There is no organisation yet: `automation org-jobs orgs create` adds one."
        )
    if len(known) > 1:
        raise InvalidInputError(
            "There are several organisations: say with --org which one it is for."
        )
    return known[0].id


def perhaps_org(services: Services, org_id: str | None) -> str | None:
    """The given organisation, or the only one; None where there are none or several."""
    if org_id is not None:
        return chosen_org(services, org_id)
    with services.database.reading() as session:
        known = list_organisations(session, ALL_ORGANISATIONS, limit=2, offset=0)
    return known[0].id if len(known) == 1 else None


def check_org(services: Services, org_id: str | None) -> None:
    """NotFoundError: an empty list of an organisation that is not there would look as if all were
    well."""
    if org_id is not None:
        chosen_org(services, org_id)


Document = Mapping[str, object]


class LocalOrganisations:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Document) -> Organisation:
        services = self._services
        return create_organisation(
            given,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def listed(self, span: Span) -> Sequence[Organisation]:
        with self._services.database.reading() as session:
            return list_organisations(
                session, ALL_ORGANISATIONS, limit=span.limit, offset=span.offset
            )

    def get(self, org_id: str) -> Organisation:
        with self._services.database.reading() as session:
            return get_organisation(session, org_id, ALL_ORGANISATIONS)

    def update(self, org_id: str, patch: Document) -> Organisation:
        services = self._services
        return update_organisation(
            org_id,
            patch,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def suspend(self, org_id: str, reason: str | None) -> Organisation:
        services = self._services
        return suspend_organisation(
            org_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            reason=reason,
        )

    def resume(self, org_id: str) -> Organisation:
        services = self._services
        return resume_organisation(
            org_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )


class LocalHosts:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Document, org_id: str | None) -> Host:
        services, org = self._services, chosen_org(self._services, org_id)
        return create_host(
            given,
            org_id=org,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def listed(self, org_id: str | None, span: Span) -> Sequence[Host]:
        check_org(self._services, org_id)
        with self._services.database.reading() as session:
            return list_hosts(
                session, ALL_ORGANISATIONS, org_id=org_id, limit=span.limit, offset=span.offset
            )

    def get(self, host_id: int) -> Host:
        with self._services.database.reading() as session:
            return get_host(session, host_id, ALL_ORGANISATIONS)

    def update(self, host_id: int, patch: Document) -> Host:
        services = self._services
        return update_host(
            host_id,
            patch,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def delete(self, host_id: int) -> None:
        services = self._services
        delete_host(
            host_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )


class LocalServers:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Document, org_id: str | None) -> Server:
        services, org = self._services, chosen_org(self._services, org_id)
        return create_server(
            given,
            org_id=org,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def listed(self, org_id: str | None, span: Span) -> Sequence[Server]:
        check_org(self._services, org_id)
        with self._services.database.reading() as session:
            return list_servers(
                session, ALL_ORGANISATIONS, org_id=org_id, limit=span.limit, offset=span.offset
            )

    def get(self, server_id: int) -> Server:
        with self._services.database.reading() as session:
            return get_server(session, server_id, ALL_ORGANISATIONS)

    def update(self, server_id: int, patch: Document) -> Server:
        services = self._services
        return update_server(
            server_id,
            patch,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def delete(self, server_id: int) -> None:
        services = self._services
        delete_server(
            server_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )


class LocalOrgSchedules:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Document, org_id: str | None) -> OrgSchedule:
        services, org = self._services, chosen_org(self._services, org_id)
        return create_schedule(
            given,
            org_id=org,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )

    def listed(self, chosen: ScheduleFilter, span: Span) -> Sequence[OrgSchedule]:
        check_org(self._services, chosen.org_id)
        with self._services.database.reading() as session:
            return list_schedules(
                session, ALL_ORGANISATIONS, chosen=chosen, limit=span.limit, offset=span.offset
            )

    def get(self, schedule_id: str) -> OrgSchedule:
        with self._services.database.reading() as session:
            return get_schedule(session, schedule_id, ALL_ORGANISATIONS)

    def update(self, schedule_id: str, patch: Document) -> OrgSchedule:
        services = self._services
        return update_schedule(
            schedule_id,
            patch,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )

    def delete(self, schedule_id: str) -> None:
        services = self._services
        delete_schedule(
            schedule_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def pause(self, schedule_id: str, *, reason: str | None, until: datetime | None) -> OrgSchedule:
        services = self._services
        return pause_schedule(
            schedule_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            reason=reason,
            until=until,
        )

    def resume(self, schedule_id: str) -> OrgSchedule:
        services = self._services
        return resume_schedule(
            schedule_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def skip_next(self, schedule_id: str, reason: str | None) -> OrgSchedule:
        services = self._services
        return skip_next_run(
            schedule_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            reason=reason,
        )

    def keep_next(self, schedule_id: str) -> OrgSchedule:
        services = self._services
        return keep_next_run(
            schedule_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def run_now(
        self, schedule_id: str, *, payload: Document | None, ignore_window: bool
    ) -> Dispatched:
        services = self._services
        return run_schedule_now(
            schedule_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            payload=payload,
            ignore_window=ignore_window,
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )

    def backfill(self, schedule_id: str, given: Document) -> Backfill:
        services = self._services
        return backfill_schedule(
            schedule_id,
            given,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )

    def coming(self, schedule_id: str, *, count: int, after: datetime | None) -> SchedulePreview:
        services = self._services
        return coming_runs(
            schedule_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            count=count,
            after=after,
        )

    def preview(
        self, given: Document, org_id: str | None, *, count: int, after: datetime | None
    ) -> SchedulePreview:
        services = self._services
        return preview_schedule(
            given,
            org_id=perhaps_org(services, org_id),
            database=services.database,
            count=count,
            after=after or services.clock.now(),
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )

    def fires(self, schedule_id: str, *, limit: int, after_id: int = 0) -> Sequence[ScheduleFire]:
        with self._services.database.reading() as session:
            return fires_of(
                session, schedule_id, ALL_ORGANISATIONS, limit, after_id, newest_first=True
            )

    def log(self, schedule_id: str, *, limit: int, after_id: int = 0) -> Sequence[AuditEntry]:
        with self._services.database.reading() as session:
            get_schedule(session, schedule_id, ALL_ORGANISATIONS)
            return audit_log(
                session,
                ALL_ORGANISATIONS,
                entity="schedule",
                entity_id=schedule_id,
                limit=limit,
                after_id=after_id,
                newest_first=True,
            )


class LocalJobs:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Document, org_id: str | None) -> OrgJob:
        services, org = self._services, chosen_org(self._services, org_id)
        return request_job(
            given,
            org_id=org,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )

    def listed(self, chosen: JobFilter, span: Span) -> Sequence[OrgJob]:
        check_org(self._services, chosen.org_id)
        with self._services.database.reading() as session:
            return list_jobs(
                session, ALL_ORGANISATIONS, chosen=chosen, limit=span.limit, offset=span.offset
            )

    def get(self, job_id: int) -> OrgJob:
        with self._services.database.reading() as session:
            return get_job(session, job_id, ALL_ORGANISATIONS)

    def cancel(self, job_id: int, *, reason: str | None, at_once: bool) -> OrgJob:
        services = self._services
        return cancel_job(
            job_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            reason=reason,
            at_once=at_once,
        )

    def retry(self, job_id: int) -> OrgJob:
        services = self._services
        return retry_job(
            job_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def log(self, job_id: int, *, limit: int, after_id: int = 0) -> Sequence[JobMove]:
        with self._services.database.reading() as session:
            return transitions_of(session, job_id, ALL_ORGANISATIONS, limit, after_id)

    def queues(self, org_id: str | None) -> Sequence[QueueCounts]:
        check_org(self._services, org_id)
        with self._services.database.reading() as session:
            return queues(session, OrgScope(org_id), self._services.clock.now())


class LocalJobTypes:
    def __init__(self, services: Services) -> None:
        self._services = services

    def listed(self, org_id: str | None) -> Sequence[JobTypeCard]:
        org = perhaps_org(self._services, org_id)
        with self._services.database.reading() as session:
            return list_job_types(session, org)

    def create(self, given: Document, org_id: str | None) -> JobTypeCard:
        services = self._services
        return create_job_type(
            given,
            org_id=chosen_org(services, org_id),
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def update(self, name: str, given: Document, org_id: str | None) -> JobTypeCard:
        services = self._services
        return update_job_type(
            name,
            given,
            org_id=chosen_org(services, org_id),
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def delete(self, name: str, org_id: str | None) -> None:
        services = self._services
        delete_job_type(
            name,
            org_id=chosen_org(services, org_id),
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )


class LocalBackfills:
    def __init__(self, services: Services) -> None:
        self._services = services

    def listed(self, org_id: str | None, span: Span) -> Sequence[Backfill]:
        check_org(self._services, org_id)
        with self._services.database.reading() as session:
            return list_backfills(
                session, ALL_ORGANISATIONS, org_id=org_id, limit=span.limit, offset=span.offset
            )

    def get(self, batch_id: int) -> Backfill:
        with self._services.database.reading() as session:
            return get_backfill(session, batch_id, ALL_ORGANISATIONS)

    def cancel(self, batch_id: int) -> Backfill:
        services = self._services
        return cancel_backfill(
            batch_id,
            within=ALL_ORGANISATIONS,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )


class LocalOrgJobs:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.schedules = LocalOrgSchedules(services)
        self.jobs = LocalJobs(services)
        self.types = LocalJobTypes(services)
        self.backfills = LocalBackfills(services)
        self.organisations = LocalOrganisations(services)
        self.hosts = LocalHosts(services)
        self.servers = LocalServers(services)

    def alerts(self, org_id: str | None, span: Span) -> Sequence[OrgAlert]:
        check_org(self._services, org_id)
        with self._services.database.reading() as session:
            return list_alerts(
                session, ALL_ORGANISATIONS, org_id=org_id, limit=span.limit, offset=span.offset
            )

    def audit_log(
        self,
        org_id: str | None,
        *,
        entity: str | None,
        entity_id: str | None,
        limit: int,
        after_id: int = 0,
    ) -> Sequence[AuditEntry]:
        check_org(self._services, org_id)
        with self._services.database.reading() as session:
            return audit_log(
                session,
                OrgScope(org_id),
                entity=entity,
                entity_id=entity_id,
                limit=limit,
                after_id=after_id,
                newest_first=True,
            )


ORGANISATIONS, HOSTS, SERVERS = "/api/organisations", "/api/org-hosts", "/api/org-servers"


class RemoteOrganisations:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: ApiDocument) -> Organisation:
        return as_model(Organisation, data_of(self._api.post(ORGANISATIONS, given)))

    def listed(self, span: Span) -> Sequence[Organisation]:
        found = list_of(self._api.get(ORGANISATIONS, {"limit": span.limit, "offset": span.offset}))
        return [as_model(Organisation, one) for one in found]

    def get(self, org_id: str) -> Organisation:
        return as_model(Organisation, data_of(self._api.get(_one(org_id))))

    def update(self, org_id: str, patch: ApiDocument) -> Organisation:
        return as_model(Organisation, data_of(self._api.patch(_one(org_id), patch)))

    def suspend(self, org_id: str, reason: str | None) -> Organisation:
        return as_model(
            Organisation, data_of(self._api.post(f"{_one(org_id)}/suspend", {"reason": reason}))
        )

    def resume(self, org_id: str) -> Organisation:
        return as_model(Organisation, data_of(self._api.post(f"{_one(org_id)}/resume")))


class RemoteHosts:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: ApiDocument, org_id: str | None) -> Host:
        return as_model(Host, data_of(self._api.post(HOSTS, given, query={"org": org_id})))

    def listed(self, org_id: str | None, span: Span) -> Sequence[Host]:
        check_org_of_token(self._api, org_id)
        found = list_of(
            self._api.get(HOSTS, {"org": org_id, "limit": span.limit, "offset": span.offset})
        )
        return [as_model(Host, one) for one in found]

    def get(self, host_id: int) -> Host:
        return as_model(Host, data_of(self._api.get(f"{HOSTS}/{host_id}")))

    def update(self, host_id: int, patch: ApiDocument) -> Host:
        return as_model(Host, data_of(self._api.patch(f"{HOSTS}/{host_id}", patch)))

    def delete(self, host_id: int) -> None:
        self._api.delete(f"{HOSTS}/{host_id}")


class RemoteServers:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: ApiDocument, org_id: str | None) -> Server:
        return as_model(Server, data_of(self._api.post(SERVERS, given, query={"org": org_id})))

    def listed(self, org_id: str | None, span: Span) -> Sequence[Server]:
        check_org_of_token(self._api, org_id)
        found = list_of(
            self._api.get(SERVERS, {"org": org_id, "limit": span.limit, "offset": span.offset})
        )
        return [as_model(Server, one) for one in found]

    def get(self, server_id: int) -> Server:
        return as_model(Server, data_of(self._api.get(f"{SERVERS}/{server_id}")))

    def update(self, server_id: int, patch: ApiDocument) -> Server:
        return as_model(Server, data_of(self._api.patch(f"{SERVERS}/{server_id}", patch)))

    def delete(self, server_id: int) -> None:
        self._api.delete(f"{SERVERS}/{server_id}")


def check_org_of_token(api: Api, org_id: str | None) -> None:
    """NotFoundError: an empty list of an organisation that is not there would look as if all were
    well."""
    if org_id is not None:
        api.get(_one(org_id))


def _one(org_id: str) -> str:
    """NotFoundError for what is no id: an address made of it would lead elsewhere."""
    if id_fault(org_id):
        raise NotFoundError(f"Organisation {org_id} not found")
    return f"{ORGANISATIONS}/{org_id}"


PATH = "/api/org-schedules"


class RemoteOrgSchedules:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: ApiDocument, org_id: str | None) -> OrgSchedule:
        return _schedule(self._api.post(PATH, given, query={"org": org_id}))

    def listed(self, chosen: ScheduleFilter, span: Span) -> Sequence[OrgSchedule]:
        check_org_of_token(self._api, chosen.org_id)
        asked = {
            "org": chosen.org_id,
            "state": chosen.state,
            "job_type": chosen.job_type,
            "server": chosen.server_instance_id,
            "q": chosen.q,
            "limit": span.limit,
            "offset": span.offset,
        }
        return [as_model(OrgSchedule, one) for one in list_of(self._api.get(PATH, asked))]

    def get(self, schedule_id: str) -> OrgSchedule:
        return _schedule(self._api.get(f"{PATH}/{schedule_id}"))

    def update(self, schedule_id: str, patch: ApiDocument) -> OrgSchedule:
        return _schedule(self._api.patch(f"{PATH}/{schedule_id}", patch))

    def delete(self, schedule_id: str) -> None:
        self._api.delete(f"{PATH}/{schedule_id}")

    def pause(self, schedule_id: str, *, reason: str | None, until: datetime | None) -> OrgSchedule:
        wish = {"reason": reason, "until": until and iso(until)}
        return _schedule(self._api.post(f"{PATH}/{schedule_id}/pause", wish))

    def resume(self, schedule_id: str) -> OrgSchedule:
        return _schedule(self._api.post(f"{PATH}/{schedule_id}/resume"))

    def skip_next(self, schedule_id: str, reason: str | None) -> OrgSchedule:
        return _schedule(self._api.post(f"{PATH}/{schedule_id}/skip-next", {"reason": reason}))

    def keep_next(self, schedule_id: str) -> OrgSchedule:
        return _schedule(self._api.delete(f"{PATH}/{schedule_id}/skip-next"))

    def run_now(
        self, schedule_id: str, *, payload: ApiDocument | None, ignore_window: bool
    ) -> Dispatched:
        wish = {"payload": payload, "ignoreWindow": ignore_window}
        return as_model(Dispatched, data_of(self._api.post(f"{PATH}/{schedule_id}/run-now", wish)))

    def backfill(self, schedule_id: str, given: ApiDocument) -> Backfill:
        return as_model(Backfill, data_of(self._api.post(f"{PATH}/{schedule_id}/backfill", given)))

    def coming(self, schedule_id: str, *, count: int, after: datetime | None) -> SchedulePreview:
        told = self._api.get(f"{PATH}/{schedule_id}/next", _from(count, after))
        return as_model(SchedulePreview, data_of(told))

    def preview(
        self, given: ApiDocument, org_id: str | None, *, count: int, after: datetime | None
    ) -> SchedulePreview:
        query = {**_from(count, after), "org": org_id}
        told = self._api.post(f"{PATH}/preview", given, query=query)
        return as_model(SchedulePreview, data_of(told))

    def fires(self, schedule_id: str, *, limit: int, after_id: int = 0) -> Sequence[ScheduleFire]:
        found = list_of(self._api.get(f"{PATH}/{schedule_id}/fires", newest(limit, after_id)))
        return [as_model(ScheduleFire, one) for one in found]

    def log(self, schedule_id: str, *, limit: int, after_id: int = 0) -> Sequence[AuditEntry]:
        found = list_of(self._api.get(f"{PATH}/{schedule_id}/log", newest(limit, after_id)))
        return [as_model(AuditEntry, one) for one in found]


def newest(limit: int, after_id: int) -> dict[str, object]:
    return {"limit": limit, "after": after_id, "newest": True}


def _schedule(answer: ApiDocument) -> OrgSchedule:
    return as_model(OrgSchedule, data_of(answer))


def _from(count: int, after: datetime | None) -> dict[str, object]:
    return {"count": count, "after": after and iso(after)}


JOBS, JOB_TYPES, BACKFILLS = "/api/org-jobs", "/api/org-jobs/types", "/api/org-backfills"


class RemoteJobs:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: ApiDocument, org_id: str | None) -> OrgJob:
        return as_model(OrgJob, data_of(self._api.post(JOBS, given, query={"org": org_id})))

    def listed(self, chosen: JobFilter, span: Span) -> Sequence[OrgJob]:
        check_org_of_token(self._api, chosen.org_id)
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

    def queues(self, org_id: str | None) -> Sequence[QueueCounts]:
        check_org_of_token(self._api, org_id)
        return [
            as_model(QueueCounts, one)
            for one in list_of(self._api.get(f"{JOBS}/queues", {"org": org_id}))
        ]


class RemoteJobTypes:
    def __init__(self, api: Api) -> None:
        self._api = api

    def listed(self, org_id: str | None) -> Sequence[JobTypeCard]:
        found = list_of(self._api.get(JOB_TYPES, {"org": org_id}))
        return [as_model(JobTypeCard, one) for one in found]

    def create(self, given: ApiDocument, org_id: str | None) -> JobTypeCard:
        made = self._api.post(JOB_TYPES, given, query={"org": org_id})
        return as_model(JobTypeCard, data_of(made))

    def update(self, name: str, given: ApiDocument, org_id: str | None) -> JobTypeCard:
        changed = self._api.put(_one_type(name), given, query={"org": org_id})
        return as_model(JobTypeCard, data_of(changed))

    def delete(self, name: str, org_id: str | None) -> None:
        self._api.delete(_one_type(name), query={"org": org_id})


def _one_type(name: str) -> str:
    """NotFoundError for what is no name: an address made of it would lead elsewhere."""
    if not re.fullmatch(TYPE_NAME, name):
        raise NotFoundError(f"Job type {name[:100]} does not exist.")
    return f"{JOB_TYPES}/{name}"


class RemoteBackfills:
    def __init__(self, api: Api) -> None:
        self._api = api

    def listed(self, org_id: str | None, span: Span) -> Sequence[Backfill]:
        check_org_of_token(self._api, org_id)
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
        self.types = RemoteJobTypes(api)
        self.backfills = RemoteBackfills(api)
        self.organisations = RemoteOrganisations(api)
        self.hosts = RemoteHosts(api)
        self.servers = RemoteServers(api)

    def alerts(self, org_id: str | None, span: Span) -> Sequence[OrgAlert]:
        check_org_of_token(self._api, org_id)
        asked = {"org": org_id, "limit": span.limit, "offset": span.offset}
        return [as_model(OrgAlert, one) for one in list_of(self._api.get("/api/org-alerts", asked))]

    def audit_log(
        self,
        org_id: str | None,
        *,
        entity: str | None,
        entity_id: str | None,
        limit: int,
        after_id: int = 0,
    ) -> Sequence[AuditEntry]:
        check_org_of_token(self._api, org_id)
        asked = {"org": org_id, "entity": entity, "entity_id": entity_id, **newest(limit, after_id)}
        return [
            as_model(AuditEntry, one) for one in list_of(self._api.get("/api/org-audit-log", asked))
        ]
