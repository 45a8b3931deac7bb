"""Show a request; what is stale or missing is refreshed meanwhile."""

from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.enrichment.domain.knobs import Knobs
from automation_pipeline.enrichment.domain.views import RequestView
from automation_pipeline.enrichment.domain.vocabulary import Trigger
from automation_pipeline.enrichment.store.asking import ask, is_answered
from automation_pipeline.enrichment.store.jobs import open_job
from automation_pipeline.enrichment.store.opened import was_asked_today
from automation_pipeline.enrichment.store.requests import Asking, enrichment_of, locked_enrichment, request_of
from automation_pipeline.enrichment.store.views import get_request
from automation_pipeline.enrichment.tables import EnrichmentRow
from automation_pipeline.storage.database import Database, Session


def open_request(request_id: int, asking: Asking, *, knobs: Knobs, database: Database, clock: Clock) -> RequestView:
    """What is known now. A SIREN is asked about once a day because somebody looks at it."""
    now = clock.now()
    with database.reading() as session:
        siren = request_of(session, request_id, asking.tenant_id).company_siren
        row = enrichment_of(session, siren)
        is_wanting = row is None or _is_wanting(session, row, knobs, now)
    if is_wanting:
        with database.transaction() as session:
            row = locked_enrichment(session, siren, now)
            if _is_wanting(session, row, knobs, now):
                request = request_of(session, request_id, asking.tenant_id)
                ask(session, row, request, Trigger.REQUEST_OPENED, asking, knobs=knobs, now=now)
    with database.reading() as session:
        return get_request(session, request_id, asking.tenant_id)


def _is_wanting(session: Session, row: EnrichmentRow, knobs: Knobs, now: datetime) -> bool:
    if is_answered(session, row, knobs, now) or was_asked_today(session, row.siren, now):
        return False
    return open_job(session, row.siren) is None
