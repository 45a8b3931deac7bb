"""Companies, here and by the API."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.client.http import Api, Document, read
from automation_pipeline.cli.client.ports import AskedCompany
from automation_pipeline.cli.operations import actor
from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.logs import correlation_id
from automation_pipeline.enrichment.jobs import work_enrichment
from automation_pipeline.enrichment.models import (
    DEFAULT_TENANT,
    REQUESTS,
    Asked,
    JobState,
    Requester,
    RequestShown,
    check_configured,
)
from automation_pipeline.enrichment.queries.requests import RequestStatus, request_statuses
from automation_pipeline.enrichment.requests import request_enrichment

AT_ONCE = 8


class LocalCompanies:
    width = 1

    def __init__(self, services: Services) -> None:
        self._services = services

    def request(self, given: Mapping[str, object], *, force: bool) -> AskedCompany:
        services = self._services
        asking = Requester(
            tenant_id=DEFAULT_TENANT, correlation_id=correlation_id() or uuid4().hex, actor=actor()
        )
        check_configured(services.registries.sources)
        options = services.registries.options
        made = request_enrichment(
            given,
            asking,
            options=options,
            database=services.database,
            clock=services.clock,
            force=force,
        )
        services.meter.count(REQUESTS, outcome=made.asked)
        return AskedCompany(
            request_id=made.request_id,
            outcome=made.asked,
            job_id=made.job_id,
            warnings=made.warnings,
        )

    def work(self, job_ids: Sequence[int], on_end: Callable[[], object]) -> None:
        services, owner = self._services, f"cli:{socket.gethostname()}:{os.getpid()}"

        async def work_on(job_id: int) -> None:
            view = await work_enrichment(
                job_id,
                registries=services.registries,
                database=services.database,
                clock=services.clock,
                owner=owner,
            )
            if view.state is JobState.DONE:
                on_end()

        services.run(process_concurrently(job_ids, work_on, lambda _: None, width=AT_ONCE))

    def followed(self, request_ids: Sequence[int]) -> Sequence[RequestStatus]:
        with self._services.database.reading() as session:
            return request_statuses(session, request_ids)


PATH = "/v1/requests"


class RemoteCompanies:
    # Each is tried at once over there, for a second.
    width = 8

    def __init__(self, api: Api) -> None:
        self._api = api

    def request(self, given: Mapping[str, object], *, force: bool) -> AskedCompany:
        """Over there a refresh that is forced is one by hand: once in 15 minutes a company."""
        asked = _asked(self._api.post(PATH, given))
        if force and asked.outcome is Asked.CACHE_HIT:
            asked = _asked(self._api.post(f"{PATH}/{asked.request_id}:refresh-company"))
        return asked

    def work(self, job_ids: Sequence[int], on_end: Callable[[], object]) -> None:
        """They do it over there."""

    def followed(self, request_ids: Sequence[int]) -> Sequence[RequestStatus]:
        return [
            _standing(_view(self._api.get(f"{PATH}/{request_id}"))) for request_id in request_ids
        ]


def _asked(document: Document) -> AskedCompany:
    view = _view(document)
    return read(
        lambda: AskedCompany(
            request_id=view.request.id,
            outcome=Asked(str(document["outcome"])),
            job_id=view.job_id,
            warnings=view.request.warnings,
        )
    )


def _view(document: Document) -> RequestShown:
    return read(lambda: RequestShown.model_validate(document))


def _standing(view: RequestShown) -> RequestStatus:
    return RequestStatus(
        request_id=view.request.id,
        siren=view.request.company_siren,
        siret=view.request.siret,
        status=view.request.enrichment_status,
        error=view.request.enrichment_error,
        is_running=view.enrichment_running,
        company=view.company,
        warnings=view.request.warnings,
    )
