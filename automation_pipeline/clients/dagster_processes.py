"""Dagster in child processes, so that the command line need not import it: a probe of its state, and
the execution of jobs."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from threading import Thread
from typing import IO

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.launching import DagsterFacts

_COMMAND = [sys.executable, "-W", "ignore", "-m", "automation_pipeline.orchestration.processes"]


class ProbeProcess:
    """Implements `core.launching.DagsterProbe`: a child process prints the facts."""

    def __init__(self) -> None:
        self._facts: DagsterFacts | None = None
        self._is_started = False

    def begin(self) -> None:
        if not self._is_started:
            self._is_started = True
            Thread(target=self._read, daemon=True).start()

    def facts(self) -> DagsterFacts | None:
        return self._facts

    def _read(self) -> None:
        with subprocess.Popen(  # noqa: S603  this interpreter
            [*_COMMAND, "probe"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            for line in process.stdout or ():
                if line.startswith("{"):
                    self._facts = DagsterFacts(**json.loads(line))


class LocalWorker:
    """Executes the jobs of run requests in a child process. Only the last line of its log is shown, as
    the reason of a failure."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._log: IO[str] = tempfile.TemporaryFile("w+", prefix="automation-here-")  # noqa: SIM115  closed with it
        self._process = subprocess.Popen(  # noqa: S603  this interpreter
            [*_COMMAND, "execute", *keys],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            text=True,
        )
        self._has_ended = False

    def check(self) -> None:
        """Raises PermanentError at the second call after the process ended: after the first call, the
        caller reads the database once more."""
        if self._process.poll() is None:
            return
        if self._has_ended:
            self._log.seek(0)
            lines = [line.strip() for line in self._log.read()[-4000:].splitlines() if line.strip()]
            reason = lines[-1] if lines else f"exit code {self._process.returncode}"
            raise PermanentError(f"The work here ended without a result: {reason}")
        self._has_ended = True

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    def wait(self) -> None:
        """Waits for the end of the process, which includes its notifications."""
        self._process.wait()
