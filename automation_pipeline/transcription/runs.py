"""Transcription runs: one run transcribes what a fiche lacks. Start or join one, plan it, end it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import (
    AutomationError,
    InfrastructureError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.fiches.details import fetch_fiche
from automation_pipeline.fiches.models.fiches import FicheNotFound
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes
from automation_pipeline.transcription import events
from automation_pipeline.transcription.events import fiche_note, run_note
from automation_pipeline.transcription.models import (
    NO_URL,
    TranscriptionPlan,
    TranscriptionPriority,
    TranscriptionStatus,
    TranscriptionSummary,
)
from automation_pipeline.transcription.queries.runs import (
    NO_PLAN,
    abandoned_runs,
    add_tasks,
    count_recordings,
    end_run,
    find_summary,
    is_abandoned,
    live_run_of,
    lock_run,
    plan_for,
    plan_run,
    raise_urgency,
    start_run,
    summary_from_row,
)
from automation_pipeline.transcription.queries.tasks import fail_waiting_tasks


@dataclass(frozen=True)
class TranscriptionRunRequest:
    """A request for a run. Repeating it joins the run that it started."""

    run_id: str
    fiche_id: str
    priority: TranscriptionPriority
    dagster_run_id: str | None = None
    # Stored details that are newer are not fetched again. None fetches them.
    fresh_since: datetime | None = None
    # Transcripts that are older, by the database's clock, are replaced. None keeps all.
    renew_before: datetime | None = None


async def begin_transcription(
    request: TranscriptionRunRequest,
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    is_fresh: bool = False,
    gives_up: bool = True,
) -> TranscriptionSummary:
    """Record a run, fetch the fiche and plan the run; or join the fiche's active run.

    With `is_fresh` the stored details are fresh enough and are not fetched. Raises the CRM's
    errors. A permanent error fails the run, and so does a transient one unless the caller repeats
    the request (`gives_up=False`). A fiche that the CRM does not know fails the run without an
    exception.
    """
    if is_fresh:
        return await database.write(partial(_join_or_start, request))
    run = await database.write(partial(open_run, request))
    if run.is_planned:
        return run
    since = request.fresh_since or clock.now()
    try:
        outcome = await fetch_fiche(
            request.fiche_id, since=since, database=database, source=source, clock=clock
        )
    except InfrastructureError:
        raise
    except AutomationError as error:
        if gives_up or isinstance(error, PermanentError):
            await database.write(partial(fail_run, run_id=run.run_id, reason=sentence_of(error)))
        raise
    if isinstance(outcome, FicheNotFound):
        return await database.write(partial(fail_run, run_id=run.run_id, reason=events.NOT_FOUND))
    return await database.write(partial(_plan, request, run.run_id))


def open_run(request: TranscriptionRunRequest, session: Session) -> TranscriptionSummary:
    """Return the fiche's active run, or record a run without a plan."""
    active = _find_active(request, session)
    if active is not None:
        return active
    if not start_run(
        session,
        request.run_id,
        request.fiche_id,
        NO_PLAN,
        request.priority,
        request.dagster_run_id,
    ):
        return _join(request, session)
    return TranscriptionSummary(
        request.run_id, request.fiche_id, TranscriptionStatus.RUNNING, 0, 0, 0
    )


def _find_active(request: TranscriptionRunRequest, session: Session) -> TranscriptionSummary | None:
    """The request's own run, or else the fiche's live run, made as urgent as the request."""
    own = find_summary(session, request.run_id)
    if own is not None:
        return own
    live = live_run_of(session, request.fiche_id)
    if live is None:
        return None
    raise_urgency(session, live, request.priority)
    return find_summary(session, live)


def _join_or_start(request: TranscriptionRunRequest, session: Session) -> TranscriptionSummary:
    active = _find_active(request, session)
    if active is not None:
        return active if active.is_planned else _plan(request, active.run_id, session)
    plan = _plan_for(request, session)
    if not start_run(
        session, request.run_id, request.fiche_id, plan, request.priority, request.dagster_run_id
    ):
        return _join(request, session)
    return _begin_work(request, request.run_id, plan, session)


def _join(request: TranscriptionRunRequest, session: Session) -> TranscriptionSummary:
    """Join the run that another worker recorded concurrently."""
    joined = _find_active(request, session)
    if joined is None:
        raise TransientError(
            f"The run of fiche {request.fiche_id} ended while a request was joining it."
        )
    return joined


def _plan(request: TranscriptionRunRequest, run_id: str, session: Session) -> TranscriptionSummary:
    """Plan the recorded run, the request's own or a joined one, unless another worker has planned it."""
    plan = _plan_for(request, session)
    if plan_run(session, run_id, plan):
        return _begin_work(request, run_id, plan, session)
    planned = find_summary(session, run_id)
    if planned is None:
        raise TransientError(
            f"The run of fiche {request.fiche_id} was removed while it was planned."
        )
    if planned.status is TranscriptionStatus.FAILED and run_id != request.run_id:
        return _join_or_start(request, session)
    return planned


def _plan_for(request: TranscriptionRunRequest, session: Session) -> TranscriptionPlan:
    plan = plan_for(session, request.fiche_id, request.renew_before)
    if plan is None:
        raise PermanentError(f"Fiche {request.fiche_id} is not mirrored.")
    return plan


