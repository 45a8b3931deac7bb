"""Transcription runs: begin or join, plan, settle, fail, sweep abandoned ones."""

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
from automation_pipeline.storage.retention import PurgePass, purge_expired
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
from automation_pipeline.transcription.queries import runs
from automation_pipeline.transcription.queries.runs import (
    abandoned_runs,
    count_recordings,
    end_run,
    is_abandoned,
    lock_run,
    summary_from_row,
)
from automation_pipeline.transcription.queries.tasks import OLD_TASKS, fail_waiting_tasks


def settle_recordings(
    session: Session,
    run_id: str,
    *,
    processed: int,
    cached: int = 0,
    failed: int = 0,
    progress_every: int = 1,
) -> TranscriptionSummary:
    """In the transaction that ended them. Progress is told every so many recordings, and at the
    end."""
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
    """End a run that cannot be attempted: its unended recordings fail with the reason. A run that
    has ended stays."""
    held = lock_run(session, run_id)
    if held.status != TranscriptionStatus.RUNNING:
        return summary_from_row(held)
    now, total = database_time(session), held.target_total
    failed = [
        (call, (place, total)) for call, place in fail_waiting_tasks(session, run_id, None, reason)
    ]
    enqueue(session, events.recordings_failed(run_id, held.fiche_id, failed, reason, now))
    counted, _ = count_recordings(
        session, run_id, now, processed=len(failed), cached=0, failed=len(failed)
    )
    end_run(session, run_id, TranscriptionStatus.FAILED, reason)
    summary = replace(counted, status=TranscriptionStatus.FAILED, error=reason)
    enqueue(session, events.failed(summary, reason, now))
    write_notes(
        session, run_note(summary, f"END: {reason}", level="error", data={"failed": len(failed)})
    )
    return summary


