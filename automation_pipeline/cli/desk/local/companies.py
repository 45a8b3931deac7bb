"""Companies by the stages and stores."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.enrichment_ports import AskedCompany
from automation_pipeline.cli.desk.local.actor import actor
from automation_pipeline.core.correlation import correlation_id
from automation_pipeline.core.pool import work_through
from automation_pipeline.enrichment.domain.configured import check_configured
from automation_pipeline.enrichment.domain.measures import ASKED
from automation_pipeline.enrichment.domain.vocabulary import DEFAULT_TENANT, JobState
from automation_pipeline.enrichment.stages.request_enrichment import request_enrichment
from automation_pipeline.enrichment.stages.work_enrichment import work_enrichment
from automation_pipeline.enrichment.store.followed import Standing, followed
from automation_pipeline.enrichment.store.requests import Asking

AT_ONCE = 8


class LocalCompanies:
    width = 1

    def __init__(self, services: Services) -> None:
        self._services = services

    def request(self, given: Mapping[str, object], *, force: bool) -> AskedCompany:
        our = self._services
        asking = Asking(tenant_id=DEFAULT_TENANT, correlation_id=correlation_id() or uuid4().hex, actor=actor())
        check_configured(our.registries.sources)
        knobs = our.registries.knobs
        made = request_enrichment(given, asking, knobs=knobs, database=our.database, clock=our.clock, force=force)
        our.meter.count(ASKED, outcome=made.asked)
        return AskedCompany(request_id=made.request_id, outcome=made.asked, job_id=made.job_id, warnings=made.warnings)

    def work(self, job_ids: Sequence[int], on_end: Callable[[], object]) -> None:
        our, owner = self._services, f"cli:{socket.gethostname()}:{os.getpid()}"

        async def work_on(job_id: int) -> None:
            view = await work_enrichment(
                job_id, registries=our.registries, database=our.database, clock=our.clock, owner=owner
            )
            if view.state is JobState.DONE:
                on_end()

        our.run(work_through(job_ids, work_on, lambda _: None, width=AT_ONCE))

    def followed(self, request_ids: Sequence[int]) -> Sequence[Standing]:
        with self._services.database.reading() as session:
            return followed(session, request_ids)
