"""What was written down about a fiche's calls while they were transcribed."""

from dataclasses import replace
from zoneinfo import ZoneInfo

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.query_values import begin_of, end_of
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.workflow_log_pages import LogPage, log_lines
from automation_pipeline.transcription.domain.log_query import LogQuery

Document = dict[str, object]


def transcription_logs(session: Session, fiche_id: str, chosen: LogQuery, zone: ZoneInfo) -> tuple[list[Document], int]:
    """Oldest first, and how many there are without `limit` and `offset`. NotFoundError for a fiche that we know nothing
    of; one that the CRM did not know has lines all the same."""
    of_fiche = LogPage(workflow="transcription", entity=("fiche", fiche_id))
    page = replace(
        of_fiche,
        trace_ids=(chosen.trace,) if chosen.trace else (),
        level=chosen.level,
        since=None if chosen.since is None else begin_of(chosen.since, zone),
        until=None if chosen.until is None else end_of(chosen.until, zone),
        limit=chosen.limit,
        offset=chosen.offset,
    )
    lines, total = log_lines(session, page)
    if total == 0 and not _is_known(session, fiche_id, of_fiche):
        raise NotFoundError(f"Fiche {fiche_id} not found")
    return lines, total


def _is_known(session: Session, fiche_id: str, of_fiche: LogPage) -> bool:
    if session.scalar(select(FicheCache.id).where(FicheCache.fiche_id == fiche_id)) is not None:
        return True
    return log_lines(session, replace(of_fiche, limit=1))[1] > 0
