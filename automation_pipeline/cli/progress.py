"""Commands that follow the work that they request: --wait, --timeout, --here, progress bars, and the
reason why work does not start."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Generic, Protocol, Self, TypeVar, cast

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from automation_pipeline import bootstrap, cli
from automation_pipeline.cli.operations import RemoteApi, remote_api, require_local_machine
from automation_pipeline.cli.output import screen
from automation_pipeline.core.launching import (
    DagsterProbe,
    LaunchFacts,
    NotStartedError,
    launch_obstacle,
)
from automation_pipeline.storage.monitoring import DAEMON, seconds_since_heartbeat
from automation_pipeline.storage.run_requests import hold_requests, launch_states

POLL_SECONDS = 0.5
PROBE_AFTER_SECONDS = 2.0
# Counted from the start of the process, which takes seconds on a busy machine, so that the reason
# appears within 15 seconds.
START_TIMEOUT_SECONDS = 12.0
# Counted from the request, so that a daemon has time to react however slow the start was.
MIN_START_TIMEOUT_SECONDS = 5.0

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
    """Whether the command follows what it requests.

    Raises InvalidInputError for --here together with --api.
    """
    if here:
        require_local_machine(f"{command} --here")
    return wait or here or timeout is not None


def pause() -> None:
    threading.Event().wait(POLL_SECONDS)


class Worker(Protocol):
    """Does the requested work in this process."""

    def check(self) -> None:
        """Raises an error if the work has ended without a result."""
        ...

    def wait(self) -> None: ...
    def close(self) -> None: ...


class LaunchWait:
    """Waits for requested work, and raises an error with the reason if it does not start.

    `keys` are the keys of the run requests. `why` returns a reason that takes precedence over those
    of Dagster. `worker` does the work in this process.
    """

    def __init__(
        self,
        keys: Sequence[str] = (),
        *,
        timeout: float | None = None,
        worker: Worker | None = None,
        why: Callable[[], NotStartedError | None] | None = None,
    ) -> None:
        self._keys, self._timeout, self._worker, self._why = keys, timeout, worker, why
        self._clock = bootstrap.services().clock
        self._since: datetime = self._clock.now()
        self._probe: DagsterProbe | None = None
        left = START_TIMEOUT_SECONDS - (time.monotonic() - cli.STARTED_AT)
        self._start_timeout_seconds = min(
            START_TIMEOUT_SECONDS, max(left, MIN_START_TIMEOUT_SECONDS)
        )

    def pause(self, *, has_started: bool) -> None:
        """Wait until the next poll. Raises NotStartedError when waiting is pointless."""
        waited = (self._clock.now() - self._since).total_seconds()
        if self._worker is not None:
            self._worker.check()
        elif not has_started:
            self._check_start(waited)
        if self._timeout is not None and waited >= self._timeout:
            rest = "" if self._worker else "; the work continues without this command"
            message = f"Not done within {self._timeout:g} s{rest}."
            raise NotStartedError("TIMEOUT", message, {"requests": list(self._keys)})
        pause()

    def _check_start(self, waited: float) -> None:
        api = remote_api()
        if api is None and self._probe is None and waited >= PROBE_AFTER_SECONDS:
            self._probe = bootstrap.services().dagster_probe()
            self._probe.begin()
        if waited < self._start_timeout_seconds:
            return
        missing = self._why() if self._why else None
        if missing is None:
            missing = self._local_obstacle(waited) if api is None else remote_obstacle(api)
        if missing is not None:
            reason = str(missing).rstrip(".")
            message = f"Nothing has started within {round(waited)} s. {reason}."
            details = {"requests": list(self._keys), **missing.details}
            raise NotStartedError(missing.code, message, details)

    def _local_obstacle(self, waited: float) -> NotStartedError | None:
        with bootstrap.services().database.reading() as session:
            requests = launch_states(session, self._keys)
            tick = seconds_since_heartbeat(session, DAEMON)
        dagster = self._probe.facts() if self._probe else None
        return launch_obstacle(LaunchFacts(requests, tick, dagster, waited))


def remote_obstacle(api: RemoteApi) -> NotStartedError | None:
    """Return the error of the daemon check of another machine, or None if the check succeeds."""
    answer = api.call("GET", "/health/ready", query={}, body=None, repeatable=True)
    for check in cast("Sequence[Mapping[str, object]]", answer.get("checks") or ()):
        if check.get("name") == "daemon" and check.get("state") == "failed":
            detail = str(check.get("detail", "")).rstrip(".")
            return NotStartedError("NO_DAEMON", f"Dagster's daemon there {detail}")
    return None


@contextmanager
def waiting(
    keys: Sequence[str], *, timeout: float | None = None, here: bool = False
) -> Generator[LaunchWait]:
    """Wait for requested work. With `here`, this process does it while the block runs, except for
    requests that a daemon has already received.
    """
    if not here:
        yield LaunchWait(keys, timeout=timeout)
        return
    services = bootstrap.services()
    with services.database.transaction() as session:
        held = hold_requests(session, keys, f"{socket.gethostname()}:{os.getpid()}")
    worker = services.local_worker(held)
    try:
        yield LaunchWait(keys, timeout=timeout, worker=worker)
        worker.wait()
    finally:
        worker.close()


@contextmanager
def progress_bars(
    on_interrupt: str,
    *,
    quiet: bool,
    time_column: ProgressColumn | None = None,
    transient: bool = False,
) -> Generator[Progress]:
    """Show progress bars. On Ctrl-C, print `on_interrupt`, which says that the work continues."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        time_column or TimeElapsedColumn(),
    )
    try:
        with Progress(
            *columns, console=screen, disable=quiet, transient=transient, speed_estimate_period=30
        ) as progress:
            yield progress
    except KeyboardInterrupt:
        sys.stderr.write(f"{on_interrupt}\n")
        raise


