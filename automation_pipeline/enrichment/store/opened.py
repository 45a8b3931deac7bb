"""What was asked for because somebody looked at it."""

from datetime import datetime

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from automation_pipeline.enrichment.domain.vocabulary import Trigger
from automation_pipeline.enrichment.tables import JobRow


def was_asked_today(session: Session, siren: str, now: datetime) -> bool:
    """A job was made for the SIREN because somebody looked, since midnight (UTC)."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    its = JobRow.company_siren == siren, JobRow.trigger == Trigger.REQUEST_OPENED, JobRow.created_at >= midnight
    return session.scalar(select(exists().where(*its))) or False
