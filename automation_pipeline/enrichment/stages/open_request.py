"""Show a request; what is stale or missing is refreshed meanwhile."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.enrichment.domain.keys import trigger_key
from automation_pipeline.enrichment.domain.knobs import Knobs
from automation_pipeline.enrichment.domain.views import RequestView
from automation_pipeline.enrichment.domain.vocabulary import Trigger
from automation_pipeline.enrichment.store.asking import ask, is_answered
from automation_pipeline.enrichment.store.jobs import open_job
from automation_pipeline.enrichment.store.opened import note_opened
from automation_pipeline.enrichment.store.requests import Asking, locked_enrichment, request_of
from automation_pipeline.enrichment.store.views import get_request
from automation_pipeline.storage.database import Database


def open_request(request_id: int, asking: Asking, *, knobs: Knobs, database: Database, clock: Clock) -> RequestView:
    """What is known now. A SIREN is asked about once a day because somebody looks at it."""
    now = clock.now()
    with database.reading() as session:
        request = request_of(session, request_id, asking.tenant_id)
        is_good = open_job(session, request.company_siren) is not None
    if not is_good:
        with database.transaction() as session:
            request = request_of(session, request_id, asking.tenant_id)
            row = locked_enrichment(session, request.company_siren, now)
            key = trigger_key(row.siren, Trigger.REQUEST_OPENED, now, knobs.cooldown)
            if not is_answered(session, row, knobs, now) and note_opened(session, key, asking, now):
                ask(session, row, request, Trigger.REQUEST_OPENED, asking, knobs=knobs, now=now)
    with database.reading() as session:
        return get_request(session, request_id, asking.tenant_id)
