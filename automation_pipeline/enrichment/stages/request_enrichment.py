"""Ask for a company: answered from what is known while that is fresh, else by the job of its SIREN, made if need be."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.enrichment.domain.asked import Enriching, parse_request
from automation_pipeline.enrichment.domain.knobs import Knobs
from automation_pipeline.enrichment.domain.vocabulary import Trigger
from automation_pipeline.enrichment.store.asking import as_asked, ask
from automation_pipeline.enrichment.store.requests import Asking, add_request, known_request, locked_enrichment
from automation_pipeline.storage.database import Database


def request_enrichment(
    given: Mapping[str, object],
    asking: Asking,
    *,
    knobs: Knobs,
    database: Database,
    clock: Clock,
    force: bool = False,
) -> Enriching:
    """IdentifierError names what is wrong. The same key again is the same request; ConflictError: it was for another
    company. With `force`, what is fresh is asked for anew."""
    wanted = parse_request(given)
    with database.transaction() as session:
        now = clock.now()
        row = locked_enrichment(session, wanted.identifiers.siren, now)
        known = known_request(session, asking)
        if known is not None:
            if known.company_siren != row.siren:
                raise ConflictError(f"The idempotency key of request {known.id} was for company {known.company_siren}.")
            return as_asked(session, known)
        request = add_request(session, wanted.identifiers, wanted.raw, asking, now)
        return ask(session, row, request, Trigger.REQUEST_CREATED, asking, knobs=knobs, now=now, force=force)
