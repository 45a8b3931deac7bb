"""Have the company of a request asked for anew, because somebody wants it."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.instants import iso
from automation_pipeline.enrichment.domain.asked import Enriching
from automation_pipeline.enrichment.domain.due import cooldown_until
from automation_pipeline.enrichment.domain.knobs import Knobs
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.domain.vocabulary import Trigger
from automation_pipeline.enrichment.store.asking import ask
from automation_pipeline.enrichment.store.jobs import open_job
from automation_pipeline.enrichment.store.requests import Asking, locked_enrichment, request_of
from automation_pipeline.storage.database import Database


def refresh_company(request_id: int, asking: Asking, *, knobs: Knobs, database: Database, clock: Clock) -> Enriching:
    """ConflictError: it was refreshed by hand a moment ago. Where a job is open already, the request waits for that."""
    with database.transaction() as session:
        now, request = clock.now(), request_of(session, request_id, asking.tenant_id)
        row = locked_enrichment(session, request.company_siren, now)
        until = cooldown_until(EnrichmentStatus(row.status), row.last_manual_at, now, knobs.cooldown)
        if until is not None and open_job(session, row.siren) is None:
            raise ConflictError(f"Company {row.siren} was refreshed a moment ago: again from {iso(until)} on.")
        asked = ask(session, row, request, Trigger.MANUAL_REFRESH, asking, knobs=knobs, now=now, force=True)
        row.last_manual_at = now
        return asked
