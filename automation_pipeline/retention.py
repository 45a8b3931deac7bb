"""What is deleted once it is old, and the setting that says how old."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from automation_pipeline.audits.queries.requests import is_awaited_by_batch
from automation_pipeline.automation.queries import runs as automation
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.queries import maintenance as enrichment
from automation_pipeline.fiches.queries import fetch_jobs as fiches
from automation_pipeline.org_jobs.queries import health as org_jobs
from automation_pipeline.pricing.queries import monitoring as pricing
from automation_pipeline.storage import retention as storage
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.retention import BATCH, Kind, PurgePass, purge_expired
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests
from automation_pipeline.storage.statements import database_time
from automation_pipeline.transcription.queries import tasks as transcription

JOB = "housekeeping"
# The rows that each setting keeps, in the order of deletion.
KINDS: Mapping[str, Sequence[Kind]] = {
    "outbox_keep_days": (storage.PUBLISHED_EVENTS,),
    "outbox_parked_keep_days": (storage.PARKED_EVENTS,),
    "run_requests_keep_days": (storage.settled_requests(is_awaited_by_batch),),
    "idempotency_keys_keep_days": (storage.IDEMPOTENCY_KEYS,),
    "leases_keep_days": (
        storage.RELEASED_LEASES,
        storage.PAID_RATE_LIMITS,
        storage.SILENT_STEPS,
    ),
    "workflow_logs_keep_days": (storage.WORKFLOW_LOGS,),
    "automation_logs_keep_days": (automation.LOGS,),
    "automation_notifications_keep_days": (automation.NOTIFICATIONS,),
    "state_transitions_keep_days": (automation.MOVES, pricing.MOVES, enrichment.MOVES),
    "fetch_jobs_keep_days": (fiches.FETCH_JOBS,),
    "transcription_tasks_keep_days": (transcription.OLD_TASKS,),
    "pricing_alerts_keep_days": (pricing.ALERTS,),
    "enrichment_jobs_keep_days": (enrichment.JOBS,),
    "org_jobs_keep_days": org_jobs.JOBS,
    "org_jobs_audit_keep_days": (org_jobs.AUDIT_LOG,),
}
# SQLite serves the next writer that asks, not the one that waits longest: without a pause the purge
# would keep the others out.
PAUSE_SECONDS = 0.05
# A million rows of a kind; the rest is for the next night.
MOST_PASSES = 1000

# One pass over old rows; how many rows of each kind it deleted.
Chore = Callable[[PurgePass], dict[str, int]]


def request_housekeeping(services: Services) -> str:
    """The key of the request. Two requests within a millisecond are one."""
    now = services.clock.now()
    key = f"{JOB}-{round(now.timestamp() * 1000)}"
    with services.database.transaction() as session:
        file_requests(session, [NewRunRequest(key, JOB, {}, {})], now)
    return key


def chores_of(settings: Settings, database: Database) -> list[Chore]:
    return [
        partial(purge_expired, [(kind, getattr(settings, name))], database=database)
        for name, kinds in KINDS.items()
        for kind in kinds
    ]


async def purge_all(
    services: Services, *, is_dry: bool = False, batch: int = BATCH
) -> Mapping[str, int]:
    """How many rows of each kind were deleted, or would be. The first error is raised after the
    other kinds are done. The next purge continues one that broke off, and two at once delete each
    row once."""
    with services.database.reading() as session:
        # Of two clocks the earlier one: a clock that is ahead makes nothing old.
        now = min(services.clock.now(), database_time(session))
    look = PurgePass(now, batch, is_dry)
    deleted: Counter[str] = Counter()
    errors: list[AutomationError] = []
    for chore in chores_of(services.settings, services.database):
        try:
            await _repeat(chore, look, deleted)
        except AutomationError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return deleted


async def _repeat(chore: Chore, look: PurgePass, deleted: Counter[str]) -> None:
    for _ in range(MOST_PASSES):
        counts = chore(look)
        deleted.update(counts)
        if look.is_dry or max(counts.values(), default=0) < look.limit:
            return
        await asyncio.sleep(PAUSE_SECONDS)
