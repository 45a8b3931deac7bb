"""Queries about the fiches of a run in the mirror: candidates, details, transcripts, audits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Select, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.audits.models.audits import AuditStatus
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.automation.models.selections import FicheCandidate
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.statements import among
from automation_pipeline.transcription.models import TranscriptionStatus
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow

# An incomplete audit has no result: the next run completes it.
_AUDITED = exists().where(
    AuditRow.fiche_cache_id == FicheCacheRow.id,
    AuditRow.is_latest,
    AuditRow.status != AuditStatus.INCOMPLETE,
)


def fiches_of_days(session: Session, days: Sequence[date]) -> list[FicheCandidate]:
    """Fiches sold on the days, the oldest day first."""
    sold = among(session, FicheCacheRow.sales_date, [day.isoformat() for day in days])
    return _as_candidates(
        session, _mirrored().where(sold).order_by(FicheCacheRow.sales_date, FicheCacheRow.fiche_id)
    )


def fiches_named(session: Session, fiche_ids: Sequence[str]) -> list[FicheCandidate]:
    """In the given order; a fiche that is not mirrored has only its id."""
    found = _as_candidates(
        session, _mirrored().where(among(session, FicheCacheRow.fiche_id, fiche_ids))
    )
    known = {candidate.fiche_id: candidate for candidate in found}
    return [known.get(fiche_id, FicheCandidate(fiche_id)) for fiche_id in fiche_ids]


def _mirrored() -> Select[tuple[str, str | None, bool]]:
    return select(FicheCacheRow.fiche_id, FicheCacheRow.groupe, _AUDITED)


def _as_candidates(
    session: Session, query: Select[tuple[str, str | None, bool]]
) -> list[FicheCandidate]:
    return [FicheCandidate(*row) for row in session.execute(query).tuples()]


NOT_MIRRORED = "Fiche not found in cache"
SALES_LIST_ONLY = "Fiche details not fetched (still sales-list-only cache)"
DETAILS_INCOMPLETE = "Fiche details not fetched (cache incomplete)"


def groupes_of(session: Session, fiche_ids: Sequence[str]) -> Mapping[str, str | None]:
    query = select(FicheCacheRow.fiche_id, FicheCacheRow.groupe).where(
        among(session, FicheCacheRow.fiche_id, fiche_ids)
    )
    return dict(session.execute(query).tuples().all())


def why_without_details(session: Session, fiche_ids: Sequence[str]) -> Mapping[str, str]:
    """The error message for each fiche."""
    query = select(FicheCacheRow.fiche_id, FicheCacheRow.raw_data).where(
        among(session, FicheCacheRow.fiche_id, fiche_ids)
    )
    raw = dict(session.execute(query).tuples().all())
    in_short = {fiche_id: bool(data.get("_salesListOnly")) for fiche_id, data in raw.items()}
    return {
        fiche_id: NOT_MIRRORED
        if fiche_id not in raw
        else SALES_LIST_ONLY
        if in_short[fiche_id]
        else DETAILS_INCOMPLETE
        for fiche_id in fiche_ids
    }


def untranscribed(
    session: Session, fiche_ids: Sequence[str], renew_before: datetime | None = None
) -> Mapping[str, int]:
    """The number of recordings per fiche without a transcript, or with one older than
    `renew_before`; the result contains every fiche. Without `renew_before`, the query only reads an
    index of untranscribed recordings."""
    missing = CallRecordingRow.has_transcription.is_(False)
    if renew_before is not None:
        at = CallRecordingRow.transcribed_at
        missing = or_(missing, at.is_(None), at < renew_before)
    lacks = CallRecordingRow.vanished_at.is_(None) & missing
    query = (
        select(FicheCacheRow.fiche_id, func.count(CallRecordingRow.fiche_cache_id))
        .outerjoin(CallRecordingRow, (CallRecordingRow.fiche_cache_id == FicheCacheRow.id) & lacks)
        .where(among(session, FicheCacheRow.fiche_id, fiche_ids))
        .group_by(FicheCacheRow.fiche_id)
    )
    return dict(session.execute(query).tuples().all())


def why_untranscribed(session: Session, fiche_ids: Sequence[str]) -> dict[str, str]:
    """The error of the last failed recording per fiche."""
    query = (
        select(TranscriptionTaskRow.fiche_id, TranscriptionTaskRow.error)
        .where(
            among(session, TranscriptionTaskRow.fiche_id, fiche_ids),
            TranscriptionTaskRow.error.is_not(None),
        )
        .order_by(TranscriptionTaskRow.id)
    )
    return {fiche_id: error for fiche_id, error in session.execute(query).tuples() if error}


def runs_over(session: Session, run_ids: Sequence[str]) -> Mapping[str, str | None]:
    """The ended transcription runs among these ids, with the error of each run that failed as a
    whole."""
    over = TranscriptionRunRow.status != TranscriptionStatus.RUNNING
    query = select(TranscriptionRunRow.id, TranscriptionRunRow.error)
    return dict(
        session.execute(query.where(among(session, TranscriptionRunRow.id, run_ids), over))
        .tuples()
        .all()
    )


def is_audit_stored(session: Session, tracking_id: str) -> bool:
    return (
        session.scalar(select(AuditRow.id).where(AuditRow.tracking_id == tracking_id)) is not None
    )


@dataclass(frozen=True)
class AuditCounts:
    """The audits that a run has started, counting the newest per fiche and configuration. Audits
    without a grade count as failed."""

    started: int
    completed: int
    failed: int

    @property
    def ended(self) -> int:
        return self.completed + self.failed


def audits_of_run(session: Session, run_id: int) -> AuditCounts:
    newer = aliased(AuditRow)
    audit_key = (AuditRow.automation_run_id, AuditRow.fiche_cache_id, AuditRow.audit_config_id)
    is_retried = exists().where(
        *(getattr(newer, column.key) == column for column in audit_key),
        newer.version > AuditRow.version,
    )
    query = select(AuditRow.status, func.count()).where(
        AuditRow.automation_run_id == run_id, ~is_retried
    )
    counts = dict(session.execute(query.group_by(AuditRow.status)).tuples().all())
    completed = counts.get(AuditStatus.COMPLETED, 0)
    failed = counts.get(AuditStatus.FAILED, 0) + counts.get(AuditStatus.INCOMPLETE, 0)
    return AuditCounts(sum(counts.values()), completed, failed)
