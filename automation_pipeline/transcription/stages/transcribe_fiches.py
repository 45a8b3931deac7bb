"""Transcribe fiches to their end: begin or join a run for each, then work until the last of them is over."""

from collections.abc import Sequence
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, GroundError, PermanentError, TransientError
from automation_pipeline.core.pool import work_through
from automation_pipeline.fiches.domain.fiche import DetailsKnown
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.store.freshness import known_since
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.domain.run import RunStatus, Standing
from automation_pipeline.transcription.ports import Provider
from automation_pipeline.transcription.stages.begin_transcription import Wish, begin_transcription
from automation_pipeline.transcription.stages.transcribe_waiting import transcribe_waiting
from automation_pipeline.transcription.store.runs import standings


async def transcribe_fiches(
    wishes: Sequence[Wish], *, database: Database, source: FicheSource, provider: Provider, clock: Clock, owner: str
) -> list[Standing]:
    """How the runs of the fiches ended. A fiche that the CRM gives no answer for takes nothing from the others; when it
    is the only one, its error is raised. `owner` says who works."""
    begun: list[Standing | AutomationError] = []
    fresh = _fresh(wishes, database, clock)

    async def begin(wish: Wish) -> Standing | AutomationError:
        try:
            is_fresh = wish.fiche_id in fresh
            return await begin_transcription(wish, database=database, source=source, clock=clock, is_fresh=is_fresh)
        except GroundError:
            raise
        except (TransientError, PermanentError) as error:
            return error

    await work_through(wishes, begin, begun.extend, width=source.at_once)
    runs = [one for one in begun if isinstance(one, Standing)]
    errors = [one for one in begun if isinstance(one, AutomationError)]
    if errors and not runs:
        raise errors[0]
    running = [run.run_id for run in runs if run.status is RunStatus.RUNNING]
    if running:
        await transcribe_waiting(running, database=database, provider=provider, owner=owner)
    with database.reading() as session:
        return standings(session, [run.run_id for run in runs])


def _fresh(wishes: Sequence[Wish], database: Database, clock: Clock) -> set[str]:
    """The fiches whose details are as fresh as their wishes want them."""
    since: dict[datetime, list[str]] = {}
    for wish in wishes:
        if wish.fresh_since is not None:
            since.setdefault(wish.fresh_since, []).append(wish.fiche_id)
    with database.reading() as session:
        known = [one for at, ids in since.items() for one in known_since(session, ids, at, clock.now())]
    return {one.fiche_id for one in known if isinstance(one, DetailsKnown)}
