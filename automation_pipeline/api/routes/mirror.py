"""A fiche as it is mirrored, down to its last section, and how its transcription stands."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.context import FicheInPath, TheCaller, TheServices
from automation_pipeline.api.envelope import Answer, answer, refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.scopes import audible
from automation_pipeline.fiches.domain.shown_details import without_recordings_audio
from automation_pipeline.fiches.store.reading import fiche_document
from automation_pipeline.transcription.store.status import transcription_status

router = APIRouter(route_class=GuardedRoute, tags=["fiches"])


@router.get(
    "/api/fiches/{fiche_id}/mirror",
    response_model=Answer[dict[str, Any]],  # Any: JSON
    responses=refusals(404),
)
def mirror(fiche_id: FicheInPath, caller: TheCaller, services: TheServices) -> Response:
    """Show a fiche as our database has it; the CRM is not asked. Where its calls can be heard, and what was said, is
    only for callers who may read its recordings."""
    with services.database.reading() as session:
        document = fiche_document(session, fiche_id)
        standing = transcription_status(session, fiche_id)
        shown = document if audible(session, caller, [fiche_id]) else without_recordings_audio(document)
    return answer({**shown, "transcription": standing})
