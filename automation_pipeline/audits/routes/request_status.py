"""HTTP endpoints of what became of requested transcriptions, audits and reruns."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import TheReach, TheServices
from automation_pipeline.api.responses import Answer, answer
from automation_pipeline.audits.models.audits import AuditStatus
from automation_pipeline.audits.models.audits import AuditSummary as Audit
from automation_pipeline.audits.queries.requests import RerunStatus, rerun_request_outcomes
from automation_pipeline.audits.queries.requests import audit_request_outcomes as audits_followed
from automation_pipeline.audits.requests import AUDIT_JOB, RERUN_JOB
from automation_pipeline.core.access import Reach
from automation_pipeline.core.json_model import Id
from automation_pipeline.fiches.queries.fiches import visible_fiches
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.run_requests import FiledRequest, filed_requests
from automation_pipeline.transcription.models import TranscriptionSummary as Transcription
from automation_pipeline.transcription.queries.requests import TRANSCRIPTION_JOB as TRANSCRIPTION
from automation_pipeline.transcription.queries.requests import (
    request_outcomes,
    requested_transcriptions,
)


class TranscriptionProgress(BaseModel):
    run_id: str
    fiche_id: str
    status: Literal["running", "completed", "failed"]
    total: int
    already_transcribed: int
    target_total: int
    processed: int
    cached: int
    failed: int
    error: str | None


class TranscriptionRequest(BaseModel):
    """Neither `standing` nor `refused` while nothing has begun."""

    key: str = Field(examples=["transcribe-1900417-1770111111111"])
    fiche_id: str
    run_id: str | None
    standing: TranscriptionProgress | None
    refused: str | None

    @classmethod
    def of(
        cls, key: str, fiche_id: str, run_id: str | None, found: Transcription | str | None
    ) -> Self:
        standing = (
            TranscriptionProgress(**vars(found)) if isinstance(found, Transcription) else None
        )
        refused = found if isinstance(found, str) else None
        return cls(key=key, fiche_id=fiche_id, run_id=run_id, standing=standing, refused=refused)


class AuditRequestStatus(BaseModel):
    """`done` steps are judged, `failed` ones could not be. Only a completed audit has a score."""

    audit_id: Id
    tracking_id: str
    fiche_id: str
    audit_config_id: Id
    status: AuditStatus
    niveau: str
    score_percentage: float | None
    steps: int
    done: int
    failed: int
    error: str | None


class AuditRequest(BaseModel):
    """Neither `standing` nor `refused` while nothing has begun."""

    key: str = Field(examples=["audit-1900417-11-1770111111111"])
    fiche_id: str
    standing: AuditRequestStatus | None
    refused: str | None

    @classmethod
    def of(cls, key: str, fiche_id: str, found: Audit | str | None) -> Self:
        standing = AuditRequestStatus(**vars(found)) if isinstance(found, Audit) else None
        return cls(
            key=key,
            fiche_id=fiche_id,
            standing=standing,
            refused=found if isinstance(found, str) else None,
        )


class RerunRequest(BaseModel):
    key: str = Field(examples=["rerun-501-3-2f1c"])
    fiche_id: str
    begun: bool
    done: bool
    refused: str | None

    @classmethod
    def of(cls, key: str, fiche_id: str, found: RerunStatus) -> Self:
        return cls(
            key=key, fiche_id=fiche_id, begun=found.begun, done=found.done, refused=found.error
        )


router = APIRouter(route_class=GuardedRoute, tags=["requests"])
PATH = "/api/requests"
MAX_KEYS = 200
Key = Annotated[str, Query(min_length=1, max_length=300)]
Keys = Annotated[
    list[Key],
    Query(
        min_length=1, max_length=MAX_KEYS, description="Repeat it for several. Unknown: left out."
    ),
]


@router.get(f"{PATH}/transcriptions", response_model=Answer[list[TranscriptionRequest]])
def transcriptions(key: Keys, reach: TheReach, services: TheServices) -> Response:
    """How transcriptions stand that were asked for. `key` is what was answered as `event_id`."""
    with services.database.reading() as session:
        filed = _filed(session, key, TRANSCRIPTION, reach)
        requested = requested_transcriptions(session, filed)
        since = min((one.created_at for one in filed), default=services.clock.now())
        found = request_outcomes(session, requested, since)
    return _answer(
        TranscriptionRequest.of(asked.key, one.fiche_id, one.run_id, found.get(one.fiche_id))
        for asked, one in zip(filed, requested, strict=True)
    )


@router.get(f"{PATH}/audits", response_model=Answer[list[AuditRequest]])
def audits(key: Keys, reach: TheReach, services: TheServices) -> Response:
    """How audits stand that were asked for. `key` is what was answered as `event_id`."""
    with services.database.reading() as session:
        filed = _filed(session, key, AUDIT_JOB, reach)
        found = audits_followed(session, [one.key for one in filed])
    return _answer(AuditRequest.of(one.key, _fiche_id(one), found.get(one.key)) for one in filed)


@router.get(f"{PATH}/reruns", response_model=Answer[list[RerunRequest]])
def reruns(key: Keys, reach: TheReach, services: TheServices) -> Response:
    """How reruns stand that were asked for. `key` is what was answered as `rerun_id`."""
    with services.database.reading() as session:
        filed = _filed(session, key, RERUN_JOB, reach)
        found = rerun_request_outcomes(session, [one.key for one in filed])
    return _answer(RerunRequest.of(one.key, _fiche_id(one), found[one.key]) for one in filed)


def _filed(session: Session, keys: Sequence[str], job: str, reach: Reach) -> list[FiledRequest]:
    """Those of the job that are about fiches within reach."""
    filed = [one for one in filed_requests(session, keys) if one.job == job]
    seen = visible_fiches(session, reach, map(_fiche_id, filed))
    return [one for one in filed if _fiche_id(one) in seen]


def _fiche_id(filed: FiledRequest) -> str:
    return filed.tags["automation/fiche_id"]


def _answer(found: Iterable[BaseModel]) -> Response:
    return answer([one.model_dump(mode="json") for one in found])
