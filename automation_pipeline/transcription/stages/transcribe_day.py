"""Transcribe what the fiches sold on a day lack."""

import uuid
from collections.abc import Callable
from datetime import date

from automation_pipeline.core.clock import Clock
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.domain.day import DayTranscripts
from automation_pipeline.transcription.domain.run import Priority
from automation_pipeline.transcription.ports import Provider
from automation_pipeline.transcription.stages.begin_transcription import Wish
from automation_pipeline.transcription.stages.transcribe_fiches import transcribe_fiches
from automation_pipeline.transcription.store.days import fiches_to_transcribe, transcripts_of


async def transcribe_day(
    day: date,
    *,
    database: Database,
    source: Callable[[], FicheSource],
    provider: Callable[[], Provider],
    clock: Clock,
    owner: str,
) -> DayTranscripts:
    """How the day stands afterwards. Work of the day gives way to what people ask for by hand."""
    with database.reading() as session:
        fiche_ids = fiches_to_transcribe(session, day)
    wishes = [Wish(str(uuid.uuid4()), fiche_id, Priority.LOW) for fiche_id in fiche_ids]
    await transcribe_fiches(wishes, database=database, source=source, provider=provider, clock=clock, owner=owner)
    with database.reading() as session:
        return transcripts_of(session, day)
