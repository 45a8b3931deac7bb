"""The search for cyclic garbage rests while modules load: they make much that stays and next to nothing that goes."""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def no_search() -> Generator[None]:
    """What is there at the end is not looked through again later either. Where the search is off already, it stays."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
