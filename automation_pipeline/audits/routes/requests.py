"""HTTP endpoints that request audits and reruns. Dagster begins them within seconds."""

from collections.abc import Mapping, Sequence
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from automation_pipeline.api.bodies import OptionalBody, TheBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import DoneOnce
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import IdInPath, TheCaller, TheReach, TheServices
from automation_pipeline.api.responses import refusals, said
from automation_pipeline.api.scopes import check_links
from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.models.requests import (
    INVALID_REQUEST,
    AuditBatchInput,
    AuditInput,
    LatestAuditInput,
    RerunInput,
    RunAuditInput,
    parse_request,
)
from automation_pipeline.audits.queries.configs import StoredConfig, newest_active
from automation_pipeline.audits.requests import AuditRequestOptions, request_audits, request_rerun
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, Reach
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import Instant, parse
from automation_pipeline.fiches.queries.fiches import check_visible

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


class QueuedAt(BaseModel):
    timestamp: Instant
    status: Literal["queued"]


class AuditQueued(BaseModel):
    """`audit_id` is the id by which the audit is followed; the audit's own id is known when it
    begins."""

    success: Literal[True] = True
    message: Literal["Audit queued for processing"]
    event_id: str = Field(examples=["audit-1900417-11-1770111111111"])
    audit_id: str
    fiche_id: str
    audit_config_id: str
    metadata: QueuedAt


class LatestAuditQueued(AuditQueued):
    audit_config_name: str


class BatchQueued(BaseModel):
    success: Literal[True] = True
    message: str
    fiche_ids: list[str]
    audit_config_id: str
    batch_id: str
    event_ids: list[str]


class StepRerunQueued(BaseModel):
    success: Literal[True] = True
    message: str
    event_id: str
    rerun_id: str
    audit_id: str
    step_position: int


class PointRerunQueued(StepRerunQueued):
    control_point_index: int


router = APIRouter(route_class=GuardedRoute, tags=["audits"])
PATH = "/api/audits"
STEP = f"{PATH}/{{audit_id}}/steps/{{position}}"
POINT = f"{STEP}/control-points/{{point}}"


@router.post(
    PATH,
    response_model=AuditQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(AuditInput, plain=AUDIT_EXAMPLE, of_an_automation=LINKED_EXAMPLE),
)
def ask(
    body: TheBody, caller: TheCaller, reach: TheReach, services: TheServices, once: DoneOnce
) -> Response:
    """Ask for an audit, which may belong to an automation."""
    wish = parse_request(AuditInput, body)
    check_links(wish.model_dump(), caller, services.database, INVALID_REQUEST)
    asking = AuditRequestOptions(
        audit_config_id=wish.audit_config_id,
        use_rlm=wish.use_rlm,
        trigger_source=wish.trigger_source,
        user_id=_requested_by(wish.user_id, caller),
        schedule_id=wish.automation_schedule_id,
        run_id=wish.automation_run_id,
    )
    _check([wish.fiche_id], reach, services)
    return once(lambda: _queue_audit(wish.fiche_id, asking, services))


@router.post(
    f"{PATH}/run",
    response_model=AuditQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(RunAuditInput, plain=AUDIT_EXAMPLE),
)
def run(
    body: TheBody, caller: TheCaller, reach: TheReach, services: TheServices, once: DoneOnce
) -> Response:
    """Ask for an audit of one fiche by one configuration."""
    wish = parse_request(RunAuditInput, body)
    user = _requested_by(wish.user_id, caller)
    asking = AuditRequestOptions(
        audit_config_id=wish.audit_config_id, use_rlm=wish.use_rlm, user_id=user
    )
    _check([wish.fiche_id], reach, services)
    return once(lambda: _queue_audit(wish.fiche_id, asking, services))


@router.post(
    f"{PATH}/run-latest",
    response_model=LatestAuditQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(LatestAuditInput, plain=LATEST_EXAMPLE),
)
def run_latest(
    body: TheBody, caller: TheCaller, reach: TheReach, services: TheServices, once: DoneOnce
) -> Response:
    """Ask for an audit by the newest active configuration."""
    wish = parse_request(LatestAuditInput, body)
    _check([wish.fiche_id], reach, services)

    def work() -> Response:
        newest = _newest_active_config(services)
        user = _requested_by(wish.user_id, caller)
        asking = AuditRequestOptions(audit_config_id=newest.id, use_rlm=wish.use_rlm, user_id=user)
        return _queue_audit(wish.fiche_id, asking, services, audit_config_name=newest.config.name)

    return once(work)


