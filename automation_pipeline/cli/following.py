"""Follow runs to their end, with bars for a person to watch. Ctrl-C stops the watching, not the runs."""

import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from automation_pipeline.audits.domain.audit import Standing as AuditStanding
from automation_pipeline.audits.domain.requests import Requested as Asked
from automation_pipeline.automation.domain.run import Phase, Run, RunStatus
from automation_pipeline.automation.stages.request_run import manual_run_key
from automation_pipeline.automation.store.progress import Progress as Advance
from automation_pipeline.cli.desk.ports import Desk, NeverBegun
from automation_pipeline.cli.output import screen
from automation_pipeline.cli.waiting import Waiting
from automation_pipeline.transcription.domain.requests import Requested
from automation_pipeline.transcription.domain.run import RunStatus as TranscriptionStatus
from automation_pipeline.transcription.domain.run import Standing

POLL_SECONDS = 0.5


def watch_run(run_id: int, desk: Desk, *, pause: threading.Event, quiet: bool, waits: Waiting | None = None) -> Run:
    """The ended run, with a bar for each phase."""
    waits = waits or Waiting(desk, [manual_run_key(run_id)])
    goes_on = f"Run {run_id} goes on without us: `automation runs show {run_id}` tells how it stands."
    run, advance = desk.runs.advance(run_id)
    with _watching(goes_on, quiet=quiet) as progress:
        bars = [progress.add_task("waiting for Dagster", total=None)]
        while True:
            for number, (label, done, total) in enumerate(phase_bars(run, advance)):
                if number == len(bars):
                    bars.append(progress.add_task(label, total=None))
                progress.update(bars[number], description=label, completed=done, total=total)
            if run.completed_at is not None:
                return run
            waits.look(begun=run.status != RunStatus.PENDING)
            pause.wait(POLL_SECONDS)
            run, advance = desk.runs.advance(run_id)


def phase_bars(run: Run, advance: Advance) -> list[tuple[str, int, int | None]]:
    """What each phase is called, how many fiches it has done, and of how many; None while nobody knows."""
    if run.phase is None:
        return []
    is_selected = run.phase is not Phase.SELECTION or run.completed_at is not None
    selected = run.selected_fiches if is_selected else None
    to_work = advance.to_work if advance.to_work or run.completed_at else None
    return [
        ("selection", selected or 0, selected),
        ("fetching", advance.fetched, selected),
        ("transcribing", advance.transcribed, to_work),
        (f"auditing ({advance.audits} audits)", advance.audited, to_work),
    ]


def follow_transcriptions(
    requested: Sequence[Requested], desk: Desk, *, pause: threading.Event, quiet: bool, waits: Waiting
) -> Mapping[str, Standing | NeverBegun]:
    """How the runs of the fiches ended, every one of them, by fiche: their own, or those that they joined."""
    goes_on = "The transcription goes on without us: `automation fiches show FICHE_ID` tells how its calls stand."
    asked_at = desk.clock.now()
    with _watching(goes_on, quiet=quiet) as progress:
        bars = {one.fiche_id: progress.add_task(f"fiche {one.fiche_id}: waiting", total=None) for one in requested}
        while True:
            now = desk.transcriptions.followed(requested, asked_at)
            for fiche_id, one in now.items():
                _advance_transcription(progress, bars[fiche_id], fiche_id, one)
            if len(now) == len(bars) and all(map(_is_over, now.values())):
                return {fiche_id: now[fiche_id] for fiche_id in bars}
            waits.look(begun=bool(now))
            pause.wait(POLL_SECONDS)


def follow_rerun(rerun_id: str, audit_id: int, desk: Desk, *, pause: threading.Event, quiet: bool) -> str | None:
    """None when what was found is stored, else why the rerun failed."""
    waits = Waiting(desk, [rerun_id])
    goes_on = f"The rerun goes on without us: `automation audits show {audit_id} --steps` tells what it finds."
    with _watching(goes_on, quiet=quiet) as progress:
        bar = progress.add_task("rerun: waiting for Dagster", total=1)
        while True:
            standing = desk.audits.rerun_standing(rerun_id)
            if standing.done:
                progress.update(bar, description="rerun: done", completed=1)
                return None
            if standing.error is not None:
                return standing.error
            if standing.begun:
                progress.update(bar, description="rerun: the model is asked")
            waits.look(begun=standing.begun)
            pause.wait(POLL_SECONDS)


def follow_audits(
    requested: Sequence[Asked], desk: Desk, *, pause: threading.Event, quiet: bool, waits: Waiting
) -> Mapping[str, AuditStanding | NeverBegun]:
    """How the audits ended, every one of them, by tracking id."""
    goes_on = "The audit goes on without us: `automation audits list` tells how it stands."
    with _watching(goes_on, quiet=quiet) as progress:
        bars = {one.tracking_id: progress.add_task(f"fiche {one.fiche_id}: waiting", total=None) for one in requested}
        while True:
            now = desk.audits.followed(requested)
            for tracking_id, audit in now.items():
                _advance_bar(progress, bars[tracking_id], audit)
            if len(now) == len(bars) and all(map(_is_over, now.values())):
                return now
            waits.look(begun=bool(now))
            pause.wait(POLL_SECONDS)


def _is_over(one: AuditStanding | Standing | NeverBegun) -> bool:
    if isinstance(one, Standing):
        return one.status != TranscriptionStatus.RUNNING
    return isinstance(one, NeverBegun) or one.is_over


def _advance_transcription(progress: Progress, bar: TaskID, fiche_id: str, one: Standing | NeverBegun) -> None:
    if isinstance(one, NeverBegun):
        progress.update(bar, description=f"fiche {fiche_id}: failed")
    else:
        label = f"fiche {fiche_id}: {one.status}"
        progress.update(bar, description=label, completed=one.transcribed, total=one.total)


def _advance_bar(progress: Progress, bar: TaskID, audit: AuditStanding | NeverBegun) -> None:
    if isinstance(audit, NeverBegun):
        progress.update(bar, description=f"fiche {audit.fiche_id}: failed")
    else:
        label = f"fiche {audit.fiche_id}: {audit.status}"
        progress.update(bar, description=label, completed=audit.done, total=audit.steps)


@contextmanager
def _watching(goes_on: str, *, quiet: bool) -> Generator[Progress]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=screen, disable=quiet) as progress:
            yield progress
    except KeyboardInterrupt:
        sys.stderr.write(f"{goes_on}\n")
        raise
