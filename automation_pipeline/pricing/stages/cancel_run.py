"""Stop a run: what was not begun is not begun any more, what was applied stays."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain.rule_run import RuleRun
from automation_pipeline.pricing.domain.states import RunState
from automation_pipeline.pricing.stages.apply_run import CANCELLED
from automation_pipeline.pricing.store.beginnings import begin_applying
from automation_pipeline.pricing.store.chunks import requeue_abandoned
from automation_pipeline.pricing.store.endings import end_run, give_up_rest
from automation_pipeline.pricing.store.holds import locked_run, release_hold, take_hold
from automation_pipeline.pricing.store.new_runs import file_run_request
from automation_pipeline.pricing.store.run_views import get_run
from automation_pipeline.pricing.store.wishes import forget_wish
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time

_BRIEFLY_SECONDS = 60.0


def cancel_run(run_id: int, *, database: Database, clock: Clock, actor: str) -> RuleRun:
    """At once where nobody works on it and nothing can have been written unheard; else its worker looks, and stops
    before its next writes. Safe to repeat. ConflictError: it has ended, or is a mere preview."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        _refuse_what_cannot_stop(run)
        if run.cancel_requested_at is None:
            run.cancel_requested_at, run.cancelled_by, run.updated_at = clock.now(), actor, clock.now()
        if run.status not in {RunState.QUEUED, RunState.APPLYING}:
            forget_wish(session, run)
        session.flush()
        if run.status in {RunState.QUEUED, RunState.APPLYING}:
            _end_if_nobody_works(session, run, actor)
        return get_run(session, run_id)


def _end_if_nobody_works(session: Session, run: RuleRunRow, actor: str) -> None:
    hold = take_hold(session, run.id, actor, _BRIEFLY_SECONDS)
    if hold is None:
        return
    session.refresh(run)
    now = database_time(session)
    if run.status == RunState.QUEUED:
        begin_applying(session, run, now)
    else:
        requeue_abandoned(session, run.id, now)
    give_up_rest(session, run, CANCELLED, actor, now)
    if not end_run(session, run, now, reconciles=True):
        file_run_request(session, run.id, now)  # what may have been written is looked at first
    release_hold(session, hold)


def _refuse_what_cannot_stop(run: RuleRunRow) -> None:
    if run.cancel_requested_at is not None and run.status in {RunState.PREVIEW, RunState.QUEUED, RunState.APPLYING}:
        return
    if run.status == RunState.PREVIEW and run.wish is None:
        raise ConflictError(f"Run {run.id} is a preview that nobody asked to be applied: there is nothing to cancel.")
    is_open = run.status in {RunState.PREVIEW, RunState.QUEUED, RunState.APPLYING} or run.wish is not None
    if not is_open:
        raise ConflictError(f"Run {run.id} is {run.status}: there is nothing to cancel.")
