"""Transcription runs: one run transcribes the missing recordings of a fiche. Start or join a run,
plan it, end it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_time, rounds
from automation_pipeline.transcription import events
from automation_pipeline.transcription.events import fiche_note, run_note
from automation_pipeline.transcription.models import (
    NO_URL,
    EndedRecordings,
    PlannedRun,
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionStatus,
    TranscriptionSummary,
)
from automation_pipeline.transcription.queries.runs import (
    NO_PLAN,
    abandoned_runs,
    active_runs,
    add_tasks,
    count_recordings,
    end_runs,
    find_summary,
    is_abandoned,
    lock_run,
    plan_run,
    plans_for,
    raise_urgency,
    start_runs,
    summary_from_row,
)
from automation_pipeline.transcription.queries.tasks import fail_waiting_tasks


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
        return await database.write_in_bulk(join_or_start, request)
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
    active = _find_active(session, [request]).get(request.run_id)
    if active is not None:
        return active
    if not start_runs(session, [(request, NO_PLAN)], database_time(session)):
        return _join(request, session)
    return PlannedRun(request.run_id, request, NO_PLAN).summary


def _find_active(
    session: Session, requests: Sequence[TranscriptionRunRequest]
) -> dict[str, TranscriptionSummary]:
    """The requests' own runs, or else the fiches' live runs, made as urgent as the requests."""
    active = active_runs(session, requests)
    joined: dict[TranscriptionPriority, list[str]] = {}
    for request in requests:
        run = active.get(request.run_id)
        if run is not None and run.run_id != request.run_id:
            joined.setdefault(request.priority, []).append(run.run_id)
    for priority, run_ids in joined.items():
        raise_urgency(session, run_ids, priority)
    return active


def join_or_start(
    session: Session, requests: Sequence[TranscriptionRunRequest]
) -> list[TranscriptionSummary | AutomationError]:
    """Per request: its own run, or the fiche's live run, or a new run with a plan; or why there is
    none."""
    results: dict[int, TranscriptionSummary | AutomationError] = {}
    # Of requests for one fiche, the later ones join the run of the first.
    for numbered in rounds(enumerate(requests), key=lambda each: each[1].fiche_id):
        found = _join_or_start_each(session, [request for _, request in numbered])
        results.update({number: found[request.fiche_id] for number, request in numbered})
    return [results[number] for number in range(len(requests))]


def _join_or_start_each(
    session: Session, requests: Sequence[TranscriptionRunRequest]
) -> dict[str, TranscriptionSummary | AutomationError]:
    """By fiche. No two of the requests are for one fiche."""
    active = _find_active(session, requests)
    results: dict[str, TranscriptionSummary | AutomationError] = {}
    new = [request for request in requests if request.run_id not in active]
    plans = plans_for(session, new) if new else {}
    planned = [(request, plans[request.fiche_id]) for request in new if request.fiche_id in plans]
    started = start_runs(session, planned, database_time(session)) if planned else set[str]()
    has_started = [
        PlannedRun(request.run_id, request, plan)
        for request, plan in planned
        if request.run_id in started
    ]
    results.update({run.fiche_id: run for run in _begin_work(session, has_started)})
    for request in requests:
        if request.fiche_id not in results:
            try:
                run = active.get(request.run_id)
                results[request.fiche_id] = _join_active(
                    request, run, request.fiche_id in plans, session
                )
            except AutomationError as error:
                results[request.fiche_id] = error
    return results


def _join_active(
    request: TranscriptionRunRequest,
    active: TranscriptionSummary | None,
    is_mirrored: bool,
    session: Session,
) -> TranscriptionSummary:
    """Join a run that another request has recorded."""
    if active is None and not is_mirrored:
        raise _not_mirrored(request)
    run = active or _join(request, session)
    return run if run.is_planned else _plan(request, run.run_id, session)


def _join(request: TranscriptionRunRequest, session: Session) -> TranscriptionSummary:
    """Join the run that another worker recorded concurrently."""
    joined = _find_active(session, [request]).get(request.run_id)
    if joined is None:
        raise TransientError(
            f"The run of fiche {request.fiche_id} ended while a request was joining it."
        )
    return joined


def _plan(request: TranscriptionRunRequest, run_id: str, session: Session) -> TranscriptionSummary:
    """Plan the recorded run, the request's own or a joined one, unless another worker has planned it."""
    plan = plans_for(session, [request]).get(request.fiche_id)
    if plan is None:
        raise _not_mirrored(request)
    if plan_run(session, run_id, plan):
        [started] = _begin_work(session, [PlannedRun(run_id, request, plan)])
        return started
    planned = find_summary(session, run_id)
    if planned is None:
        raise TransientError(
            f"The run of fiche {request.fiche_id} was removed while it was planned."
        )
    if planned.status is TranscriptionStatus.FAILED and run_id != request.run_id:
        result = _join_or_start_each(session, [request])[request.fiche_id]
        if isinstance(result, AutomationError):
            raise result
        return result
    return planned


