"""Dagster with one mapped op per fiche on the community's asyncio executor: concurrent fiches in
one process."""

import time

STARTED = time.time()

import sys  # noqa: E402  the clock starts before the imports
from pathlib import Path  # noqa: E402

sys.path.append(str(Path(__file__).parents[1]))

from dagster_run import prepare, run  # noqa: E402
from one_fiche import parse, report  # noqa: E402

if __name__ == "__main__":
    given = parse()
    prepare(given)
    run("audit_day")
    report(given.folder, STARTED)
