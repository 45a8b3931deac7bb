"""Something done again and again in a thread beside the work, for as long as the work lasts."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import copy_context

from automation_pipeline.core.logs import log

_log = log(__name__)


@contextmanager
def repeating(act: Callable[[], None], seconds: float, complaint: str) -> Generator[None]:
    """At once, then every so many seconds. What fails is logged and tried again: it must never end the work."""
    ended = threading.Event()
    context = copy_context()
    thread = threading.Thread(
        target=lambda: context.run(_repeat, act, seconds, complaint, ended), daemon=True, name="beside"
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _repeat(act: Callable[[], None], seconds: float, complaint: str, ended: threading.Event) -> None:
    said = ""
    while not ended.is_set():
        try:
            act()
        except Exception as error:  # noqa: BLE001  the work itself finds out what is wrong
            if str(error) != said:
                _log.warning("%s: %s", complaint, error)
            said = str(error)
        else:
            said = ""
        ended.wait(seconds)
