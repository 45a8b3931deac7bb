"""Organisations, their hosts and their servers by the API."""

from collections.abc import Sequence

from automation_pipeline.cli.desk.remote.api import Api, Document, as_model, data_of, list_of
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.domain.organisation import Host, Organisation, Server, id_fault

ORGANISATIONS, HOSTS, SERVERS = "/api/organisations", "/api/org-hosts", "/api/org-servers"


class RemoteOrganisations:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: Document) -> Organisation:
        return as_model(Organisation, data_of(self._api.post(ORGANISATIONS, given)))

    def listed(self, span: Span) -> Sequence[Organisation]:
        found = list_of(self._api.get(ORGANISATIONS, {"limit": span.limit, "offset": span.offset}))
        return [as_model(Organisation, one) for one in found]

    def get(self, org_id: str) -> Organisation:
        return as_model(Organisation, data_of(self._api.get(_one(org_id))))

    def update(self, org_id: str, patch: Document) -> Organisation:
        return as_model(Organisation, data_of(self._api.patch(_one(org_id), patch)))

    def suspend(self, org_id: str, reason: str | None) -> Organisation:
        return as_model(Organisation, data_of(self._api.post(f"{_one(org_id)}/suspend", {"reason": reason})))

    def resume(self, org_id: str) -> Organisation:
        return as_model(Organisation, data_of(self._api.post(f"{_one(org_id)}/resume")))


class RemoteHosts:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: Document, org_id: str | None) -> Host:
        return as_model(Host, data_of(self._api.post(HOSTS, given, query={"org": org_id})))

    def listed(self, org_id: str | None, span: Span) -> Sequence[Host]:
        refuse_strange_org(self._api, org_id)
        found = list_of(self._api.get(HOSTS, {"org": org_id, "limit": span.limit, "offset": span.offset}))
        return [as_model(Host, one) for one in found]

    def get(self, host_id: int) -> Host:
        return as_model(Host, data_of(self._api.get(f"{HOSTS}/{host_id}")))

    def update(self, host_id: int, patch: Document) -> Host:
        return as_model(Host, data_of(self._api.patch(f"{HOSTS}/{host_id}", patch)))

    def delete(self, host_id: int) -> None:
        self._api.delete(f"{HOSTS}/{host_id}")


class RemoteServers:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: Document, org_id: str | None) -> Server:
        return as_model(Server, data_of(self._api.post(SERVERS, given, query={"org": org_id})))

    def listed(self, org_id: str | None, span: Span) -> Sequence[Server]:
        refuse_strange_org(self._api, org_id)
        found = list_of(self._api.get(SERVERS, {"org": org_id, "limit": span.limit, "offset": span.offset}))
        return [as_model(Server, one) for one in found]

    def get(self, server_id: int) -> Server:
        return as_model(Server, data_of(self._api.get(f"{SERVERS}/{server_id}")))

    def update(self, server_id: int, patch: Document) -> Server:
        return as_model(Server, data_of(self._api.patch(f"{SERVERS}/{server_id}", patch)))

    def delete(self, server_id: int) -> None:
        self._api.delete(f"{SERVERS}/{server_id}")


def refuse_strange_org(api: Api, org_id: str | None) -> None:
    """NotFoundError: an empty list of an organisation that is not there would look as if all were well."""
    if org_id is not None:
        api.get(_one(org_id))


def _one(org_id: str) -> str:
    """NotFoundError for what is no id: an address made of it would lead elsewhere."""
    if id_fault(org_id):
        raise NotFoundError(f"Organisation '{org_id}' does not exist.")
    return f"{ORGANISATIONS}/{org_id}"
