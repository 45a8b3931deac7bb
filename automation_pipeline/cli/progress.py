"""Following work to its end: progress bars, `--wait`, and the reason why nothing begins."""

import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from automation_pipeline import cli
from automation_pipeline.audits.models.audits import AuditSummary as AuditStanding
from automation_pipeline.audits.models.audits import RequestedAudit as Asked
from automation_pipeline.automation.models.runs import Phase, Run, RunStatus
from automation_pipeline.automation.queries.run_details import RunProgress as Advance
from automation_pipeline.automation.runs import manual_run_key
from automation_pipeline.cli.client.ports import Client, NeverStarted, Worker
from automation_pipeline.cli.client.target import only_here
from automation_pipeline.cli.output import screen
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.transcription.models import (
    RequestedTranscription,
    TranscriptionStatus,
    TranscriptionSummary,
)

PROBE_AFTER_SECONDS = 2.0
# From the start of the command, which a busy machine makes slow: the reason is due within 15
# seconds.
PATIENCE_SECONDS = 12.0
# From the request, however slow the start was: time for a daemon to show itself.
LEAST_PATIENCE_SECONDS = 5.0

Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0, metavar="SECONDS", help="Wait at most this long; implies --wait."
    ),
]
Here = Annotated[
    bool,
    typer.Option(
        "--here", help="Do the work in this terminal, without Dagster's daemon; implies --wait."
    ),
]


def follows(command: str, *, wait: bool, timeout: float | None, here: bool) -> bool:
    """Whether the command follows what it asks for. InvalidInputError: the work cannot be done
    here."""
    if here:
        only_here(f"{command} --here")
    return wait or here or timeout is not None


class LaunchWait:
    """`why` knows reasons of its own for which work does not begin. `worker` does the work here."""

    def __init__(
        self,
        client: Client,
        keys: Sequence[str] = (),
        *,
        timeout: float | None = None,
        worker: Worker | None = None,
        why: Callable[[], NotStartedError | None] | None = None,
    ) -> None:
        self._client, self._keys, self._timeout, self._worker, self._why = (
            client,
            keys,
            timeout,
            worker,
            why,
        )
        self._since: datetime = client.clock.now()
        left = PATIENCE_SECONDS - (time.monotonic() - cli.STARTED_AT)
        self._patience_seconds = min(PATIENCE_SECONDS, max(left, LEAST_PATIENCE_SECONDS))

    def look(self, *, begun: bool) -> None:
        """Once per round that has not seen the end. NothingBeginsError says why to stop waiting."""
        waited = (self._client.clock.now() - self._since).total_seconds()
        if self._worker is not None:
            self._worker.look()
        elif not begun:
            self._look_for_what_is_missing(waited)
        if self._timeout is not None and waited >= self._timeout:
            rest = "" if self._worker else "; the work goes on without this command"
            message = f"Not done within {self._timeout:g} s{rest}."
            raise NotStartedError("TIMEOUT", message, {"requests": list(self._keys)})

    def _look_for_what_is_missing(self, waited: float) -> None:
        if waited >= PROBE_AFTER_SECONDS:
            self._client.launching.probe()
        if waited < self._patience_seconds:
            return
        missing = (self._why and self._why()) or self._client.launching.missing(self._keys, waited)
        if missing is None:
            return
        message = f"Nothing has begun within {round(waited)} s. {str(missing).rstrip('.')}."
        raise NotStartedError(
            missing.code, message, {"requests": list(self._keys), **missing.details}
        )


@contextmanager
def waiting(
    client: Client, keys: Sequence[str], *, timeout: float | None = None, here: bool = False
) -> Generator[LaunchWait]:
    """With `here` the work is done by this command for as long as the block lasts."""
    if not here:
        yield LaunchWait(client, keys, timeout=timeout)
        return
    worker = client.launching.work_here(keys)
    try:
        yield LaunchWait(client, keys, timeout=timeout, worker=worker)
        worker.wait()
    finally:
        worker.close()


POLL_SECONDS = 0.5


