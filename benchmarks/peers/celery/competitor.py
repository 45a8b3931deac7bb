"""Celery on Redis: a group with one task per fiche, and a worker process with a pool of threads."""

import time

STARTED = time.time()

import os  # noqa: E402  the clock starts before the imports
import subprocess  # noqa: E402
import sys  # noqa: E402
from argparse import Namespace  # noqa: E402
from pathlib import Path  # noqa: E402

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from one_fiche import parse, report  # noqa: E402

POOL = os.environ.get("PEER_CELERY_POOL", "threads")
QUIET_START = ("--without-mingle", "--without-gossip", "--loglevel", "WARNING")


def main(options: Namespace) -> None:
    os.environ.update(
        PEER_UPSTREAM=options.upstream,
        PEER_FOLDER=str(options.folder),
        PEER_WIDTH=str(options.width),
    )
    command = (sys.executable, "-m", "celery", "--app", "tasks", "worker", "--pool", POOL)
    with (options.folder / "worker.log").open("w") as log:
        width = ("--concurrency", str(options.width))
        worker = subprocess.Popen(
            (*command, *width, *QUIET_START), cwd=HERE, stdout=log, stderr=log
        )
        try:
            work_off()
        finally:
            worker.terminate()
            worker.wait()


def work_off() -> None:
    from celery import group  # noqa: PLC0415  while the worker starts
    from tasks import audit_fiche, results, upstream  # noqa: PLC0415

    group(audit_fiche.s(fiche_id) for fiche_id in upstream().fiches()).apply_async().get()
    results().close()


if __name__ == "__main__":
    given = parse()
    main(given)
    report(given.folder, STARTED)
