"""`automation worker`: takes steps of runs from Celery, until it is told to stop."""

import os
import sys
from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import only_here
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import load_settings

# By its name alone: Dagster and Celery are known above this floor.
APP = "automation_pipeline.orchestration.celery"


def worker(
    *,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, help="Steps at the same time.", show_default="AUTOMATION_CELERY_CONCURRENCY, else 2"
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Its name among the workers; %h is the host.")] = "steps@%h",
) -> None:
    """Take steps of runs from Celery, with AUTOMATION_EXECUTOR=celery; the environment is that of Dagster's processes.

    SIGTERM lets the steps at work end first. Several on one host need names of their own.
    """
    only_here("worker")
    settings = load_settings()
    if settings.automation_executor != "celery":
        raise PermanentError(
            f"AUTOMATION_EXECUTOR is {settings.automation_executor}: a worker has work if it is celery."
        )
    if not (settings.automation_celery_broker_url or settings.redis_url):
        raise PermanentError("AUTOMATION_CELERY_BROKER_URL is not set, nor is REDIS_URL: one of them is the broker.")
    width = concurrency or settings.automation_celery_concurrency
    words = ["-A", APP, "worker", "--hostname", name, "--concurrency", str(width), "--loglevel", "WARNING"]
    os.execv(sys.executable, [sys.executable, "-m", "celery", *words])  # noqa: S606  no shell is wanted
