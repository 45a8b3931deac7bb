"""Store how a job over days stands and tell of it, in one transaction: the realtime event, and the webhook if due."""

from datetime import date, datetime

from automation_pipeline.fiches.domain.fetch_events import event_of, is_told, webhook_body, word_of
from automation_pipeline.fiches.domain.fetch_job import FetchJob
from automation_pipeline.fiches.store.job_deliveries import add_delivery
from automation_pipeline.fiches.store.jobs import save_job
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.outbox import enqueue


def tell_of_job(session: Session, job: FetchJob, now: datetime, *, latest: date | None = None, every: int = 1) -> None:
    """`every` is after how many days the webhook hears of the progress; of the end it always does."""
    save_job(session, job, now)
    enqueue(session, [event_of(job, word_of(job), now, latest)])
    if job.webhook is not None and is_told(job, every):
        add_delivery(session, job.id, job.webhook.url, webhook_body(job, now, latest), now)
