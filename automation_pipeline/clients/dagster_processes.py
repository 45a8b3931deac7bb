"""Dagster in processes of its own, so that a command line need not load it: a look at its state,
and work done here."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from threading import Thread
from typing import IO

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.launching import DagsterFacts

_ORCHESTRATION = "automation_pipeline.orchestration"


class ProbeProcess:
    """`core.launching.DagsterProbe`: a process that prints what it finds."""

    def __init__(self) -> None:
        self._facts: DagsterFacts | None = None
        self._begun = False

    def begin(self) -> None:
        if not self._begun:
            self._begun = True
            Thread(target=self._read, daemon=True).start()

    def facts(self) -> DagsterFacts | None:
        return self._facts

    def _read(self) -> None:
        command = [sys.executable, "-W", "ignore", "-m", f"{_ORCHESTRATION}.launch_probe"]
        with subprocess.Popen(  # noqa: S603  our own interpreter
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            for line in process.stdout or ():
                if line.startswith("{"):
                    self._facts = DagsterFacts(**json.loads(line))


class LocalWorker:
    """Executes the jobs of filed requests in a child process. Its log is kept apart and shown only
    as a reason."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._log: IO[str] = tempfile.TemporaryFile("w+", prefix="automation-here-")  # noqa: SIM115  closed with it
        command = [sys.executable, "-W", "ignore", "-m", f"{_ORCHESTRATION}.here", *keys]
        self._process = subprocess.Popen(  # noqa: S603  our own interpreter
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, text=True
        )
        self._seen_to_end = False

    def look(self) -> None:
        """PermanentError once it has ended and what it ended with has had the time to be seen in
        the database."""
        if self._process.poll() is None:
            return
        if self._seen_to_end:
            raise PermanentError(f"The work here ended without a result: {self._reason()}")
        self._seen_to_end = True

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
        """Until it has delivered its notifications too."""
        self._process.wait()

    def _reason(self) -> str:
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read()[-4000:].splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self._process.returncode}"
