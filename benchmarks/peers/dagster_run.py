"""Executes one run of a Dagster job with its own instance on SQLite and default settings."""

import os
import sys
from argparse import Namespace

QUIET = {"loggers": {"console": {"config": {"log_level": "WARNING"}}}}
SETTINGS = "telemetry:\n  enabled: false\n"


def prepare(options: Namespace) -> None:
    """Must run before the peer's module `jobs` is imported."""
    home = options.folder / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(SETTINGS)
    os.environ.update(
        DAGSTER_HOME=str(home),
        PYTHONPATH=sys.path[0],
        PEER_UPSTREAM=options.upstream,
        PEER_FOLDER=str(options.folder),
        PEER_WIDTH=str(options.width),
    )


def run(name: str) -> None:
    import dagster as dg  # noqa: PLC0415  it reads its home when it is asked for an instance
    import jobs  # noqa: PLC0415  the contestant's own

    with dg.DagsterInstance.get() as instance:
        job = dg.reconstructable(getattr(jobs, name))
        result = dg.execute_job(job, instance=instance, run_config=QUIET)
    if not result.success:
        raise SystemExit("The Dagster run did not succeed.")
