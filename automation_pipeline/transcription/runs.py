"""Transcription runs: one run transcribes the missing recordings of a fiche. Start or join runs, plan
them, work until they have ended."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import partial

from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import (
    AutomationError,
    InfrastructureError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.fiches.mirror import fetch_fiche
from automation_pipeline.fiches.models.fiches import DetailsKnown, FicheNotFound, FicheSource
from automation_pipeline.fiches.queries.mirror import known_since
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_time, rounds
from automation_pipeline.transcription import events
from automation_pipeline.transcription.events import fiche_note
from automation_pipeline.transcription.models import (
    NO_URL,
    DayTranscripts,
    SpeechProvider,
    TaskState,
    TranscriptionPlan,
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionStatus,
    TranscriptionSummary,
)
from automation_pipeline.transcription.queries.runs import (
    Run,
    active_runs,
    add_tasks,
    count_recordings,
    end_runs,
    fail_waiting_tasks,
    fiches_to_transcribe,
    find_runs,
    is_abandoned,
    list_summaries,
    plan_run,
    plans_for,
    raise_urgency,
    start_runs,
    transcripts_of_day,
)
from automation_pipeline.transcription.recordings import settle_recordings, transcribe_waiting

# Requests that one transaction starts.
AT_ONCE = 100


async def transcribe_fiches(  # noqa: PLR0913  ports, by name
    requests: Sequence[TranscriptionRunRequest],
    *,
    database: Database,
    source: Callable[[], FicheSource],
    provider: Callable[[], SpeechProvider],
    clock: Clock,
    owner: str,
    gives_up: bool = True,
) -> list[TranscriptionSummary]:
    """Transcribe the fiches and return how their runs ended. `owner` names the worker.

    An error of the CRM for one fiche does not affect the others; it is raised if no run started.
    Every request has a run before the first step that can fail: `source` and `provider` raise
    PermanentError for a missing setting, and the runs fail with it. The provider is opened only if
    a recording needs a transcript. With `gives_up=False`, runs stay open after a TransientError,
    because the caller repeats the same requests.
    """
    started = await begin_transcriptions(
        requests, database=database, source=source, clock=clock, gives_up=gives_up
    )
    runs = [result for result in started if isinstance(result, TranscriptionSummary)]
    errors = [result for result in started if isinstance(result, AutomationError)]
    if errors and not runs:
        raise errors[0]
    running = [run.run_id for run in runs if run.status is TranscriptionStatus.RUNNING]
    if running:
        own = [request.run_id for request in requests if request.run_id in running]
        await work_on_runs(running, own=own, database=database, provider=provider, owner=owner)
    with database.reading() as session:
        return list_summaries(session, [run.run_id for run in runs])


async def begin_transcriptions(
    requests: Sequence[TranscriptionRunRequest],
    *,
    database: Database,
    source: Callable[[], FicheSource],
    clock: Clock,
    gives_up: bool = True,
) -> list[TranscriptionSummary | AutomationError]:
    """Return per request, in order, the run that works on its fiche (a new or an active one), or the
    error that prevents it."""
    try:
        crm = source()
    except PermanentError as error:
        for request in requests:
            await database.write(partial(_fail_own, request, sentence_of(error)))
        raise
    fresh = _fresh_fiches(requests, database, clock)
    stored = [request for request in requests if request.fiche_id in fresh]
    started: dict[str, TranscriptionSummary | AutomationError] = {}
    for first in range(0, len(stored), AT_ONCE):
        chunk = stored[first : first + AT_ONCE]
        runs = await database.write(partial(join_or_start, requests=chunk))
        started.update(zip([request.run_id for request in chunk], runs, strict=True))

    async def begin(
        request: TranscriptionRunRequest,
    ) -> tuple[str, TranscriptionSummary | AutomationError]:
        try:
            return request.run_id, await begin_transcription(
                request, database=database, source=crm, clock=clock, gives_up=gives_up
            )
        except InfrastructureError:
            raise
        except (TransientError, PermanentError) as error:
            return request.run_id, error

    others = [request for request in requests if request.fiche_id not in fresh]
    await process_concurrently(others, begin, started.update, width=crm.at_once)
    return [started[request.run_id] for request in requests]


async def work_on_runs(
    run_ids: Sequence[str],
    *,
    own: Sequence[str],
    database: Database,
    provider: Callable[[], SpeechProvider],
    owner: str,
    stop: asyncio.Event | None = None,
) -> None:
    """Work until these runs have ended, or claim no more recordings once `stop` is set.

    Without a provider the `own` runs fail; a run of another process continues.
    """
    try:
        speech = provider()
    except PermanentError as error:
        for run_id in own:
            await database.write(partial(fail_run, run_id=run_id, reason=sentence_of(error)))
        raise
    await transcribe_waiting(run_ids, database=database, provider=speech, owner=owner, stop=stop)


async def transcribe_day(
    day: date,
    *,
    database: Database,
    source: Callable[[], FicheSource],
    provider: Callable[[], SpeechProvider],
    clock: Clock,
    owner: str,
) -> DayTranscripts:
    """Transcribe the day's fiches with low priority, and return the day's counts afterwards."""
    with database.reading() as session:
        fiche_ids = fiches_to_transcribe(session, day)
    requests = [
        TranscriptionRunRequest(str(uuid.uuid4()), fiche_id, TranscriptionPriority.LOW)
        for fiche_id in fiche_ids
    ]
    await transcribe_fiches(
        requests, database=database, source=source, provider=provider, clock=clock, owner=owner
    )
    with database.reading() as session:
        return transcripts_of_day(session, day)


def _fresh_fiches(
    requests: Sequence[TranscriptionRunRequest], database: Database, clock: Clock
) -> set[str]:
    """The fiches whose stored details are as new as their requests demand."""
    since: dict[datetime, list[str]] = {}
    for request in requests:
        if request.fresh_since is not None:
            since.setdefault(request.fresh_since, []).append(request.fiche_id)
    with database.reading() as session:
        return {
            outcome.fiche_id
            for at, fiche_ids in since.items()
            for outcome in known_since(session, fiche_ids, at, clock.now())
            if isinstance(outcome, DetailsKnown)
        }


async def begin_transcription(
    request: TranscriptionRunRequest,
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    gives_up: bool = True,
) -> TranscriptionSummary:
    """Record a run, fetch the fiche and plan the run; or join the fiche's active run.

    Raises the CRM's errors. A permanent error fails the run, and so does a transient one unless the
    caller repeats the request (`gives_up=False`). A fiche that the CRM does not know fails the run
    without an exception.
    """
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
    run = _find_active(session, [request]).get(request.run_id)
    if run is None and start_runs(
        session, [(request, TranscriptionPlan(0))], database_time(session)
    ):
        return TranscriptionPlan(0).summary(request)
    return run or _join(request, session)


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
    new_plans = [(request, plan) for request, plan in planned if request.run_id in started]
    results.update({run.fiche_id: run for run in _begin_work(session, new_plans)})
    for request in requests:
        if request.fiche_id in results:
            continue
        try:
            run = active.get(request.run_id)
            if run is None and request.fiche_id not in plans:
                raise _not_mirrored(request)
            run = run or _join(request, session)
            results[request.fiche_id] = (
                run if run.is_planned else _plan(request, run.run_id, session)
            )
        except AutomationError as error:
            results[request.fiche_id] = error
    return results


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
    joined = replace(request, run_id=run_id)
    if plan_run(session, joined, plan):
        return _begin_work(session, [(joined, plan)])[0]
    for run in list_summaries(session, [run_id]):
        if run.status is not TranscriptionStatus.FAILED or run_id == request.run_id:
            return run
    result = _join_or_start_each(session, [request])[request.fiche_id]
    if isinstance(result, AutomationError):
        raise result
    return result


def _not_mirrored(request: TranscriptionRunRequest) -> PermanentError:
    return PermanentError(f"Fiche {request.fiche_id} is not mirrored.")


def _begin_work(
    session: Session, plans: Sequence[tuple[TranscriptionRunRequest, TranscriptionPlan]]
) -> list[TranscriptionSummary]:
    """Recordings without audio fail at once. A run without targets completes at once."""
    if not plans:
        return []
    now = database_time(session)
    add_tasks(session, plans, now)
    runs = [plan.summary(request) for request, plan in plans]
    ended: dict[str, Counter[TaskState]] = {}
    for run, (request, plan) in zip(runs, plans, strict=True):
        enqueue(session, events.planned(run, request.priority, now))
        note = fiche_note(
            run.run_id,
            run.fiche_id,
            f"START: {request.priority} priority",
            total=run.total,
            already=run.already_transcribed,
            targets=run.target_total,
        )
        write_notes(session, note)
        blank = [target.call_id for target in plan.targets if not target.url.strip()]
        if blank or not plan.targets:
            ended[run.run_id] = _fail_tasks(session, run, NO_URL, blank)
    settled = settle_recordings(session, ended)
    return [settled.get(run.run_id, run) for run in runs]


def _fail_tasks(
    session: Session,
    run: TranscriptionSummary,
    reason: str,
    call_ids: Sequence[str] | None = None,
) -> Counter[TaskState]:
    """Fail the unfinished recordings of a run, or those of `call_ids`, and return their number."""
    failed = fail_waiting_tasks(session, run.run_id, call_ids, reason)
    now = database_time(session)
    enqueue(session, [
        events.recording(
            "failed", run.run_id, run.fiche_id, call_id, (index, run.target_total), now, error=reason
        )
        for call_id, index in failed
    ])  # fmt: skip
    return Counter({TaskState.FAILED: len(failed)})


def fail_unplanned(request: TranscriptionRunRequest, reason: str, session: Session) -> None:
    """Fail the request's run if it has no plan yet. A run of another request continues."""
    run = open_run(request, session)
    if run.run_id == request.run_id and not run.is_planned:
        fail_run(session, run.run_id, reason)


