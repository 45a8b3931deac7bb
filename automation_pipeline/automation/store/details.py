"""What the mirror says of a run's fiches once their details were asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Select, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.storage.bulk import among, among_given
from automation_pipeline.storage.prepared import execute
from automation_pipeline.transcription.domain.run import RunStatus
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow

ABSENT = "Fiche not found in cache"
IN_SHORT = "Fiche details not fetched (still sales-list-only cache)"
INCOMPLETE = "Fiche details not fetched (cache incomplete)"


def groupes_of(session: Session, fiche_ids: Sequence[str]) -> Mapping[str, str | None]:
    query = select(FicheCache.fiche_id, FicheCache.groupe).where(among(session, FicheCache.fiche_id, fiche_ids))
    return dict(session.execute(query).tuples().all())


def why_without_details(session: Session, fiche_ids: Sequence[str]) -> Mapping[str, str]:
    """In the words that people know, for each of them."""
    query = select(FicheCache.fiche_id, FicheCache.raw_data).where(among(session, FicheCache.fiche_id, fiche_ids))
    raw = dict(session.execute(query).tuples().all())
    in_short = {fiche_id: bool(data.get("_salesListOnly")) for fiche_id, data in raw.items()}
    return {
        fiche_id: ABSENT if fiche_id not in raw else IN_SHORT if in_short[fiche_id] else INCOMPLETE
        for fiche_id in fiche_ids
    }


def untranscribed(
    session: Session, fiche_ids: Sequence[str], renew_before: datetime | None = None
) -> Mapping[str, int]:
    """How many recordings of each lack a transcript, or have one from before that instant; every fiche is answered for.
    Without the instant it counts on an index of untranscribed recordings only."""
    if renew_before is not None:
        old = or_(RecordingRow.transcribed_at.is_(None), RecordingRow.transcribed_at < renew_before)
        lacks = RecordingRow.vanished_at.is_(None) & or_(RecordingRow.has_transcription.is_(False), old)
        query = _lacking(lacks).where(among(session, FicheCache.fiche_id, fiche_ids))
        return dict(session.execute(query).tuples().all())
    return dict(execute(session, _untranscribed, {"fiches": fiche_ids}))


def _untranscribed(postgres: bool) -> Select[tuple[str, int]]:
    lacks = RecordingRow.vanished_at.is_(None) & RecordingRow.has_transcription.is_(False)
    return _lacking(lacks).where(among_given(FicheCache.fiche_id, "fiches", postgres=postgres))


def _lacking(lacks: ColumnElement[bool]) -> Select[tuple[str, int]]:
    return (
        select(FicheCache.fiche_id, func.count(RecordingRow.fiche_cache_id))
        .outerjoin(RecordingRow, (RecordingRow.fiche_cache_id == FicheCache.id) & lacks)
        .group_by(FicheCache.fiche_id)
    )


def why_untranscribed(session: Session, fiche_ids: Sequence[str]) -> dict[str, str]:
    """What the last recording of each was given up for."""
    query = (
        select(TranscriptionTaskRow.fiche_id, TranscriptionTaskRow.error)
        .where(among(session, TranscriptionTaskRow.fiche_id, fiche_ids), TranscriptionTaskRow.error.is_not(None))
        .order_by(TranscriptionTaskRow.id)
    )
    return {fiche_id: error for fiche_id, error in session.execute(query).tuples() if error}


def runs_over(session: Session, run_ids: Sequence[str]) -> Mapping[str, str | None]:
    """Those of the transcription runs that have ended, with why the run as a whole failed if it did."""
    over = TranscriptionRunRow.status != RunStatus.RUNNING
    query = select(TranscriptionRunRow.id, TranscriptionRunRow.error)
    return dict(session.execute(query.where(among(session, TranscriptionRunRow.id, run_ids), over)).tuples().all())


def is_audit_stored(session: Session, tracking_id: str) -> bool:
    return session.scalar(select(AuditRow.id).where(AuditRow.tracking_id == tracking_id)) is not None


@dataclass(frozen=True)
class AuditCounts:
    """Audits that a run has begun, the newest of each fiche and configuration. Those without a grade are failed."""

    begun: int
    completed: int
    failed: int

    @property
    def ended(self) -> int:
        return self.completed + self.failed


def audits_of_run(session: Session, run_id: int) -> AuditCounts:
    newer = aliased(AuditRow)
    alike = (AuditRow.automation_run_id, AuditRow.fiche_cache_id, AuditRow.audit_config_id)
    is_retried = exists().where(
        *(getattr(newer, column.key) == column for column in alike), newer.version > AuditRow.version
    )
    query = select(AuditRow.status, func.count()).where(AuditRow.automation_run_id == run_id, ~is_retried)
    counts = dict(session.execute(query.group_by(AuditRow.status)).tuples().all())
    completed = counts.get(AuditStatus.COMPLETED, 0)
    failed = counts.get(AuditStatus.FAILED, 0) + counts.get(AuditStatus.INCOMPLETE, 0)
    return AuditCounts(sum(counts.values()), completed, failed)
