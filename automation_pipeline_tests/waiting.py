"""The one place where a test waits: for a condition, with a deadline."""

import threading
import time
from collections.abc import Callable

_LOOK_EVERY_SECONDS = 0.01


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"Not within {seconds} s: {condition}"
        pause(_LOOK_EVERY_SECONDS)


def pause(seconds: float) -> None:
    """For loops that give way to other processes, not for hoping that something has happened meanwhile."""
    threading.Event().wait(seconds)
