"""What was asked for because somebody looked: once under a key, kept with the other answers."""

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.enrichment.domain.vocabulary import Trigger
from automation_pipeline.enrichment.store.requests import Asking
from automation_pipeline.enrichment.tables import JobRow


def note_opened(session: Session, key: str, asking: Asking, now: datetime) -> bool:
    """Whether it is the first time today."""
    siren = key.split(":", maxsplit=1)[0]
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    its = JobRow.company_siren == siren, JobRow.trigger == Trigger.REQUEST_OPENED, JobRow.created_at >= midnight
    return not session.scalar(select(func.count()).select_from(JobRow).where(*its)) and bool(asking.tenant_id)
