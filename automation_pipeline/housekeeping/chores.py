"""Which room looks for what, and for how many days it is kept: the settings, given to each."""

from collections.abc import Callable, Sequence
from functools import partial

from automation_pipeline.audits.store.awaited import is_awaited_by_batch
from automation_pipeline.automation.stages.forget_old_logs import forget_old_logs
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.stages.forget_old_jobs import forget_old_jobs
from automation_pipeline.fiches.stages.forget_old_fetch_jobs import forget_old_fetch_jobs
from automation_pipeline.org_jobs.stages.purge_old_jobs import purge_old_jobs
from automation_pipeline.pricing.stages.forget_old_alerts import forget_old_alerts
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.old_rows import GroundDays, look_through_ground
from automation_pipeline.storage.retention import Look
from automation_pipeline.transcription.stages.forget_old_tasks import forget_old_tasks

# How many rows of each kind went.
Chore = Callable[[Look], dict[str, int]]


def chores_of(settings: Settings, database: Database) -> Sequence[Chore]:
    moves = settings.state_transitions_keep_days
    return (
        partial(look_through_ground, _ground(settings), database=database, awaited=(is_awaited_by_batch,)),
        partial(
            forget_old_logs,
            keep_log_days=settings.automation_logs_keep_days,
            keep_notification_days=settings.automation_notifications_keep_days,
            keep_move_days=moves,
            database=database,
        ),
        partial(forget_old_fetch_jobs, keep_days=settings.fetch_jobs_keep_days, database=database),
        partial(forget_old_tasks, keep_days=settings.transcription_tasks_keep_days, database=database),
        partial(
            forget_old_alerts, keep_days=settings.pricing_alerts_keep_days, keep_move_days=moves, database=database
        ),
        partial(forget_old_jobs, keep_days=settings.enrichment_jobs_keep_days, keep_move_days=moves, database=database),
        partial(
            purge_old_jobs,
            keep_days=settings.org_jobs_keep_days,
            keep_audit_days=settings.org_jobs_audit_keep_days,
            database=database,
        ),
    )


def _ground(settings: Settings) -> GroundDays:
    return GroundDays(
        outbox=settings.outbox_keep_days,
        parked=settings.outbox_parked_keep_days,
        requests=settings.run_requests_keep_days,
        keys=settings.idempotency_keys_keep_days,
        leases=settings.leases_keep_days,
        logs=settings.workflow_logs_keep_days,
    )
