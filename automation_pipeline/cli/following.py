"""Follow runs to their end, with bars for a person to watch. Ctrl-C stops the watching, not the runs."""

import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

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
from automation_pipeline.audits.store.standings import standings as audit_standings
from automation_pipeline.audits.store.trails import has_rerun
from automation_pipeline.automation.domain.run import Phase, Run, RunStatus
from automation_pipeline.automation.store.progress import Progress as Advance
from automation_pipeline.automation.store.progress import progress_of
from automation_pipeline.automation.store.runs import get_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.output import screen
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.storage.run_requests import refusals, taken
from automation_pipeline.transcription.domain.requests import Requested
from automation_pipeline.transcription.domain.run import RunStatus as TranscriptionStatus
from automation_pipeline.transcription.domain.run import Standing
from automation_pipeline.transcription.store.runs import last_runs_of, standings

POLL_SECONDS = 0.5
# Dagster's daemon looks for requests every few seconds.
PATIENCE = timedelta(seconds=15)
NO_DAEMON = "Nothing has begun yet: Dagster's daemon does not seem to run (`dagster dev` starts it)."


def watch_run(run_id: int, services: Services, *, pause: threading.Event, quiet: bool) -> Run:
    """The ended run, however long it takes, with a bar for each phase."""
    goes_on = f"Run {run_id} goes on without us: `automation runs show {run_id}` tells how it stands."
    run, advance = _advance(run_id, services)
    with _watching(goes_on, quiet=quiet) as progress:
        bars = [progress.add_task("waiting for Dagster", total=None)]
        patience = Patience(progress, services.clock, services.clock.now())
        while True:
            for number, (label, done, total) in enumerate(phase_bars(run, advance)):
                if number == len(bars):
                    bars.append(progress.add_task(label, total=None))
                progress.update(bars[number], description=label, completed=done, total=total)
            if run.completed_at is not None:
                return run
            patience.look(begun=run.status != RunStatus.PENDING)
            pause.wait(POLL_SECONDS)
            run, advance = _advance(run_id, services)


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
    requested: Sequence[Requested], services: Services, *, pause: threading.Event, quiet: bool
) -> Mapping[str, Standing]:
    """How the runs of the fiches ended, by fiche: their own, or those that they joined."""
    goes_on = "The transcription goes on without us: `automation fiches show FICHE_ID` tells how its calls stand."
    asked_at = services.clock.now()
    with _watching(goes_on, quiet=quiet) as progress:
        bars = {one.fiche_id: progress.add_task(f"fiche {one.fiche_id}: waiting", total=None) for one in requested}
        patience = Patience(progress, services.clock, asked_at)
        while True:
            now = _transcriptions(requested, asked_at, services)
            for fiche_id, standing in now.items():
                label = f"fiche {fiche_id}: {standing.status}"
                progress.update(bars[fiche_id], description=label, completed=standing.transcribed, total=standing.total)
            if len(now) == len(bars) and all(one.status != TranscriptionStatus.RUNNING for one in now.values()):
                return now
            patience.look(begun=bool(now))
            pause.wait(POLL_SECONDS)


def follow_rerun(
    rerun_id: str, audit_id: int, services: Services, *, pause: threading.Event, quiet: bool
) -> str | None:
    """None when what was found is stored, else why the rerun failed."""
    goes_on = f"The rerun goes on without us: `automation audits show {audit_id} --steps` tells what it finds."
    with _watching(goes_on, quiet=quiet) as progress:
        bar = progress.add_task("rerun: waiting for Dagster", total=1)
        patience = Patience(progress, services.clock, services.clock.now())
        while True:
            with services.database.reading() as session:
                done, begun = has_rerun(session, rerun_id), bool(taken(session, [rerun_id]))
                refused = refusals(session, [rerun_id])
            if done:
                progress.update(bar, description="rerun: done", completed=1)
                return None
            if refused:
                return refused[rerun_id]
            if begun:
                progress.update(bar, description="rerun: the model is asked")
            patience.look(begun=begun)
            pause.wait(POLL_SECONDS)


@dataclass(frozen=True)
class NeverBegun:
    """What became of an audit whose request came to nothing."""

    fiche_id: str
    error: str


def follow_audits(
    requested: Sequence[Asked], services: Services, *, pause: threading.Event, quiet: bool
) -> Mapping[str, AuditStanding | NeverBegun]:
    """How the audits ended, every one of them, by tracking id."""
    goes_on = "The audit goes on without us: `automation audits list` tells how it stands."
    with _watching(goes_on, quiet=quiet) as progress:
        bars = {one.tracking_id: progress.add_task(f"fiche {one.fiche_id}: waiting", total=None) for one in requested}
        patience = Patience(progress, services.clock, services.clock.now())
        while True:
            now = _audits(requested, services)
            for tracking_id, audit in now.items():
                _advance_bar(progress, bars[tracking_id], audit)
            if len(now) == len(bars) and all(isinstance(audit, NeverBegun) or audit.is_over for audit in now.values()):
                return now
            patience.look(begun=bool(now))
            pause.wait(POLL_SECONDS)


def _audits(requested: Sequence[Asked], services: Services) -> Mapping[str, AuditStanding | NeverBegun]:
    """Those that have begun or never will, in the order in which they were asked for."""
    tracking_ids = [one.tracking_id for one in requested]
    with services.database.reading() as session:
        refused = refusals(session, tracking_ids)
        found = audit_standings(session, tracking_ids)
    return {
        key: found.get(key) or NeverBegun(one.fiche_id, refused[key])
        for one in requested
        if (key := one.tracking_id) in found or key in refused
    }


def _advance_bar(progress: Progress, bar: TaskID, audit: AuditStanding | NeverBegun) -> None:
    if isinstance(audit, NeverBegun):
        progress.update(bar, description=f"fiche {audit.fiche_id}: failed")
    else:
        label = f"fiche {audit.fiche_id}: {audit.status}"
        progress.update(bar, description=label, completed=audit.done, total=audit.steps)


def _transcriptions(requested: Sequence[Requested], asked_at: datetime, services: Services) -> Mapping[str, Standing]:
    """What works on the fiches: the run promised, or, once Dagster has taken the wish, the one that it joined."""
    keys = [one.key for one in requested if one.key]
    with services.database.reading() as session:
        refused = refusals(session, keys)
        begun = taken(session, keys)
        promised = {one.fiche_id: one for one in standings(session, [cast("str", one.run_id) for one in requested])}
        joining = [one.fiche_id for one in requested if one.key in begun and one.fiche_id not in promised]
        joined = last_runs_of(session, joining, asked_at)
    if refused:
        raise PermanentError(next(iter(refused.values())))
    return {**joined, **promised}


@dataclass
class Patience:
    """Says once, to a person, that nothing begins."""

    progress: Progress
    clock: Clock
    since: datetime
    spent: bool = False

    def look(self, *, begun: bool) -> None:
        if begun or self.spent or self.progress.disable or self.clock.now() - self.since <= PATIENCE:
            return
        self.spent = True
        self.progress.print(NO_DAEMON, highlight=False)


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


def _advance(run_id: int, services: Services) -> tuple[Run, Advance]:
    with services.database.reading() as session:
        return get_run(session, run_id), progress_of(session, run_id)