@router.post(
    f"{PATH}/batch",
    response_model=BatchQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(AuditBatchInput, two=BATCH_EXAMPLE),
)
def batch(
    body: TheBody, caller: TheCaller, reach: TheReach, services: TheServices, once: DoneOnce
) -> Response:
    """Ask for audits of many fiches, followed as one. Without a configuration the newest active one
    judges."""
    wish = parse(AuditBatchInput, body, INVALID_REQUEST)
    _check(wish.fiche_ids, reach, services)

    def work() -> Response:
        asking = AuditRequestOptions(
            audit_config_id=wish.audit_config_id or _newest_active_config(services).id,
            use_rlm=wish.use_rlm,
            user_id=_requested_by(wish.user_id, caller),
            batch=True,
        )
        filed = request_audits(
            wish.fiche_ids, asking, database=services.database, clock=services.clock
        )
        return said(
            message=f"{len(filed.audits)} audits queued for processing",
            fiche_ids=[one.fiche_id for one in filed.audits],
            audit_config_id=str(asking.audit_config_id),
            batch_id=filed.batch_id,
            event_ids=[one.tracking_id for one in filed.audits],
        )

    return once(work)


@router.post(
    f"{STEP}/rerun",
    response_model=StepRerunQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(RerunInput, required=False, told=RERUN_EXAMPLE),
)
def rerun_step(
    audit_id: IdInPath,
    position: IdInPath,
    body: OptionalBody,
    services: TheServices,
    once: DoneOnce,
) -> Response:
    """Have a step judged again. Its audit must be completed."""
    wish = parse(RerunInput, body, INVALID_REQUEST)
    return once(lambda: _rerun(StepLocation(audit_id, position), wish, services))


@router.post(
    f"{POINT}/rerun",
    response_model=PointRerunQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(RerunInput, required=False, told=RERUN_EXAMPLE),
)
def rerun_point(
    audit_id: IdInPath,
    position: IdInPath,
    point: IdInPath,
    body: OptionalBody,
    services: TheServices,
    once: DoneOnce,
) -> Response:
    """Have one control point judged again. Its audit must be completed."""
    wish = parse(RerunInput, body, INVALID_REQUEST)
    return once(
        lambda: _rerun(
            StepLocation(audit_id, position, point), wish, services, control_point_index=point
        )
    )


def _check(fiche_ids: Sequence[str], reach: Reach, services: Services) -> None:
    with services.database.reading() as session:
        check_visible(session, reach, fiche_ids)


def _requested_by(named: str | None, caller: Caller) -> str:
    """A machine may ask on behalf of somebody."""
    return named if named is not None and caller.is_machine else caller.id


def _newest_active_config(services: Services) -> StoredConfig:
    with services.database.reading() as session:
        newest = newest_active(session)
    if newest is None:
        raise NotFoundError("No active audit configuration found")
    return newest


def _queue_audit(
    fiche_id: str, asking: AuditRequestOptions, services: Services, **beside: object
) -> Response:
    now = services.clock.now()
    [asked] = request_audits(
        [fiche_id], asking, database=services.database, clock=services.clock
    ).audits
    return said(
        200,
        message="Audit queued for processing",
        event_id=asked.tracking_id,
        audit_id=asked.tracking_id,
        fiche_id=fiche_id,
        audit_config_id=str(asking.audit_config_id),
        metadata={"timestamp": iso(now), "status": "queued"},
        **beside,
    )


def _rerun(place: StepLocation, wish: RerunInput, services: Services, **beside: object) -> Response:
    asked = request_rerun(
        place, instructions=wish.instructions, database=services.database, clock=services.clock
    )
    return said(
        200,
        message="Rerun queued for processing",
        event_id=asked.event_id,
        rerun_id=asked.rerun_id,
        audit_id=str(place.audit_id),
        step_position=place.position,
        **beside,
    )
