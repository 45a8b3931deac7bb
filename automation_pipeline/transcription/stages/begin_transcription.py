"""Begin a run for a fiche: recorded first, its details fetched anew, its recordings planned; or join the run that is
under way."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import (
    AutomationError,
    GroundError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.fiches.domain.fiche import FicheNotFound
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_fiche import fetch_fiche
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes
from automation_pipeline.transcription.domain import events
from automation_pipeline.transcription.domain.notes import fiche_note
from automation_pipeline.transcription.domain.run import NO_URL, Plan, Priority, RunStatus, Standing
from automation_pipeline.transcription.stages.settle_recordings import fail_run, settle_recordings
from automation_pipeline.transcription.store import runs
from automation_pipeline.transcription.store.tasks import fail_waiting_tasks


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
    wish: Wish,
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    is_fresh: bool = False,
    gives_up: bool = True,
) -> Standing:
    """Record the run, then fetch the fiche and plan; or join the run under way. `is_fresh`: the details are known to be
    as fresh as the caller wants them.

    Errors of the CRM are raised. A permanent one ends the run as failed with its reason, and so does a transient one
    unless the caller tries the same run again (`gives_up=False`). A fiche that the CRM does not know ends its run too.
    """
    if is_fresh:
        return await database.write(partial(_join_or_start, wish))
    run = await database.write(partial(open_run, wish))
    if run.is_planned:
        return run
    since = wish.fresh_since or clock.now()
    try:
        outcome = await fetch_fiche(wish.fiche_id, since=since, database=database, source=source, clock=clock)
    except GroundError:
        raise
    except AutomationError as error:
        if gives_up or isinstance(error, PermanentError):
            await database.write(partial(_fail, run.run_id, sentence_of(error)))
        raise
    if isinstance(outcome, FicheNotFound):
        return await database.write(partial(_fail, run.run_id, events.NOT_FOUND))
    return await database.write(partial(_plan, wish, run.run_id))


def open_run(wish: Wish, session: Session) -> Standing:
    """The run that works on the fiche: the one under way, or one recorded now, without a plan yet."""
    under_way = _under_way(wish, session)
    if under_way is not None:
        return under_way
    if not runs.start_run(session, wish.run_id, wish.fiche_id, runs.NO_PLAN, wish.priority, wish.dagster_run_id):
        return _joined(wish, session)
    return Standing(wish.run_id, wish.fiche_id, RunStatus.RUNNING, 0, 0, 0)


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
    under_way = _under_way(wish, session)
    if under_way is not None:
        return under_way if under_way.is_planned else _plan(wish, under_way.run_id, session)
    plan = _plan_for(wish, session)
    if not runs.start_run(session, wish.run_id, wish.fiche_id, plan, wish.priority, wish.dagster_run_id):
        return _joined(wish, session)
    return _started(wish, wish.run_id, plan, session)


def _joined(wish: Wish, session: Session) -> Standing:
    """Another worker began while this one asked the CRM."""
    joined = _under_way(wish, session)
    if joined is None:
        raise TransientError(f"The run of fiche {wish.fiche_id} ended in the very moment that it was joined.")
    return joined


def _plan(wish: Wish, run_id: str, session: Session) -> Standing:
    """Plan the recorded run, its own or the one that it joined, unless another worker has."""
    plan = _plan_for(wish, session)
    if runs.plan_run(session, run_id, plan):
        return _started(wish, run_id, plan, session)
    planned = runs.get_standing(session, run_id)
    if planned is None:
        raise TransientError(f"The run of fiche {wish.fiche_id} was removed while it was planned.")
    if planned.status is RunStatus.FAILED and run_id != wish.run_id:
        return _join_or_start(wish, session)
    return planned


def _plan_for(wish: Wish, session: Session) -> Plan:
    plan = runs.plan_for(session, wish.fiche_id, wish.renew_before)
    if plan is None:
        raise PermanentError(f"Fiche {wish.fiche_id} is not mirrored.")
    return plan


def _started(wish: Wish, run_id: str, plan: Plan, session: Session) -> Standing:
    now = database_time(session)
    runs.add_tasks(session, run_id, wish.fiche_id, plan, wish.priority, now)
    enqueue(session, [
        events.status_check(run_id, wish.fiche_id, plan, now),
        events.started(run_id, wish.fiche_id, plan, wish.priority, now),
    ])  # fmt: skip
    counts = {"total": plan.total, "already": plan.already_transcribed, "targets": len(plan.targets)}
    write_notes(session, fiche_note(run_id, wish.fiche_id, f"START: {wish.priority} priority", data=counts))
    return _fail_blanks(session, wish, run_id, plan)


def _fail_blanks(session: Session, wish: Wish, run_id: str, plan: Plan) -> Standing:
    """A recording without audio ends at once; a run without targets too."""
    blank = [target.call_id for target in plan.targets if not target.url.strip()]
    if not blank and plan.targets:
        return Standing(
            run_id, wish.fiche_id, RunStatus.RUNNING, plan.total, plan.already_transcribed, len(plan.targets)
        )
    failed = fail_waiting_tasks(session, run_id, blank, NO_URL)
    told = [(call, (place, len(plan.targets))) for call, place in failed]
    enqueue(session, events.recordings_failed(run_id, wish.fiche_id, told, NO_URL, database_time(session)))
    return settle_recordings(session, run_id, processed=len(failed), failed=len(failed))


def fail_unplanned(wish: Wish, reason: str, session: Session) -> None:
    """Record that the wish came to nothing before its recordings were planned. A run of another wish goes on."""
    run = open_run(wish, session)
    if run.run_id == wish.run_id and not run.is_planned:
        fail_run(session, run.run_id, reason)


def _fail(run_id: str, reason: str, session: Session) -> Standing:
    return fail_run(session, run_id, reason)
