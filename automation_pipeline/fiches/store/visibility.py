"""Which fiches somebody may see: by the groupe that the details name, else the sales list, or by whose they are."""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, false, func, select, true
from sqlalchemy.orm import Session

from automation_pipeline.core.access import Reach, Scope
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.tables import FicheCache, InformationRow
from automation_pipeline.storage.bulk import among


def within(session: Session, reach: Reach) -> ColumnElement[bool]:
    """A condition on rows of `FicheCache`."""
    if reach.scope is Scope.ALL:
        return true()
    # Of its own, also in a query that reads the details beside.
    details = select(InformationRow).where(InformationRow.fiche_cache_id == FicheCache.id).correlate(FicheCache)
    if reach.scope is Scope.SELF:
        if reach.crm_user_id is None:
            return false()
        return details.where(InformationRow.attribution_user_id == reach.crm_user_id).exists()
    named = details.with_only_columns(InformationRow.groupe).scalar_subquery()
    return among(session, func.coalesce(named, FicheCache.groupe), sorted(reach.groupes))


def visible_fiches(session: Session, reach: Reach, fiche_ids: Iterable[str]) -> set[str]:
    """Those of the fiches that somebody may see. Who may see everything may name fiches that we do not know yet."""
    asked = set(fiche_ids)
    if reach.is_whole:
        return asked
    wanted = (among(session, FicheCache.fiche_id, sorted(asked)), within(session, reach))
    return set(session.scalars(select(FicheCache.fiche_id).where(*wanted)))


def check_visible(session: Session, reach: Reach, fiche_ids: Iterable[str]) -> None:
    """NotFoundError for the first that is hidden or missing: nobody learns which of the two."""
    asked = list(fiche_ids)
    seen = visible_fiches(session, reach, asked)
    hidden = next((fiche_id for fiche_id in asked if fiche_id not in seen), None)
    if hidden is not None:
        raise NotFoundError(f"Fiche {hidden} not found")


def check_mirrored(session: Session, fiche_id: str) -> None:
    if session.scalar(select(FicheCache.id).where(FicheCache.fiche_id == fiche_id)) is None:
        raise NotFoundError(f"Fiche {fiche_id} not found")