def _fail_own(request: TranscriptionRunRequest, reason: str, session: Session) -> None:
    """Fail the request's run, because a setting is missing. A run of another request continues."""
    run = open_run(request, session)
    if run.run_id == request.run_id:
        fail_run(session, run.run_id, reason)


def fail_run(session: Session, run_id: str, reason: str) -> TranscriptionSummary:
    """End a run that cannot be attempted: its unfinished recordings fail with the reason. A run that
    has ended already stays unchanged."""
    [run] = find_runs(session, Run.id == run_id, lock=True)
    if run.status is not TranscriptionStatus.RUNNING:
        return run
    now = database_time(session)
    failed = _fail_tasks(session, run, reason)
    [counted] = count_recordings(session, {run_id: failed}, now)
    end_runs(session, [run_id], TranscriptionStatus.FAILED, reason)
    run = replace(counted, status=TranscriptionStatus.FAILED, error=reason)
    enqueue(session, events.failed(run, now))
    write_notes(
        session,
        fiche_note(run_id, run.fiche_id, f"END: {reason}", level="error", failed=failed.total()),
    )
    return run


def sweep_transcriptions(silent_for_seconds: float, *, database: Database) -> Sequence[str]:
    """End the runs whose heartbeat stopped, and return their ids. Work on a recording touches its run."""
    with database.reading() as session:
        silent = find_runs(session, is_abandoned(silent_for_seconds))
    reason = f"No worker has worked on this run for {silent_for_seconds / 60:.0f} minutes"
    ended: list[str] = []
    for run in silent:
        with database.transaction() as session:
            # A worker may have touched it since.
            is_it = Run.id == run.run_id, is_abandoned(silent_for_seconds)
            if find_runs(session, *is_it, lock=True):
                _end_abandoned(session, run, reason)
                ended.append(run.run_id)
    return ended


def _end_abandoned(session: Session, run: TranscriptionSummary, reason: str) -> None:
    if run.target_total == 0:
        fail_run(session, run.run_id, reason)
        return
    failed = _fail_tasks(session, run, reason)
    note = fiche_note(
        run.run_id, run.fiche_id, f"SWEEP: {reason}", level="error", failed=failed.total()
    )
    write_notes(session, note)
    settled = settle_recordings(session, {run.run_id: failed})
    if not settled[run.run_id].is_over:
        # Recordings were deleted during the run, so its counters do not add up. End it anyway.
        fail_run(session, run.run_id, reason)