def _not_mirrored(request: TranscriptionRunRequest) -> PermanentError:
    return PermanentError(f"Fiche {request.fiche_id} is not mirrored.")


def _begin_work(session: Session, runs: Sequence[PlannedRun]) -> list[TranscriptionSummary]:
    """Recordings without audio fail at once. A run without targets completes at once."""
    if not runs:
        return []
    now = database_time(session)
    add_tasks(session, runs, now)
    for run in runs:
        fiche_id, plan, priority = run.request.fiche_id, run.plan, run.request.priority
        enqueue(session, [
            events.status_check(run.run_id, fiche_id, plan, now),
            events.started(run.run_id, fiche_id, plan, priority, now),
        ])  # fmt: skip
        counts = {
            "total": plan.total,
            "already": plan.already_transcribed,
            "targets": len(plan.targets),
        }
        message = f"START: {priority} priority"
        write_notes(session, fiche_note(run.run_id, fiche_id, message, data=counts))
    ended: dict[str, EndedRecordings] = {}
    for run in runs:
        blank = [target.call_id for target in run.plan.targets if not target.url.strip()]
        failed = 0
        if blank:
            total = len(run.plan.targets)
            failed = _fail_tasks(session, run.run_id, run.request.fiche_id, total, NO_URL, blank)
        if failed or not run.plan.targets:
            ended[run.run_id] = EndedRecordings(failed, failed=failed)
    settled = settle_recordings(session, ended)
    return [settled.get(run.run_id, run.summary) for run in runs]


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
    session: Session, ended: Mapping[str, EndedRecordings], *, progress_every: int = 1
) -> dict[str, TranscriptionSummary]:
    """Count ended recordings by run in the transaction that ends them, and complete the runs with
    their last ones.

    A progress event is published after every `progress_every` recordings, and at the end.
    """
    if not ended:
        return {}
    now = database_time(session)
    settled, completed = dict[str, TranscriptionSummary](), list[str]()
    for summary, started_at in count_recordings(session, ended, now):
        processed = ended[summary.run_id].processed
        before = summary.processed - processed
        is_due = summary.processed // progress_every > before // progress_every
        if processed and (summary.is_over or is_due):
            enqueue(session, [events.progress(summary, now)])
        if summary.is_over and summary.status is TranscriptionStatus.RUNNING:
            enqueue(session, events.completed(summary, started_at, now))
            counts = {"new": summary.new, "cached": summary.cached, "failed": summary.failed}
            message = f"END: completed, {summary.failed} failed"
            write_notes(session, run_note(summary, message, data=counts))
            summary = replace(summary, status=TranscriptionStatus.COMPLETED)  # noqa: PLW2901  the run has just ended
            completed.append(summary.run_id)
        settled[summary.run_id] = summary
    if completed:
        end_runs(session, completed, TranscriptionStatus.COMPLETED)
    return settled


def fail_run(session: Session, run_id: str, reason: str) -> TranscriptionSummary:
    """End a run that cannot be attempted: its unfinished recordings fail with the reason. A run that
    has ended already stays unchanged."""
    run = lock_run(session, run_id)
    if run.status != TranscriptionStatus.RUNNING:
        return summary_from_row(run)
    now = database_time(session)
    failed = _fail_tasks(session, run_id, run.fiche_id, run.target_total, reason)
    [(counted, _)] = count_recordings(
        session, {run_id: EndedRecordings(failed, failed=failed)}, now
    )
    end_runs(session, [run_id], TranscriptionStatus.FAILED, reason)
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
    reason = f"No worker has worked on this run for {silent_for_seconds / 60:.0f} minutes"
    run = lock_run(session, run_id)
    if run.target_total == 0:
        fail_run(session, run_id, reason)
        return
    failed = _fail_tasks(session, run_id, fiche_id, run.target_total, reason)
    data = {"failed": failed}
    write_notes(session, fiche_note(run_id, fiche_id, f"SWEEP: {reason}", level="error", data=data))
    settled = settle_recordings(session, {run_id: EndedRecordings(failed, failed=failed)})
    if not settled[run_id].is_over:
        # Recordings were deleted during the run, so its counters do not add up. End it anyway.
        fail_run(session, run_id, reason)
