"""What is removed once it is old, and by which package."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial

from automation_pipeline.audits.queries.requests import is_awaited_by_batch
from automation_pipeline.automation.runs import remove_old_logs
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.jobs import remove_old_jobs
from automation_pipeline.fiches.fetch_jobs import remove_old_fetch_jobs
from automation_pipeline.org_jobs.jobs import purge_old_jobs
from automation_pipeline.pricing.alerts import remove_old_alerts
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.retention import BATCH, PurgePass, RetentionDays, purge_storage
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests
from automation_pipeline.transcription.runs import delete_old_tasks

JOB = "housekeeping"


def ask_for_round(services: Services) -> str:
    """The key of the request. Who asks twice within a millisecond is answered once."""
    now = services.clock.now()
    key = f"{JOB}-{round(now.timestamp() * 1000)}"
    with services.database.transaction() as session:
        file_requests(session, [NewRunRequest(key, JOB, {}, {})], now)
    return key


# How many rows of each kind went.
Chore = Callable[[PurgePass], dict[str, int]]


def chores_of(settings: Settings, database: Database) -> Sequence[Chore]:
    moves = settings.state_transitions_keep_days
    return (
        partial(
            purge_storage, _ground(settings), database=database, awaited=(is_awaited_by_batch,)
        ),
        partial(
            remove_old_logs,
            keep_log_days=settings.automation_logs_keep_days,
            keep_notification_days=settings.automation_notifications_keep_days,
            keep_move_days=moves,
            database=database,
        ),
        partial(remove_old_fetch_jobs, keep_days=settings.fetch_jobs_keep_days, database=database),
        partial(
            delete_old_tasks, keep_days=settings.transcription_tasks_keep_days, database=database
        ),
        partial(
            remove_old_alerts,
            keep_days=settings.pricing_alerts_keep_days,
            keep_move_days=moves,
            database=database,
        ),
        partial(
            remove_old_jobs,
            keep_days=settings.enrichment_jobs_keep_days,
            keep_move_days=moves,
            database=database,
        ),
        partial(
            purge_old_jobs,
            keep_days=settings.org_jobs_keep_days,
            keep_audit_days=settings.org_jobs_audit_keep_days,
            database=database,
        ),
    )


def _ground(settings: Settings) -> RetentionDays:
    return RetentionDays(
        outbox=settings.outbox_keep_days,
        parked=settings.outbox_parked_keep_days,
        requests=settings.run_requests_keep_days,
        keys=settings.idempotency_keys_keep_days,
        leases=settings.leases_keep_days,
        logs=settings.workflow_logs_keep_days,
    )


# SQLite lets in who asks next, not who has waited longest: without a pause that would be us.
PAUSE_SECONDS = 0.05
# A million rows of a kind; what is left is for the next round.
MOST_LOOKS = 1000


async def go_round(services: Services, *, is_dry: bool, batch: int = BATCH) -> Mapping[str, int]:
    """How many rows of each kind went, or would. What fails in one room is raised after the others
    are through; a round that breaks off is gone on with by the next one, and two at once do each
    row once."""
    look = PurgePass(_earlier(services.clock, services.database), batch, is_dry)
    gone: Counter[str] = Counter()
    broken: list[AutomationError] = []
    for chore in chores_of(services.settings, services.database):
        try:
            await _see_to(chore, look, gone)
        except AutomationError as error:
            broken.append(error)
    if broken:
        raise broken[0]
    return gone


async def _see_to(chore: Chore, look: PurgePass, gone: Counter[str]) -> None:
    for _ in range(MOST_LOOKS):
        went = chore(look)
        gone.update(went)
        if look.is_dry or max(went.values(), default=0) < look.limit:
            return
        await asyncio.sleep(PAUSE_SECONDS)


def _earlier(clock: Clock, database: Database) -> datetime:
    """Of two clocks: one that is ahead makes nothing old."""
    with database.reading() as session:
        return min(clock.now(), database_time(session))
