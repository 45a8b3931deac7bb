"""What was asked for already, for many fiches at once."""

from collections import Counter
from collections.abc import Sequence
from datetime import date

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.transcription.domain.requests import Asked
from automation_pipeline.transcription.domain.run import RunStatus
from automation_pipeline.transcription.tables import TranscriptionRunRow

JOB = "transcribe_fiche"


def asked_before(session: Session, fiche_ids: Sequence[str], day: date) -> dict[str, Asked]:
    """Four queries, however many fiches."""
    marker = f"-{day.isoformat()}"
    keys = session.execute(
        select(RunRequestRow.request_key, RunRequestRow.state).where(
            RunRequestRow.job == JOB, RunRequestRow.request_key.contains(marker)
        )
    ).tuples()
    states = [(key.removeprefix("transcribe-").partition(marker)[0], state) for key, state in keys]
    wishes = Counter(fiche_id for fiche_id, _ in states)
    under_way = {fiche_id for fiche_id, state in states if state == "waiting"} | set(live_runs(session, fiche_ids))
    lacking = _lacking(session, fiche_ids)
    mirrored = set(session.scalars(select(FicheCache.fiche_id).where(among(session, FicheCache.fiche_id, fiche_ids))))
    return {
        fiche_id: Asked(wishes[fiche_id], fiche_id in under_way, fiche_id in mirrored - lacking)
        for fiche_id in fiche_ids
    }


def live_runs(session: Session, fiche_ids: Sequence[str]) -> dict[str, str]:
    """The runs under way, by fiche."""
    live = TranscriptionRunRow.status == RunStatus.RUNNING
    query = select(TranscriptionRunRow.fiche_id, TranscriptionRunRow.id)
    chosen = among(session, TranscriptionRunRow.fiche_id, fiche_ids)
    return dict(session.execute(query.where(chosen, live)).tuples().all())


def _lacking(session: Session, fiche_ids: Sequence[str]) -> set[str]:
    lacks = (RecordingRow.vanished_at.is_(None), RecordingRow.has_transcription.is_(False))
    query = select(FicheCache.fiche_id).join(RecordingRow, RecordingRow.fiche_cache_id == FicheCache.id).distinct()
    return set(session.scalars(query.where(among(session, FicheCache.fiche_id, fiche_ids), *lacks)))