@dataclass(frozen=True)
class TranscriptionRunRequest:
    """A run asked for. Repeating a wish joins the run that it made."""

    run_id: str
    fiche_id: str
    priority: TranscriptionPriority
    dagster_run_id: str | None = None
    # Details that the CRM has told since then are fresh enough; without it they are fetched anew.
    fresh_since: datetime | None = None
    # Transcripts made before that instant, by the database's clock, are made again; without it
    # every one counts.
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
    """Record the run, then fetch the fiche and plan; or join the run under way. `is_fresh`: the
    details are known to be as fresh as the caller wants them.

    Errors of the CRM are raised. A permanent one ends the run as failed with its reason, and so
    does a transient one unless the caller tries the same run again (`gives_up=False`). A fiche that
    the CRM does not know ends its run too.
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
            await database.write(partial(_fail, run.run_id, sentence_of(error)))
        raise
    if isinstance(outcome, FicheNotFound):
        return await database.write(partial(_fail, run.run_id, events.NOT_FOUND))
    return await database.write(partial(_plan, request, run.run_id))


def open_run(request: TranscriptionRunRequest, session: Session) -> TranscriptionSummary:
    """The run that works on the fiche: the one under way, or one recorded now, without a plan
    yet."""
    under_way = _under_way(request, session)
    if under_way is not None:
        return under_way
    if not runs.start_run(
        session,
        request.run_id,
        request.fiche_id,
        runs.NO_PLAN,
        request.priority,
        request.dagster_run_id,
    ):
        return _joined(request, session)
    return TranscriptionSummary(
        request.run_id, request.fiche_id, TranscriptionStatus.RUNNING, 0, 0, 0
    )


def _under_way(request: TranscriptionRunRequest, session: Session) -> TranscriptionSummary | None:
    mine = runs.find_summary(session, request.run_id)
    if mine is not None:
        return mine
    live = runs.live_run_of(session, request.fiche_id)
    if live is None:
        return None
    runs.raise_urgency(session, live, request.priority)
    return runs.find_summary(session, live)


def _join_or_start(request: TranscriptionRunRequest, session: Session) -> TranscriptionSummary:
    under_way = _under_way(request, session)
    if under_way is not None:
        return under_way if under_way.is_planned else _plan(request, under_way.run_id, session)
    plan = _plan_for(request, session)
    if not runs.start_run(
        session, request.run_id, request.fiche_id, plan, request.priority, request.dagster_run_id
    ):
        return _joined(request, session)
    return _started(request, request.run_id, plan, session)


def _joined(request: TranscriptionRunRequest, session: Session) -> TranscriptionSummary:
    """Another worker began while this one asked the CRM."""
    joined = _under_way(request, session)
    if joined is None:
        raise TransientError(
            f"The run of fiche {request.fiche_id} ended in the very moment that it was joined."
        )
    return joined


def _plan(request: TranscriptionRunRequest, run_id: str, session: Session) -> TranscriptionSummary:
    """Plan the recorded run, its own or the one that it joined, unless another worker has."""
    plan = _plan_for(request, session)
    if runs.plan_run(session, run_id, plan):
        return _started(request, run_id, plan, session)
    planned = runs.find_summary(session, run_id)
    if planned is None:
        raise TransientError(
            f"The run of fiche {request.fiche_id} was removed while it was planned."
        )
    if planned.status is TranscriptionStatus.FAILED and run_id != request.run_id:
        return _join_or_start(request, session)
    return planned


def _plan_for(request: TranscriptionRunRequest, session: Session) -> TranscriptionPlan:
    plan = runs.plan_for(session, request.fiche_id, request.renew_before)
    if plan is None:
        raise PermanentError(f"Fiche {request.fiche_id} is not mirrored.")
    return plan


def _started(
    request: TranscriptionRunRequest, run_id: str, plan: TranscriptionPlan, session: Session
) -> TranscriptionSummary:
    now = database_time(session)
    runs.add_tasks(session, run_id, request.fiche_id, plan, request.priority, now)
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
    """A recording without audio ends at once; a run without targets too."""
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
    failed = fail_waiting_tasks(session, run_id, blank, NO_URL)
    recordings = [(call, (place, len(plan.targets))) for call, place in failed]
    enqueue(
        session,
        events.recordings_failed(
            run_id, request.fiche_id, recordings, NO_URL, database_time(session)
        ),
    )
    return settle_recordings(session, run_id, processed=len(failed), failed=len(failed))


def fail_unplanned(request: TranscriptionRunRequest, reason: str, session: Session) -> None:
    """Record that the wish came to nothing before its recordings were planned. A run of another
    wish goes on."""
    run = open_run(request, session)
    if run.run_id == request.run_id and not run.is_planned:
        fail_run(session, run.run_id, reason)


def _fail(run_id: str, reason: str, session: Session) -> TranscriptionSummary:
    return fail_run(session, run_id, reason)


def sweep_transcriptions(silent_for_seconds: float, *, database: Database) -> Sequence[str]:
    """The ids of the runs that were ended. A run shows life whenever one of its recordings is
    worked on."""
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
    now, held = database_time(session), lock_run(session, run_id)
    if held.target_total == 0:
        fail_run(session, run_id, reason)
        return
    failed = [
        (call, (place, held.target_total))
        for call, place in fail_waiting_tasks(session, run_id, None, reason)
    ]
    enqueue(session, events.recordings_failed(run_id, fiche_id, failed, reason, now))
    data = {"failed": len(failed)}
    write_notes(session, fiche_note(run_id, fiche_id, f"SWEEP: {reason}", level="error", data=data))
    summary = settle_recordings(session, run_id, processed=len(failed), failed=len(failed))
    if not summary.is_over:
        # Recordings went away under the run: its counters can no longer add up, but it ends all the
        # same.
        fail_run(session, run_id, reason)


def delete_old_tasks(look: PurgePass, *, keep_days: int, database: Database) -> dict[str, int]:
    return purge_expired([(OLD_TASKS, keep_days)], look, database=database)