Status = TypeVar("Status")
KEYS_AT_ONCE = 50


@dataclass(frozen=True)
class FollowedRequest(Generic[Status]):
    """A request with its status, which the API calls `standing`. `standing` and `refused` are None while
    the request waits."""

    key: str
    fiche_id: str
    standing: Status | None
    refused: str | None

    @classmethod
    def of(cls, key: str, fiche_id: str, found: Status | str | None) -> Self:
        """`found` is the status, or the reason of a refusal."""
        if isinstance(found, str):
            return cls(key, fiche_id, None, found)
        return cls(key, fiche_id, found, None)


def follow_requests(
    fiches: Mapping[str, str],
    statuses: Callable[[Sequence[str]], Sequence[FollowedRequest[Status]]],
    bar: Callable[[Status], tuple[str, int, int, bool]],
    *,
    on_interrupt: str,
    quiet: bool,
    waits: LaunchWait,
) -> Sequence[FollowedRequest[Status]]:
    """Return the ended requests in the order of `fiches`, which maps request keys to fiches.

    `bar` returns the label of a status, the amount done, the total, and whether the work has ended.
    """
    keys = list(fiches)
    with progress_bars(on_interrupt, quiet=quiet) as progress:
        bars = {key: progress.add_task(f"fiche {fiches[key]}: waiting", total=None) for key in keys}
        while True:
            started = 0
            ended: dict[str, FollowedRequest[Status]] = {}
            for start in range(0, len(keys), KEYS_AT_ONCE):
                for one in statuses(keys[start : start + KEYS_AT_ONCE]):
                    label, done, total, is_over = "waiting", 0, None, False
                    if one.refused is not None:
                        label, is_over = "failed", True
                    elif one.standing is not None:
                        label, done, total, is_over = bar(one.standing)
                    description = f"fiche {one.fiche_id}: {label}"
                    progress.update(
                        bars[one.key], description=description, completed=done, total=total
                    )
                    started += one.refused is not None or one.standing is not None
                    if is_over:
                        ended[one.key] = one
            if len(ended) == len(keys):
                return [ended[key] for key in keys]
            waits.pause(has_started=started > 0)
