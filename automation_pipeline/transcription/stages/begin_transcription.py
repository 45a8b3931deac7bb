"""Begin a run for a fiche: its details fetched anew, its recordings planned; or join the run that is under way."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.fiches.domain.fiche import FicheNotFound
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_fiche import fetch_fiche
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes
from automation_pipeline.transcription.domain import events
from automation_pipeline.transcription.domain.notes import fiche_note
from automation_pipeline.transcription.domain.run import Plan, Priority, RunStatus, Standing
from automation_pipeline.transcription.stages.settle_recordings import settle_recordings
from automation_pipeline.transcription.store import runs
from automation_pipeline.transcription.store.tasks import fail_waiting_tasks

NO_URL = "No recording URL available"


@dataclass(frozen=True)
class Wish:
    """A run asked for. Repeating a wish joins the run that it made."""

    run_id: str
    fiche_id: str
    priority: Priority
    dagster_run_id: str | None = None
    # Details that the CRM has told since then are fresh enough; without it they are fetched anew.
    fresh_since: datetime | None = None
    # Transcripts made before that instant, by the database's clock, are made again; without it every one counts.
    renew_before: datetime | None = None


async def begin_transcription(
    wish: Wish, *, database: Database, source: FicheSource, clock: Clock, is_fresh: bool = False
) -> Standing:
    """How the run stands that now works on the fiche: the wish's own, or the one under way. A fiche that the CRM does
    not know ends its run at once, and blocks nobody. `is_fresh`: its details are known to be as fresh as is wished."""
    if is_fresh:
        return await database.write(partial(_join_or_start, wish))
    under_way = await database.write(partial(_under_way, wish))
    if under_way is not None:
        return under_way
    since = wish.fresh_since or clock.now()
    outcome = await fetch_fiche(wish.fiche_id, since=since, database=database, source=source, clock=clock)
    return await database.write(partial(_not_found if isinstance(outcome, FicheNotFound) else _start, wish))


def _under_way(wish: Wish, session: Session) -> Standing | None:
    mine = runs.get_standing(session, wish.run_id)
    if mine is not None:
        return mine
    live = runs.live_run_of(session, wish.fiche_id)
    if live is None:
        return None
    runs.make_as_urgent(session, live, wish.priority)
    return runs.get_standing(session, live)


def _join_or_start(wish: Wish, session: Session) -> Standing:
    return _under_way(wish, session) or _start(wish, session)


def _joined(wish: Wish, session: Session) -> Standing:
    """Somebody began while we asked the CRM."""
    joined = _under_way(wish, session)
    if joined is None:
        raise TransientError(f"The run of fiche {wish.fiche_id} ended in the very moment that it was joined.")
    return joined


def _start(wish: Wish, session: Session) -> Standing:
    plan = runs.plan_for(session, wish.fiche_id, wish.renew_before)
    if plan is None:
        raise PermanentError(f"Fiche {wish.fiche_id} is not mirrored.")
    if not runs.start_run(session, wish.run_id, wish.fiche_id, plan, wish.priority, wish.dagster_run_id):
        return _joined(wish, session)
    now = database_time(session)
    runs.add_tasks(session, wish.run_id, wish.fiche_id, plan, wish.priority, now)
    enqueue(session, [
        events.status_check(wish.run_id, wish.fiche_id, plan, now),
        events.started(wish.run_id, wish.fiche_id, plan, wish.priority, now),
    ])  # fmt: skip
    counts = {"total": plan.total, "already": plan.already_transcribed, "targets": len(plan.targets)}
    write_notes(session, fiche_note(wish.run_id, wish.fiche_id, f"START: {wish.priority} priority", data=counts))
    return _fail_blanks(session, wish, plan)


def _fail_blanks(session: Session, wish: Wish, plan: Plan) -> Standing:
    """A recording without audio ends at once; a run without targets too."""
    blank = [target.call_id for target in plan.targets if not target.url.strip()]
    if not blank and plan.targets:
        return Standing(
            wish.run_id, wish.fiche_id, RunStatus.RUNNING, plan.total, plan.already_transcribed, len(plan.targets)
        )
    failed = fail_waiting_tasks(session, wish.run_id, blank, NO_URL)
    told = [(call, (place, len(plan.targets))) for call, place in failed]
    enqueue(session, events.recordings_failed(wish.run_id, wish.fiche_id, told, NO_URL, database_time(session)))
    return settle_recordings(session, wish.run_id, processed=len(failed), failed=len(failed))


def _not_found(wish: Wish, session: Session) -> Standing:
    nothing = Plan(total=0, already_transcribed=0, targets=())
    if not runs.start_run(session, wish.run_id, wish.fiche_id, nothing, wish.priority, wish.dagster_run_id):
        return _joined(wish, session)
    standing = Standing(wish.run_id, wish.fiche_id, RunStatus.FAILED, 0, 0, 0)
    runs.end_run(session, wish.run_id, RunStatus.FAILED, events.NOT_FOUND)
    enqueue(session, events.failed(standing, events.NOT_FOUND, database_time(session)))
    write_notes(session, fiche_note(wish.run_id, wish.fiche_id, f"END: {events.NOT_FOUND}", level="warning"))
    return standing
