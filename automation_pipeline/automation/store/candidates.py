"""Queries over the mirror for a selection: the fiches it may be about, with what is known of them before details."""

from collections.abc import Sequence
from datetime import date

from sqlalchemy import Select, exists, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.automation.domain.filters import Candidate
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.bulk import among

# An incomplete audit says nothing about the fiche's calls: the next run finishes it.
_AUDITED = exists().where(
    AuditRow.fiche_cache_id == FicheCache.id, AuditRow.is_latest, AuditRow.status != AuditStatus.INCOMPLETE
)


def fiches_of_days(session: Session, days: Sequence[date]) -> list[Candidate]:
    """Those sold on the days, the oldest day first."""
    sold = among(session, FicheCache.sales_date, [day.isoformat() for day in days])
    return _candidates(session, _mirrored().where(sold).order_by(FicheCache.sales_date, FicheCache.fiche_id))


def fiches_named(session: Session, fiche_ids: Sequence[str]) -> list[Candidate]:
    """In the order given; of one that is not mirrored nothing is known."""
    found = _candidates(session, _mirrored().where(among(session, FicheCache.fiche_id, fiche_ids)))
    known = {candidate.fiche_id: candidate for candidate in found}
    return [known.get(fiche_id, Candidate(fiche_id)) for fiche_id in fiche_ids]


def _mirrored() -> Select[tuple[str, str | None, bool]]:
    return select(FicheCache.fiche_id, FicheCache.groupe, _AUDITED)


def _candidates(session: Session, query: Select[tuple[str, str | None, bool]]) -> list[Candidate]:
    return [Candidate(*row) for row in session.execute(query).tuples()]
