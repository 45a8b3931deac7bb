"""HTTP endpoints that request audits and reruns, and show the status of requests."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictBool
from starlette.responses import Response

from automation_pipeline.api.bodies import JsonBody, JsonObject, json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    CallerDep,
    DatabaseDep,
    IdInPath,
    ReachDep,
    ServicesDep,
)
from automation_pipeline.api.responses import Answer, Done, answer, answer_with, refusals
from automation_pipeline.api.scopes import check_links
from automation_pipeline.audits.configs import newest_active
from automation_pipeline.audits.models.audits import AuditStatus, StepLocation
from automation_pipeline.audits.models.configs import StoredConfig
from automation_pipeline.audits.models.requests import IdInBody, TriggerSource, UserId
from automation_pipeline.audits.requests import (
    AUDIT_JOB,
    INVALID_REQUEST,
    RERUN_JOB,
    AuditRequestOptions,
    audit_request_outcomes,
    request_audits,
    request_rerun,
    rerun_request_outcomes,
)
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, Reach
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import DigitsText, Id, Instant, JsonModel
from automation_pipeline.fiches.models.fiches import RequestedFicheIds
from automation_pipeline.fiches.queries.mirror import check_visible, visible_fiches
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.run_requests import FiledRequest, filed_requests
from automation_pipeline.transcription.requests import (
    TRANSCRIPTION_JOB,
    request_outcomes,
    requested_transcriptions,
)

AUDIT_EXAMPLE: Mapping[str, object] = {"fiche_id": "1900417", "audit_config_id": "11"}
LINKED_EXAMPLE: Mapping[str, object] = {
    **AUDIT_EXAMPLE,
    "automation_schedule_id": "3",
    "automation_run_id": "17",
}
LATEST_EXAMPLE: Mapping[str, object] = {"fiche_id": "1900417"}
BATCH_EXAMPLE: Mapping[str, object] = {"fiche_ids": ["1900417", "1900418"], "audit_config_id": "11"}
RERUN_EXAMPLE: Mapping[str, object] = {
    "customPrompt": "The recording notice counts when it is said by the prospect"
}


UseRlm = Annotated[StrictBool, Field(validation_alias=AliasChoices("use_rlm", "useRlm"))]
ConfigId = Annotated[IdInBody, Field(validation_alias=AliasChoices("audit_config_id", "audit_id"))]


class LatestAuditInput(JsonModel):
    """An audit by the newest active configuration."""

    model_config = ConfigDict(alias_generator=None)

    fiche_id: DigitsText
    user_id: UserId | None = None
    use_rlm: UseRlm = False


class RunAuditInput(LatestAuditInput):
    audit_config_id: ConfigId


class AuditInput(RunAuditInput):
    """An audit that may belong to an automation and name its trigger."""

    automation_schedule_id: IdInBody | None = None
    automation_run_id: IdInBody | None = None
    trigger_source: TriggerSource = "api"


class AuditBatchInput(JsonModel):
    """Audits with one common status, by the given or the newest active configuration."""

    model_config = ConfigDict(alias_generator=None)

    fiche_ids: RequestedFicheIds
    audit_config_id: IdInBody | None = None
    user_id: UserId | None = None
    use_rlm: UseRlm = False


class RerunInput(JsonModel):
    """Additional instructions for the model, under either name."""

    custom_prompt: str | None = Field(default=None, max_length=5000)
    custom_instructions: str | None = Field(default=None, max_length=5000)

    @property
    def instructions(self) -> str | None:
        return self.custom_prompt or self.custom_instructions


class AuditBody(JsonBody):
    """The complaint differs if a field is missing."""

    def parsed(self, given: JsonObject) -> JsonModel | JsonObject:
        try:
            return super().parsed(given)
        except InvalidInputError as error:
            if not any(fault == "is required" for _, fault in error.fields):
                raise
            noun = "parameter" if self.model is LatestAuditInput else "parameters"
            raise InvalidInputError(f"Missing required {noun}", error.fields) from None


class QueuedAt(BaseModel):
    timestamp: Instant
    status: Literal["queued"]


class AuditQueued(BaseModel):
    """`audit_id` is the tracking id of the request; the audit gets its own id when it starts."""

    success: Literal[True] = True
    message: Literal["Audit queued for processing"]
    event_id: str = Field(examples=["audit-1900417-11-1770111111111"])
    audit_id: str
    fiche_id: str
    audit_config_id: str
    metadata: QueuedAt


class LatestAuditQueued(AuditQueued):
    audit_config_name: str


class BatchQueued(Done):
    fiche_ids: list[str]
    audit_config_id: str
    batch_id: str
    event_ids: list[str]


class StepRerunQueued(Done):
    event_id: str
    rerun_id: str
    audit_id: str
    step_position: int


class PointRerunQueued(StepRerunQueued):
    control_point_index: int


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
    """`standing` and `refused` are null until the work starts."""

    key: str = Field(examples=["transcribe-1900417-1770111111111"])
    fiche_id: str
    run_id: str | None
    standing: TranscriptionProgress | None
    refused: str | None


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
    """`standing` and `refused` are null until the work starts."""

    key: str = Field(examples=["audit-1900417-11-1770111111111"])
    fiche_id: str
    standing: AuditRequestStatus | None
    refused: str | None


class RerunRequest(BaseModel):
    key: str = Field(examples=["rerun-501-3-2f1c"])
    fiche_id: str
    begun: bool
    done: bool
    refused: str | None


router = APIRouter(route_class=GuardedRoute, tags=["audits"])
PATH = "/api/audits"
STEP = f"{PATH}/{{audit_id}}/steps/{{position}}"
POINT = f"{STEP}/control-points/{{point}}"

status_router = APIRouter(route_class=GuardedRoute, tags=["requests"])
STATUS_PATH = "/api/requests"
MAX_KEYS = 200
Key = Annotated[str, Query(min_length=1, max_length=300)]
Keys = Annotated[
    list[Key],
    Query(
        min_length=1,
        max_length=MAX_KEYS,
        description="Repeat the parameter for several. Unknown keys are omitted from the response.",
    ),
]


@router.post(PATH, response_model=AuditQueued, responses=refusals(404, 409))
def ask(
    given: Annotated[
        AuditInput,
        json_body(
            AuditInput,
            INVALID_REQUEST,
            reader=AuditBody,
            plain=AUDIT_EXAMPLE,
            of_an_automation=LINKED_EXAMPLE,
        ),
    ],
    caller: CallerDep,
    reach: ReachDep,
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Request an audit, which may belong to an automation."""
    check_links(given.model_dump(), caller, services.database, INVALID_REQUEST)
    options = AuditRequestOptions(
        audit_config_id=given.audit_config_id,
        use_rlm=given.use_rlm,
        trigger_source=given.trigger_source,
        user_id=_requested_by(given.user_id, caller),
        schedule_id=given.automation_schedule_id,
        run_id=given.automation_run_id,
    )
    services.database.read(check_visible, reach, [given.fiche_id])
    return once(lambda: _queue_audit(given.fiche_id, options, services))