def _begin_work(
    request: TranscriptionRunRequest, run_id: str, plan: TranscriptionPlan, session: Session
) -> TranscriptionSummary:
    now = database_time(session)
    add_tasks(session, run_id, request.fiche_id, plan, request.priority, now)
    enqueue(session, [
        events.status_check(run_id, request.fiche_id, plan, now),
        events.started(run_id, request.fiche_id, plan, request.priority, now),
    ])  # fmt: skip
    counts = {
        "total": plan.total,
        "already": plan.already_transcribed,
        "targets": len(plan.targets),
    }
    write_notes(
        session,
        fiche_note(run_id, request.fiche_id, f"START: {request.priority} priority", data=counts),
    )
    return _fail_recordings_without_audio(session, request, run_id, plan)


def _fail_recordings_without_audio(
    session: Session, request: TranscriptionRunRequest, run_id: str, plan: TranscriptionPlan
) -> TranscriptionSummary:
    """Recordings without audio fail at once. A run without targets completes at once."""
    blank = [target.call_id for target in plan.targets if not target.url.strip()]
    if not blank and plan.targets:
        return TranscriptionSummary(
            run_id,
            request.fiche_id,
            TranscriptionStatus.RUNNING,
            plan.total,
            plan.already_transcribed,
            len(plan.targets),
        )
    failed = _fail_tasks(session, run_id, request.fiche_id, len(plan.targets), NO_URL, blank)
    return settle_recordings(session, run_id, processed=failed, failed=failed)


def _fail_tasks(
    session: Session,
    run_id: str,
    fiche_id: str,
    target_total: int,
    reason: str,
    call_ids: Sequence[str] | None = None,
) -> int:
    """Fail the unfinished recordings of a run, or those of `call_ids`, and return their number."""
    failed = fail_waiting_tasks(session, run_id, call_ids, reason)
    calls = [(call_id, (index, target_total)) for call_id, index in failed]
    now = database_time(session)
    enqueue(session, events.recordings_failed(run_id, fiche_id, calls, reason, now))
    return len(failed)


def fail_unplanned(request: TranscriptionRunRequest, reason: str, session: Session) -> None:
    """Fail the request's run if it has no plan yet. A run of another request continues."""
    run = open_run(request, session)
    if run.run_id == request.run_id and not run.is_planned:
        fail_run(session, run.run_id, reason)


def settle_recordings(
    session: Session,
    run_id: str,
    *,
    processed: int,
    cached: int = 0,
    failed: int = 0,
    progress_every: int = 1,
) -> TranscriptionSummary:
    """Count ended recordings in the transaction that ends them, and complete the run with the last one.

    A progress event is published after every `progress_every` recordings, and at the end.
    """
    now = database_time(session)
    summary, started_at = count_recordings(
        session, run_id, now, processed=processed, cached=cached, failed=failed
    )
    before = summary.processed - processed
    if summary.is_over or summary.processed // progress_every > before // progress_every:
        enqueue(session, [events.progress(summary, now)] if processed else [])
    if summary.is_over and summary.status is TranscriptionStatus.RUNNING:
        enqueue(session, events.completed(summary, started_at, now))
        end_run(session, run_id, TranscriptionStatus.COMPLETED)
        counts = {"new": summary.new, "cached": summary.cached, "failed": summary.failed}
        write_notes(
            session, run_note(summary, f"END: completed, {summary.failed} failed", data=counts)
        )
        return replace(summary, status=TranscriptionStatus.COMPLETED)
    return summary


def fail_run(session: Session, run_id: str, reason: str) -> TranscriptionSummary:
    """End a run that cannot be attempted: its unfinished recordings fail with the reason. A run that
    has ended already stays unchanged."""
    run = lock_run(session, run_id)
    if run.status != TranscriptionStatus.RUNNING:
        return summary_from_row(run)
    now = database_time(session)
    failed = _fail_tasks(session, run_id, run.fiche_id, run.target_total, reason)
    counted, _ = count_recordings(session, run_id, now, processed=failed, cached=0, failed=failed)
    end_run(session, run_id, TranscriptionStatus.FAILED, reason)
    summary = replace(counted, status=TranscriptionStatus.FAILED, error=reason)
    enqueue(session, events.failed(summary, reason, now))
    write_notes(
        session, run_note(summary, f"END: {reason}", level="error", data={"failed": failed})
    )
    return summary


def sweep_transcriptions(silent_for_seconds: float, *, database: Database) -> Sequence[str]:
    """End the runs whose heartbeat stopped, and return their ids. Work on a recording touches its run."""
    with database.reading() as session:
        abandoned = abandoned_runs(session, silent_for_seconds)
    ended: list[str] = []
    for run_id, fiche_id in abandoned:
        with database.transaction() as session:
            if is_abandoned(lock_run(session, run_id), database_time(session), silent_for_seconds):
                _end_abandoned(session, run_id, fiche_id, silent_for_seconds)
                ended.append(run_id)
    return ended


def _end_abandoned(session: Session, run_id: str, fiche_id: str, silent_for_seconds: float) -> None:
    reason = f"Nobody has worked on this run for {silent_for_seconds / 60:.0f} minutes"
    run = lock_run(session, run_id)
    if run.target_total == 0:
        fail_run(session, run_id, reason)
        return
    failed = _fail_tasks(session, run_id, fiche_id, run.target_total, reason)
    data = {"failed": failed}
    write_notes(session, fiche_note(run_id, fiche_id, f"SWEEP: {reason}", level="error", data=data))
    summary = settle_recordings(session, run_id, processed=failed, failed=failed)
    if not summary.is_over:
        # Recordings were deleted during the run, so its counters do not add up. End it anyway.
        fail_run(session, run_id, reason)
