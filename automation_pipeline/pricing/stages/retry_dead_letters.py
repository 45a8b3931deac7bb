"""Try a project's dead letters again, run by run, as far as that can help."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError, sentence_of
from automation_pipeline.pricing.domain.retried_runs import RetriedRuns
from automation_pipeline.pricing.stages.report_dead_letters import report_dead_letters
from automation_pipeline.pricing.stages.retry_run import retry_run
from automation_pipeline.pricing.store.dead_letters import letters_by_run
from automation_pipeline.storage.database import Database


def retry_dead_letters(
    project_id: str, *, database: Database, clock: Clock, actor: str, force: bool = False
) -> RetriedRuns:
    """With `force` the hopeless too, whose cause was removed. A run that cannot be retried now is skipped, and said."""
    report_dead_letters(project_id, database=database, clock=clock, is_told=True)
    with database.reading() as session:
        by_run = letters_by_run(session, project_id, retryable_only=not force, now=clock.now())
    retried: list[int] = []
    skipped: dict[int, str] = {}
    for run_id, targets in by_run.items():
        try:
            retry_run(run_id, database=database, clock=clock, actor=actor, target_ids=targets, force=force)
        except PermanentError as refusal:
            skipped[run_id] = sentence_of(refusal)
        else:
            retried.append(run_id)
    return RetriedRuns(tuple(retried), skipped)
