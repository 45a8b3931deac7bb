"""Organisations, their hosts and their servers by the stages. Who sits at this machine has all of them."""

from collections.abc import Mapping, Sequence

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.local.actor import actor
from automation_pipeline.cli.desk.local.org_choice import chosen_org, refuse_strange_org
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.org_jobs.domain.organisation import Host, Organisation, Server
from automation_pipeline.org_jobs.domain.tenancy import EVERYWHERE
from automation_pipeline.org_jobs.stages.create_host import create_host
from automation_pipeline.org_jobs.stages.create_organisation import create_organisation
from automation_pipeline.org_jobs.stages.create_server import create_server
from automation_pipeline.org_jobs.stages.delete_host import delete_host
from automation_pipeline.org_jobs.stages.delete_server import delete_server
from automation_pipeline.org_jobs.stages.resume_organisation import resume_organisation
from automation_pipeline.org_jobs.stages.suspend_organisation import suspend_organisation
from automation_pipeline.org_jobs.stages.update_host import update_host
from automation_pipeline.org_jobs.stages.update_organisation import update_organisation
from automation_pipeline.org_jobs.stages.update_server import update_server
from automation_pipeline.org_jobs.store.organisations import (
    get_host,
    get_organisation,
    get_server,
    list_hosts,
    list_organisations,
    list_servers,
)

Document = Mapping[str, object]


class LocalOrganisations:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Document) -> Organisation:
        our = self._services
        return create_organisation(given, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())

    def listed(self, span: Span) -> Sequence[Organisation]:
        with self._services.database.reading() as session:
            return list_organisations(session, EVERYWHERE, limit=span.limit, offset=span.offset)

    def get(self, org_id: str) -> Organisation:
        with self._services.database.reading() as session:
            return get_organisation(session, org_id, EVERYWHERE)

    def update(self, org_id: str, patch: Document) -> Organisation:
        our = self._services
        return update_organisation(
            org_id, patch, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor()
        )

    def suspend(self, org_id: str, reason: str | None) -> Organisation:
        our = self._services
        return suspend_organisation(
            org_id, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor(), reason=reason
        )

    def resume(self, org_id: str) -> Organisation:
        our = self._services
        return resume_organisation(org_id, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())


class LocalHosts:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Document, org_id: str | None) -> Host:
        our, org = self._services, chosen_org(self._services, org_id)
        return create_host(given, org_id=org, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())

    def listed(self, org_id: str | None, span: Span) -> Sequence[Host]:
        refuse_strange_org(self._services, org_id)
        with self._services.database.reading() as session:
            return list_hosts(session, EVERYWHERE, org_id=org_id, limit=span.limit, offset=span.offset)

    def get(self, host_id: int) -> Host:
        with self._services.database.reading() as session:
            return get_host(session, host_id, EVERYWHERE)

    def update(self, host_id: int, patch: Document) -> Host:
        our = self._services
        return update_host(host_id, patch, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())

    def delete(self, host_id: int) -> None:
        our = self._services
        delete_host(host_id, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())


class LocalServers:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Document, org_id: str | None) -> Server:
        our, org = self._services, chosen_org(self._services, org_id)
        return create_server(
            given, org_id=org, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor()
        )

    def listed(self, org_id: str | None, span: Span) -> Sequence[Server]:
        refuse_strange_org(self._services, org_id)
        with self._services.database.reading() as session:
            return list_servers(session, EVERYWHERE, org_id=org_id, limit=span.limit, offset=span.offset)

    def get(self, server_id: int) -> Server:
        with self._services.database.reading() as session:
            return get_server(session, server_id, EVERYWHERE)

    def update(self, server_id: int, patch: Document) -> Server:
        our = self._services
        return update_server(server_id, patch, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())

    def delete(self, server_id: int) -> None:
        our = self._services
        delete_server(server_id, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())
