"""Lines of the workflow log about a run, found by its id and by Dagster's."""

from collections.abc import Mapping

from automation_pipeline.automation.domain.events import job_id
from automation_pipeline.automation.domain.run import Run
from automation_pipeline.core.notes import Note


def run_note(run: Run, message: str, *, level: str = "info", data: Mapping[str, object] | None = None) -> Note:
    return Note(
        "automation",
        "automation_run",
        str(run.id),
        job_id(run.id),
        message,
        level=level,
        dagster_run_id=run.dagster_run_id,
        data=data or {},
    )
