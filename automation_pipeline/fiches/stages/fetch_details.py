"""Ask the CRM for one fiche: every way it can end is a value."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import NotFoundError, PermanentError, TransientError
from automation_pipeline.fiches.domain.fiche import DetailsFetched, FetchFailed, FetchOutcome, FicheNotFound
from automation_pipeline.fiches.ports import FicheSource


async def fetch_details(fiche_id: str, *, source: FicheSource, clock: Clock) -> FetchOutcome:
    asked_at = clock.now()
    try:
        return DetailsFetched(fiche_id, await source.details(fiche_id), asked_at)
    except NotFoundError:
        return FicheNotFound(fiche_id)
    except TransientError as error:
        return FetchFailed(fiche_id, str(error), transient=True)
    except PermanentError as error:
        return FetchFailed(fiche_id, str(error), transient=False)