def watch_run(
    run_id: int,
    client: Client,
    *,
    pause: threading.Event,
    quiet: bool,
    waits: LaunchWait | None = None,
) -> Run:
    """The ended run, with a bar for each phase."""
    waits = waits or LaunchWait(client, [manual_run_key(run_id)])
    goes_on = (
        f"Run {run_id} goes on without us: `automation runs show {run_id}` tells how it stands."
    )
    run, advance = client.runs.advance(run_id)
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
            run, advance = client.runs.advance(run_id)


def phase_bars(run: Run, advance: Advance) -> list[tuple[str, int, int | None]]:
    """What each phase is called, how many fiches it has done, and of how many; None while nobody
    knows."""
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
    requested: Sequence[RequestedTranscription],
    client: Client,
    *,
    pause: threading.Event,
    quiet: bool,
    waits: LaunchWait,
) -> Mapping[str, TranscriptionSummary | NeverStarted]:
    """How the runs of the fiches ended, every one of them, by fiche: their own, or those that they
    joined."""
    goes_on = "The transcription goes on without us: `automation fiches show FICHE_ID` tells how its calls stand."
    asked_at = client.clock.now()
    with _watching(goes_on, quiet=quiet) as progress:
        bars = {
            one.fiche_id: progress.add_task(f"fiche {one.fiche_id}: waiting", total=None)
            for one in requested
        }
        while True:
            now = client.transcriptions.followed(requested, asked_at)
            for fiche_id, one in now.items():
                _advance_transcription(progress, bars[fiche_id], fiche_id, one)
            if len(now) == len(bars) and all(map(_is_over, now.values())):
                return {fiche_id: now[fiche_id] for fiche_id in bars}
            waits.look(begun=bool(now))
            pause.wait(POLL_SECONDS)


def follow_rerun(
    rerun_id: str, audit_id: int, client: Client, *, pause: threading.Event, quiet: bool
) -> str | None:
    """None when what was found is stored, else why the rerun failed."""
    waits = LaunchWait(client, [rerun_id])
    goes_on = f"The rerun goes on without us: `automation audits show {audit_id} --steps` tells what it finds."
    with _watching(goes_on, quiet=quiet) as progress:
        bar = progress.add_task("rerun: waiting for Dagster", total=1)
        while True:
            standing = client.audits.rerun_standing(rerun_id)
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
    requested: Sequence[Asked],
    client: Client,
    *,
    pause: threading.Event,
    quiet: bool,
    waits: LaunchWait,
) -> Mapping[str, AuditStanding | NeverStarted]:
    """How the audits ended, every one of them, by tracking id."""
    goes_on = "The audit goes on without us: `automation audits list` tells how it stands."
    with _watching(goes_on, quiet=quiet) as progress:
        bars = {
            one.tracking_id: progress.add_task(f"fiche {one.fiche_id}: waiting", total=None)
            for one in requested
        }
        while True:
            now = client.audits.followed(requested)
            for tracking_id, audit in now.items():
                _advance_bar(progress, bars[tracking_id], audit)
            if len(now) == len(bars) and all(map(_is_over, now.values())):
                return now
            waits.look(begun=bool(now))
            pause.wait(POLL_SECONDS)


def _is_over(one: AuditStanding | TranscriptionSummary | NeverStarted) -> bool:
    if isinstance(one, TranscriptionSummary):
        return one.status != TranscriptionStatus.RUNNING
    return isinstance(one, NeverStarted) or one.is_over


def _advance_transcription(
    progress: Progress, bar: TaskID, fiche_id: str, one: TranscriptionSummary | NeverStarted
) -> None:
    if isinstance(one, NeverStarted):
        progress.update(bar, description=f"fiche {fiche_id}: failed")
    else:
        label = f"fiche {fiche_id}: {one.status}"
        progress.update(bar, description=label, completed=one.transcribed, total=one.total)


def _advance_bar(progress: Progress, bar: TaskID, audit: AuditStanding | NeverStarted) -> None:
    if isinstance(audit, NeverStarted):
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
