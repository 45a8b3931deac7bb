"""Transcribe fiches to their end: begin or join a run for each, then work until the last of them is over."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, GroundError, PermanentError, TransientError, sentence_of
from automation_pipeline.core.pool import work_through
from automation_pipeline.fiches.domain.fiche import DetailsKnown
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.store.freshness import known_since
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.transcription.domain.run import RunStatus, Standing
from automation_pipeline.transcription.ports import Provider
from automation_pipeline.transcription.stages.begin_transcription import Wish, begin_transcription, open_run
from automation_pipeline.transcription.stages.settle_recordings import fail_run
from automation_pipeline.transcription.stages.transcribe_waiting import transcribe_waiting
from automation_pipeline.transcription.store.runs import standings


async def transcribe_fiches(  # noqa: PLR0913  ports, by name
    wishes: Sequence[Wish],
    *,
    database: Database,
    source: Callable[[], FicheSource],
    provider: Callable[[], Provider],
    clock: Clock,
    owner: str,
    gives_up: bool = True,
) -> list[Standing]:
    """How the runs of the fiches ended. A fiche that the CRM gives no answer for takes nothing from the others; when it
    is the only one, its error is raised. `owner` says who works.

    Every wish has its run before the first thing that can fail: `source` and `provider` raise PermanentError where a
    setting is missing, and that is how the runs end too. The provider is opened only if something is to be transcribed.
    With `gives_up=False` the caller repeats the same wishes after a TransientError: their runs stay open for it.
    """
    begun = await begin_transcriptions(wishes, database=database, source=source, clock=clock, gives_up=gives_up)
    runs = [one for one in begun if isinstance(one, Standing)]
    errors = [one for one in begun if isinstance(one, AutomationError)]
    if errors and not runs:
        raise errors[0]
    running = [run.run_id for run in runs if run.status is RunStatus.RUNNING]
    if running:
        own = [wish.run_id for wish in wishes if wish.run_id in running]
        await work_on_runs(running, own=own, database=database, provider=provider, owner=owner)
    with database.reading() as session:
        return standings(session, [run.run_id for run in runs])


async def begin_transcriptions(
    wishes: Sequence[Wish],
    *,
    database: Database,
    source: Callable[[], FicheSource],
    clock: Clock,
    gives_up: bool = True,
) -> list[Standing | AutomationError]:
    """For each request, in order: the run that works on its fiche, its own or the one under way, or why none does."""
    try:
        crm = source()
    except PermanentError as error:
        await _fail_all(wishes, error, database)
        raise
    begun: dict[str, Standing | AutomationError] = {}
    fresh = _fresh(wishes, database, clock)

    async def begin(wish: Wish) -> tuple[str, Standing | AutomationError]:
        try:
            is_fresh = wish.fiche_id in fresh
            return wish.run_id, await begin_transcription(
                wish, database=database, source=crm, clock=clock, is_fresh=is_fresh, gives_up=gives_up
            )
        except GroundError:
            raise
        except (TransientError, PermanentError) as error:
            return wish.run_id, error

    await work_through(wishes, begin, begun.update, width=crm.at_once)
    return [begun[wish.run_id] for wish in wishes]


async def work_on_runs(
    run_ids: Sequence[str], *, own: Sequence[str], database: Database, provider: Callable[[], Provider], owner: str
) -> None:
    """Until they are over. Without a provider the `own` runs fail; a run that another process began goes on."""
    try:
        speech = provider()
    except PermanentError as error:
        for run_id in own:
            await database.write(partial(_fail, run_id, sentence_of(error)))
        raise
    await transcribe_waiting(run_ids, database=database, provider=speech, owner=owner)


def _fail(run_id: str, reason: str, session: Session) -> None:
    fail_run(session, run_id, reason)


async def _fail_all(wishes: Sequence[Wish], error: PermanentError, database: Database) -> None:
    """None of them can be attempted: a setting is missing. A run that another process works on goes on."""
    for wish in wishes:
        await database.write(partial(_fail_own, wish, sentence_of(error)))


def _fail_own(wish: Wish, reason: str, session: Session) -> None:
    run = open_run(wish, session)
    if run.run_id == wish.run_id:
        fail_run(session, run.run_id, reason)


def _fresh(wishes: Sequence[Wish], database: Database, clock: Clock) -> set[str]:
    """The fiches whose details are as fresh as their wishes want them."""
    since: dict[datetime, list[str]] = {}
    for wish in wishes:
        if wish.fresh_since is not None:
            since.setdefault(wish.fresh_since, []).append(wish.fiche_id)
    with database.reading() as session:
        known = [one for at, ids in since.items() for one in known_since(session, ids, at, clock.now())]
    return {one.fiche_id for one in known if isinstance(one, DetailsKnown)}
