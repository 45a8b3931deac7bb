"""Memory of a process that runs work: garbage collection in the process, heaps in the image."""

import re
import subprocess
import sys

from automation_pipeline_tests.e2e.system import REPOSITORY

COLLECTION = """
import gc
from automation_pipeline.core.background import tune_gc

tune_gc()
print(gc.get_freeze_count(), gc.get_threshold()[0])
"""


def test_loaded_objects_are_exempt_from_collection() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", COLLECTION], capture_output=True, text=True, check=True
    )
    frozen, threshold = map(int, ended.stdout.split())
    assert frozen > 1000
    assert threshold == 20_000


def test_the_image_gives_all_threads_one_heap() -> None:
    dockerfile = (REPOSITORY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^\s+MALLOC_ARENA_MAX=1\b", dockerfile, re.MULTILINE)
