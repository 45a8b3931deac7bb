"""What became of transcripts, audits and reruns that were asked for: by the keys that were answered then."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response

from automation_pipeline.api.context import TheReach, TheServices
from automation_pipeline.api.envelope import Answer, answer
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.schemas.requests import AuditRequest, RerunRequest, TranscriptionRequest
from automation_pipeline.audits.stages import request_audits, request_rerun
from automation_pipeline.audits.store.followed import followed as audits_followed
from automation_pipeline.audits.store.followed import followed_reruns
from automation_pipeline.core.access import Reach
from automation_pipeline.fiches.store.visibility import visible_fiches
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.run_requests import FiledRequest, filed_requests
from automation_pipeline.transcription.store.asked import JOB as TRANSCRIPTION
from automation_pipeline.transcription.store.followed import as_requested, followed

router = APIRouter(route_class=GuardedRoute, tags=["requests"])
PATH = "/api/requests"
MOST = 200
Key = Annotated[str, Query(min_length=1, max_length=300)]
Keys = Annotated[
    list[Key], Query(min_length=1, max_length=MOST, description="Repeat it for several. Unknown: left out.")
]


@router.get(f"{PATH}/transcriptions", response_model=Answer[list[TranscriptionRequest]])
def transcriptions(key: Keys, reach: TheReach, services: TheServices) -> Response:
    """How transcriptions stand that were asked for. `key` is what was answered as `event_id`."""
    with services.database.reading() as session:
        filed = _filed(session, key, TRANSCRIPTION, reach)
        requested = as_requested(session, filed)
        since = min((one.created_at for one in filed), default=services.clock.now())
        found = followed(session, requested, since)
    return _shown(
        TranscriptionRequest.of(asked.key, one.fiche_id, one.run_id, found.get(one.fiche_id))
        for asked, one in zip(filed, requested, strict=True)
    )


@router.get(f"{PATH}/audits", response_model=Answer[list[AuditRequest]])
def audits(key: Keys, reach: TheReach, services: TheServices) -> Response:
    """How audits stand that were asked for. `key` is what was answered as `event_id`."""
    with services.database.reading() as session:
        filed = _filed(session, key, request_audits.JOB, reach)
        found = audits_followed(session, [one.key for one in filed])
    return _shown(AuditRequest.of(one.key, _fiche(one), found.get(one.key)) for one in filed)


@router.get(f"{PATH}/reruns", response_model=Answer[list[RerunRequest]])
def reruns(key: Keys, reach: TheReach, services: TheServices) -> Response:
    """How reruns stand that were asked for. `key` is what was answered as `rerun_id`."""
    with services.database.reading() as session:
        filed = _filed(session, key, request_rerun.JOB, reach)
        found = followed_reruns(session, [one.key for one in filed])
    return _shown(RerunRequest.of(one.key, _fiche(one), found[one.key]) for one in filed)


def _filed(session: Session, keys: Sequence[str], job: str, reach: Reach) -> list[FiledRequest]:
    """Those of the job that are about fiches within reach."""
    filed = [one for one in filed_requests(session, keys) if one.job == job]
    seen = visible_fiches(session, reach, map(_fiche, filed))
    return [one for one in filed if _fiche(one) in seen]


def _fiche(filed: FiledRequest) -> str:
    return filed.tags["automation/fiche_id"]


def _shown(found: Iterable[BaseModel]) -> Response:
    return answer([one.model_dump(mode="json") for one in found])
