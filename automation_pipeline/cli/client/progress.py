"""Following work to its end: progress bars, `--wait`, and the reason why nothing begins."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated

import typer

from automation_pipeline import cli
from automation_pipeline.cli.client.ports import Client, Worker
from automation_pipeline.cli.operations import only_here
from automation_pipeline.core.launching import NotStartedError

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


class _LaunchWait:
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


LaunchWait = _LaunchWait


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
