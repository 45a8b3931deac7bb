"""What a process that works does about memory: what is loaded stays, and its threads share one
heap."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

COUNTED = """
import ctypes, gc, sys, threading
from automation_pipeline.core.background import tune_memory

tune_memory() if sys.argv[2] == "settled" else None
together = threading.Barrier(8)

def work():
    held = [bytearray(10_000) for _ in range(100)]
    together.wait(60)

threads = [threading.Thread(target=work) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
print(gc.get_freeze_count())
"""


def heaps_and_frozen(room: Path, form: str) -> tuple[int, int]:
    told = room / form
    ran = subprocess.run(
        [sys.executable, "-c", COUNTED, str(told), form], capture_output=True, text=True, check=True
    )
    return told.read_text().count("<heap nr="), int(ran.stdout)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc gives each thread a heap of its own"
)
def test_threads_of_a_process_that_works_share_one_heap(tmp_path: Path) -> None:
    assert heaps_and_frozen(tmp_path, "as it is")[0] > 1
    assert heaps_and_frozen(tmp_path, "settled")[0] == 1


def test_what_is_loaded_when_work_begins_is_not_looked_through_again(tmp_path: Path) -> None:
    assert heaps_and_frozen(tmp_path, "settled")[1] > 1000
