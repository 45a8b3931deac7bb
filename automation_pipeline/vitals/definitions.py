"""Whether Dagster can load the definitions: a process of its own tells, one at a time and once a minute."""

import subprocess
import sys
import threading
import time

from automation_pipeline.core.errors import PermanentError

SECONDS = 45.0
GOOD_FOR_SECONDS = 60.0
_COMMAND = [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "automation_pipeline.definitions"]


class _Look:
    """The last look and when it was."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._at: float | None = None
        self._fault: str | None = None

    def fault(self) -> str | None:
        with self._turn:
            if self._at is None or time.monotonic() - self._at > GOOD_FOR_SECONDS:
                self._fault = _fault()
                self._at = time.monotonic()
            return self._fault


def check_definitions() -> None:
    """PermanentError with the last line of what Dagster says about them."""
    fault = _look.fault()
    if fault is not None:
        raise PermanentError(f"the definitions do not load: {fault}")


def _fault() -> str | None:
    try:
        ended = subprocess.run(_COMMAND, capture_output=True, text=True, check=False, timeout=SECONDS)  # noqa: S603  our own interpreter
    except subprocess.TimeoutExpired:
        return f"Dagster took longer than {SECONDS:g} s"
    if ended.returncode == 0:
        return None
    return (ended.stderr.strip().splitlines() or ["no output"])[-1]


_look = _Look()
