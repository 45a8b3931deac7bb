"""Events and workflow log entries of runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.automation.models.runs import LedgerTally, Phase, Run, RunStatus
from automation_pipeline.automation.models.schedules import EmptyReason, FicheSelection
from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event, WorkflowLogEntry

PRODUCER = "automation"
TENANT = "main"
MOST_GROUPES = 10

_SUFFIXES = {
    EmptyReason.NO_FICHES_MANUAL: "-no-fiches",
    EmptyReason.NO_DATES: "-no-dates",
    EmptyReason.NO_FICHES_FOUND: "-no-fiches-found",
}


@dataclass(frozen=True)
class ProgressUpdate:
    """The progress of a run. `days` is (processed, total) if the run works day by day."""

    phase: Phase
    tally: LedgerTally
    audits: int
    days: tuple[int, int] | None = None


def job_id(run_id: int) -> str:
    """The name of the run's channel, and its trace id in logs."""
    return f"automation-run-{run_id}"


def started(run: Run, at: datetime) -> Event:
    payload = {"due_at": run.due_at and iso(run.due_at), "status": RunStatus.RUNNING}
    return _realtime_event(run, "started", "started", at, payload)


def selection(run: Run, chosen: FicheSelection, total_fiches: int, at: datetime) -> Event:
    payload = {
        "mode": chosen.mode,
        "dateRange": chosen.date_range,
        **({"groupes": list(chosen.groupes)} if len(chosen.groupes) <= MOST_GROUPES else {}),
        "groupes_count": len(chosen.groupes),
        "onlyWithRecordings": chosen.only_with_recordings,
        "onlyUnaudited": chosen.only_unaudited,
        "maxFiches": chosen.max_fiches,
        "maxRecordingsPerFiche": chosen.max_recordings_per_fiche,
        "useRlm": chosen.use_rlm,
        "total_fiches": total_fiches,
    }
    return _realtime_event(run, "selection", "selection", at, payload)


def progress(run: Run, made: ProgressUpdate, at: datetime) -> Event:
    """Two calls with the same progress give the same event."""
    tally = made.tally
    done = tally.successful + tally.failed + tally.ignored
    days = {} if made.days is None else {"days_processed": made.days[0], "days_total": made.days[1]}
    payload = {
        **days,
        "selected_fiches": tally.selected,
        "successful": tally.successful,
        "failed": tally.failed,
        "ignored": tally.ignored,
        "audits": made.audits,
        "current_phase": made.phase,
        "progress_percentage": round(100 * done / tally.selected) if tally.selected else 100,
        "status": RunStatus.RUNNING,
    }
    numbers = (tally.successful, tally.failed, tally.ignored, made.audits, *(made.days or ()))
    return _realtime_event(
        run, "progress", f"progress-{made.phase}-{'-'.join(map(str, numbers))}", at, payload
    )


def completed(run: Run, at: datetime, reason: EmptyReason | None = None) -> tuple[Event, Event]:
    """One event for realtime clients, and one for subscribers that wait for the run. With a reason,
    the run had no fiches."""
    totals = {
        "status": run.status,
        "total_fiches": run.total_fiches,
        "successful_fiches": run.successful_fiches,
        "failed_fiches": run.failed_fiches,
    }
    duration = {"duration_ms": run.duration_ms or 0}
    details = {
        "ignored_fiches": run.ignored_fiches,
        "transcriptions_run": run.transcriptions_run,
        "audits_run": run.audits_run,
        **duration,
    }
    realtime = _realtime_event(
        run, "completed", "completed", at, {**totals, **({"reason": reason} if reason else details)}
    )
    key = f"automation-completed-{run.id}{_SUFFIXES[reason] if reason else ''}"
    return realtime, _event(
        run, key, "automation/completed", at, {**_about(run), **totals, **duration}
    )


def aborted(run: Run, error: str, at: datetime) -> tuple[Event, Event]:
    """For a run that failed as a whole or was cancelled: the event names carry its status."""
    name = run.status.value
    realtime = _realtime_event(
        run, name, name, at, {"status": name, "error": error, "duration_ms": run.duration_ms or 0}
    )
    payload = {**_about(run), "error": error}
    return realtime, _event(run, f"automation-{name}-{run.id}", f"automation/{name}", at, payload)


def _realtime_event(
    run: Run, name: str, key: str, at: datetime, payload: Mapping[str, object]
) -> Event:
    channel = job_id(run.id)
    about = {"job_id": channel, **_about(run)}
    return _event(run, f"{channel}-{key}", f"automation.run.{name}", at, {**about, **payload})


def _event(run: Run, key: str, name: str, at: datetime, payload: Mapping[str, object]) -> Event:
    return Event(TENANT, key, name, PRODUCER, job_id(run.id), at, payload)


def _about(run: Run) -> dict[str, object]:
    return {"schedule_id": str(run.schedule_id), "run_id": str(run.id)}


def run_note(
    run: Run, message: str, *, level: str = "info", data: Mapping[str, object] | None = None
) -> WorkflowLogEntry:
    return WorkflowLogEntry(
        "automation",
        "automation_run",
        str(run.id),
        job_id(run.id),
        message,
        level=level,
        dagster_run_id=run.dagster_run_id,
        data=data or {},
    )
