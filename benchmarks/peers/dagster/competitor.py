"""Dagster with one mapped op per fiche, on the executor `in_process` (one fiche at a time) or
`multiprocess`."""

import time

STARTED = time.time()

import os  # noqa: E402  the clock starts before the imports
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path.append(str(Path(__file__).parents[1]))

from dagster_run import prepare, run  # noqa: E402
from one_fiche import parse, report  # noqa: E402

EXECUTOR = os.environ.get("PEER_DAGSTER_EXECUTOR", "in_process")

if __name__ == "__main__":
    given = parse()
    prepare(given)
    run(EXECUTOR)
    report(given.folder, STARTED)
