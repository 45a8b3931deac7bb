"""What need not be asked of the CRM again, and how complete a day is."""

from collections.abc import Sequence
from datetime import date, datetime

from sqlalchemy import Select, and_, bindparam, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.fiches.domain.coverage import Coverage
from automation_pipeline.fiches.domain.fiche import DetailsKnown, FicheNotFound
from automation_pipeline.fiches.store.details import NOT_FOUND, NOT_FOUND_LIVES_FOR
from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.storage.bulk import among_given
from automation_pipeline.storage.prepared import execute

_IS_NOT_FOUND = and_(FicheCache.details_success.is_(False), FicheCache.details_message == NOT_FOUND)
_HAS_DETAILS = and_(FicheCache.details_success.is_(True), FicheCache.details_fetched_at.is_not(None))


def known_since(
    session: Session, fiche_ids: Sequence[str], since: datetime, now: datetime
) -> list[DetailsKnown | FicheNotFound]:
    """The fiches whose details, or absence, the CRM has told us since then. Absence is believed for minutes only."""
    wanted = {"fiches": fiche_ids, "since": since, "marked_since": max(since + NOT_FOUND_LIVES_FOR, now)}
    rows = execute(session, _known_since, wanted)
    return [DetailsKnown(fiche_id, count) if details else FicheNotFound(fiche_id) for fiche_id, details, count in rows]


def _known_since(postgres: bool) -> Select[tuple[str, bool, int]]:
    recordings = (
        select(func.count())
        .where(RecordingRow.fiche_cache_id == FicheCache.id, RecordingRow.vanished_at.is_(None))
        .scalar_subquery()
    )
    known = and_(_HAS_DETAILS, FicheCache.details_fetched_at >= bindparam("since"))
    absent = and_(_IS_NOT_FOUND, FicheCache.not_found_until >= bindparam("marked_since"))
    return select(FicheCache.fiche_id, _HAS_DETAILS, recordings).where(
        among_given(FicheCache.fiche_id, "fiches", postgres=postgres), or_(known, absent)
    )


def coverage_of(session: Session, day: date) -> Coverage:
    fiches, with_details, not_found = (
        session.execute(
            select(
                func.count(),
                func.count().filter(_HAS_DETAILS),
                func.count().filter(_IS_NOT_FOUND),
            ).where(FicheCache.sales_date == day.isoformat())
        )
        .tuples()
        .one()
    )
    return Coverage(fiches, with_details, not_found)
