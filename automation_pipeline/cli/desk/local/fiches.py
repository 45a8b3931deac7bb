"""Fiches and their transcripts by the stages and stores."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.ports import NeverBegun
from automation_pipeline.fiches.store.reading import fiche_document
from automation_pipeline.transcription.domain.requests import Requested
from automation_pipeline.transcription.domain.run import Priority, Standing
from automation_pipeline.transcription.stages.request_transcriptions import request_transcriptions
from automation_pipeline.transcription.store.followed import followed
from automation_pipeline.transcription.store.status import transcription_status


class LocalFiches:
    def __init__(self, services: Services) -> None:
        self._services = services

    def mirrored(self, fiche_id: str) -> Mapping[str, object]:
        with self._services.database.reading() as session:
            return {**fiche_document(session, fiche_id), "transcription": transcription_status(session, fiche_id)}


class LocalTranscriptions:
    def __init__(self, services: Services) -> None:
        self._services = services

    def request(self, fiche_ids: Sequence[str], priority: Priority) -> Sequence[Requested]:
        our = self._services
        return request_transcriptions(fiche_ids, priority=priority, batch=False, database=our.database, clock=our.clock)

    def followed(self, requested: Sequence[Requested], asked_at: datetime) -> Mapping[str, Standing | NeverBegun]:
        with self._services.database.reading() as session:
            found = followed(session, requested, asked_at)
        return {fiche_id: NeverBegun(fiche_id, one) if isinstance(one, str) else one for fiche_id, one in found.items()}
