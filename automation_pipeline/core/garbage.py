"""What a process does about memory that is no longer needed."""

import ctypes
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

# A transcript is thousands of objects: by Python's own measure it would be looked through several times.
OBJECTS_A_COLLECTION = 20_000
_M_ARENA_MAX = -8  # of glibc's malloc.h


@contextmanager
def no_search() -> Generator[None]:
    """The search for cyclic garbage rests while modules load: they make much that stays and next to nothing that goes.
    What is there at the end is not looked through again later either. Where the search is off already, it stays."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def settle_for_work() -> None:
    """A process that works has loaded what it needs: all of that stays, and need not be looked at again. Its threads
    share one heap: with one each, glibc keeps what any of them ever held, and memory grows as long as the work goes on.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS_A_COLLECTION)
    if sys.platform == "linux":
        # musl's malloc has one heap, and no such knob.
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, 1)