@router.post(f"{PATH}/run", response_model=AuditQueued, responses=refusals(404, 409))
def run(
    given: Annotated[
        RunAuditInput,
        json_body(RunAuditInput, INVALID_REQUEST, reader=AuditBody, plain=AUDIT_EXAMPLE),
    ],
    caller: CallerDep,
    reach: ReachDep,
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Request an audit of one fiche by one configuration."""
    options = AuditRequestOptions(
        audit_config_id=given.audit_config_id,
        use_rlm=given.use_rlm,
        user_id=_requested_by(given.user_id, caller),
    )
    services.database.read(check_visible, reach, [given.fiche_id])
    return once(lambda: _queue_audit(given.fiche_id, options, services))


@router.post(f"{PATH}/run-latest", response_model=LatestAuditQueued, responses=refusals(404, 409))
def run_latest(
    given: Annotated[
        LatestAuditInput,
        json_body(LatestAuditInput, INVALID_REQUEST, reader=AuditBody, plain=LATEST_EXAMPLE),
    ],
    caller: CallerDep,
    reach: ReachDep,
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Request an audit by the newest active configuration."""
    services.database.read(check_visible, reach, [given.fiche_id])

    def work() -> Response:
        newest = _newest_active_config(services)
        return _queue_audit(
            given.fiche_id,
            AuditRequestOptions(
                audit_config_id=newest.id,
                use_rlm=given.use_rlm,
                user_id=_requested_by(given.user_id, caller),
            ),
            services,
            audit_config_name=newest.config.name,
        )

    return once(work)


@router.post(f"{PATH}/batch", response_model=BatchQueued, responses=refusals(404, 409))
def batch(
    given: Annotated[
        AuditBatchInput, json_body(AuditBatchInput, INVALID_REQUEST, two=BATCH_EXAMPLE)
    ],
    caller: CallerDep,
    reach: ReachDep,
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Request audits of many fiches as one batch. Without a configuration, the newest active one applies."""
    services.database.read(check_visible, reach, given.fiche_ids)

    def work() -> Response:
        options = AuditRequestOptions(
            audit_config_id=given.audit_config_id or _newest_active_config(services).id,
            use_rlm=given.use_rlm,
            user_id=_requested_by(given.user_id, caller),
            batch=True,
        )
        filed = request_audits(
            given.fiche_ids, options, database=services.database, clock=services.clock
        )
        return answer_with(
            message=f"{len(filed.audits)} audits queued for processing",
            fiche_ids=[one.fiche_id for one in filed.audits],
            audit_config_id=str(options.audit_config_id),
            batch_id=filed.batch_id,
            event_ids=[one.tracking_id for one in filed.audits],
        )

    return once(work)


@router.post(f"{STEP}/rerun", response_model=StepRerunQueued, responses=refusals(404, 409))
def rerun_step(
    audit_id: IdInPath,
    position: IdInPath,
    given: Annotated[
        RerunInput,
        json_body(RerunInput, INVALID_REQUEST, required=False, instructions=RERUN_EXAMPLE),
    ],
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Judge a step again. Its audit must be completed."""
    return once(lambda: _rerun(StepLocation(audit_id, position), given, services))


@router.post(f"{POINT}/rerun", response_model=PointRerunQueued, responses=refusals(404, 409))
def rerun_point(
    audit_id: IdInPath,
    position: IdInPath,
    point: IdInPath,
    given: Annotated[
        RerunInput,
        json_body(RerunInput, INVALID_REQUEST, required=False, instructions=RERUN_EXAMPLE),
    ],
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Judge one control point again. Its audit must be completed."""
    return once(lambda: _rerun(StepLocation(audit_id, position, point), given, services))


def _requested_by(named: str | None, caller: Caller) -> str:
    """A machine token may request on behalf of a user."""
    return named if named is not None and caller.is_machine else caller.id


def _newest_active_config(services: Services) -> StoredConfig:
    newest = services.database.read(newest_active)
    if newest is None:
        raise NotFoundError("No active audit configuration found")
    return newest


def _queue_audit(
    fiche_id: str, options: AuditRequestOptions, services: Services, **more: object
) -> Response:
    now = services.clock.now()
    filed = request_audits([fiche_id], options, database=services.database, clock=services.clock)
    [requested] = filed.audits
    return answer_with(
        200,
        message="Audit queued for processing",
        event_id=requested.tracking_id,
        audit_id=requested.tracking_id,
        fiche_id=fiche_id,
        audit_config_id=str(options.audit_config_id),
        metadata={"timestamp": iso(now), "status": "queued"},
        **more,
    )


def _rerun(location: StepLocation, given: RerunInput, services: Services) -> Response:
    requested = request_rerun(
        location, instructions=given.instructions, database=services.database, clock=services.clock
    )
    point = {} if location.point is None else {"control_point_index": location.point}
    return answer_with(
        message="Rerun queued for processing",
        event_id=requested.event_id,
        rerun_id=requested.rerun_id,
        audit_id=str(location.audit_id),
        step_position=location.position,
        **point,
    )


@status_router.get(
    f"{STATUS_PATH}/transcriptions", response_model=Answer[list[TranscriptionRequest]]
)
def transcriptions(key: Keys, reach: ReachDep, services: ServicesDep) -> Response:
    """Show the status of requested transcriptions. `key` is the `event_id` of the response to the request."""
    with services.database.reading() as session:
        filed = _filed(session, key, TRANSCRIPTION_JOB, reach)
        requested = requested_transcriptions(session, filed)
        since = min((one.created_at for one in filed), default=services.clock.now())
        found = request_outcomes(session, requested, since)
    return answer(
        [
            TranscriptionRequest(
                key=request.key,
                fiche_id=one.fiche_id,
                run_id=one.run_id,
                **_outcome(found.get(one.fiche_id)),
            )
            for request, one in zip(filed, requested, strict=True)
        ]
    )


@status_router.get(f"{STATUS_PATH}/audits", response_model=Answer[list[AuditRequest]])
def audits(key: Keys, reach: ReachDep, database: DatabaseDep) -> Response:
    """Show the status of requested audits. `key` is the `event_id` of the response to the request."""
    with database.reading() as session:
        filed = _filed(session, key, AUDIT_JOB, reach)
        found = audit_request_outcomes(session, [one.key for one in filed])
    return answer(
        [
            AuditRequest(key=one.key, fiche_id=_fiche_id(one), **_outcome(found.get(one.key)))
            for one in filed
        ]
    )


@status_router.get(f"{STATUS_PATH}/reruns", response_model=Answer[list[RerunRequest]])
def reruns(key: Keys, reach: ReachDep, database: DatabaseDep) -> Response:
    """Show the status of requested reruns. `key` is the `rerun_id` of the response to the request."""
    with database.reading() as session:
        filed = _filed(session, key, RERUN_JOB, reach)
        found = rerun_request_outcomes(session, [one.key for one in filed])
    return answer(
        [
            RerunRequest(
                key=one.key,
                fiche_id=_fiche_id(one),
                begun=found[one.key].begun,
                done=found[one.key].done,
                refused=found[one.key].refused,
            )
            for one in filed
        ]
    )


def _filed(session: Session, keys: Sequence[str], job: str, reach: Reach) -> list[FiledRequest]:
    """The requests of the job for fiches within the caller's scope."""
    filed = [one for one in filed_requests(session, keys) if one.job == job]
    visible = visible_fiches(session, reach, map(_fiche_id, filed))
    return [one for one in filed if _fiche_id(one) in visible]


def _fiche_id(filed: FiledRequest) -> str:
    return filed.tags["automation/fiche_id"]


def _outcome(found: object) -> dict[str, Any]:
    """`found` is a status, the reason of a refusal, or None until the work starts."""
    if isinstance(found, str):
        return {"standing": None, "refused": found}
    return {"standing": None if found is None else vars(found), "refused": None}
