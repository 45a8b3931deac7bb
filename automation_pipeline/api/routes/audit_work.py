"""Audits asked for: one, several, or a part of one again. Dagster begins them within seconds."""

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.audit_scopes import check_links
from automation_pipeline.api.bodies import OptionalBody, TheBody
from automation_pipeline.api.context import IdInPath, TheCaller, TheReach, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import refusals, said
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.once import DoneOnce
from automation_pipeline.api.schemas.audit_work import (
    AGAIN,
    LATEST,
    LINKED,
    ONE,
    SEVERAL,
    AuditQueued,
    BatchQueued,
    LatestAuditQueued,
    PointRerunQueued,
    StepRerunQueued,
)
from automation_pipeline.audits.domain.audit_wishes import (
    COMPLAINT,
    AuditWish,
    BatchWish,
    LatestWish,
    RerunWish,
    RunWish,
    read_wish,
)
from automation_pipeline.audits.domain.place import Place
from automation_pipeline.audits.stages.request_audits import Asking, request_audits
from automation_pipeline.audits.stages.request_rerun import request_rerun
from automation_pipeline.audits.store.configs import StoredConfig, newest_active
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, Reach
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.instants import iso
from automation_pipeline.core.json_model import parse
from automation_pipeline.fiches.store.visibility import check_visible

router = APIRouter(route_class=GuardedRoute, tags=["audits"])
PATH = "/api/audits"
STEP = f"{PATH}/{{audit_id}}/steps/{{position}}"
POINT = f"{STEP}/control-points/{{point}}"


@router.post(
    PATH,
    response_model=AuditQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(AuditWish, plain=ONE, of_an_automation=LINKED),
)
def ask(body: TheBody, caller: TheCaller, reach: TheReach, services: TheServices, once: DoneOnce) -> Response:
    """Ask for an audit, which may belong to an automation."""
    wish = read_wish(AuditWish, body)
    check_links(wish.model_dump(), caller, services.database, COMPLAINT)
    asking = Asking(
        audit_config_id=wish.audit_config_id,
        use_rlm=wish.use_rlm,
        trigger_source=wish.trigger_source,
        user_id=_asker(wish.user_id, caller),
        schedule_id=wish.automation_schedule_id,
        run_id=wish.automation_run_id,
    )
    _check([wish.fiche_id], reach, services)
    return once(lambda: _queued(wish.fiche_id, asking, services))


@router.post(
    f"{PATH}/run", response_model=AuditQueued, responses=refusals(404, 409), openapi_extra=takes(RunWish, plain=ONE)
)
def run(body: TheBody, caller: TheCaller, reach: TheReach, services: TheServices, once: DoneOnce) -> Response:
    """Ask for an audit of one fiche by one configuration."""
    wish = read_wish(RunWish, body)
    user = _asker(wish.user_id, caller)
    asking = Asking(audit_config_id=wish.audit_config_id, use_rlm=wish.use_rlm, user_id=user)
    _check([wish.fiche_id], reach, services)
    return once(lambda: _queued(wish.fiche_id, asking, services))


@router.post(
    f"{PATH}/run-latest",
    response_model=LatestAuditQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(LatestWish, plain=LATEST),
)
def run_latest(body: TheBody, caller: TheCaller, reach: TheReach, services: TheServices, once: DoneOnce) -> Response:
    """Ask for an audit by the newest active configuration."""
    wish = read_wish(LatestWish, body)
    _check([wish.fiche_id], reach, services)

    def work() -> Response:
        newest = _newest(services)
        user = _asker(wish.user_id, caller)
        asking = Asking(audit_config_id=newest.id, use_rlm=wish.use_rlm, user_id=user)
        return _queued(wish.fiche_id, asking, services, audit_config_name=newest.config.name)

    return once(work)


@router.post(
    f"{PATH}/batch",
    response_model=BatchQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(BatchWish, two=SEVERAL),
)
def batch(body: TheBody, caller: TheCaller, reach: TheReach, services: TheServices, once: DoneOnce) -> Response:
    """Ask for audits of many fiches, followed as one. Without a configuration the newest active one judges."""
    wish = parse(BatchWish, body, COMPLAINT)
    _check(wish.fiche_ids, reach, services)

    def work() -> Response:
        asking = Asking(
            audit_config_id=wish.audit_config_id or _newest(services).id,
            use_rlm=wish.use_rlm,
            user_id=_asker(wish.user_id, caller),
            batch=True,
        )
        filed = request_audits(wish.fiche_ids, asking, database=services.database, clock=services.clock)
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
    openapi_extra=takes(RerunWish, required=False, told=AGAIN),
)
def rerun_step(
    audit_id: IdInPath, position: IdInPath, body: OptionalBody, services: TheServices, once: DoneOnce
) -> Response:
    """Have a step judged again. Its audit must be completed."""
    wish = parse(RerunWish, body, COMPLAINT)
    return once(lambda: _rerun(Place(audit_id, position), wish, services))


@router.post(
    f"{POINT}/rerun",
    response_model=PointRerunQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(RerunWish, required=False, told=AGAIN),
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
    wish = parse(RerunWish, body, COMPLAINT)
    return once(lambda: _rerun(Place(audit_id, position, point), wish, services, control_point_index=point))


def _check(fiche_ids: Sequence[str], reach: Reach, services: Services) -> None:
    with services.database.reading() as session:
        check_visible(session, reach, fiche_ids)


def _asker(named: str | None, caller: Caller) -> str:
    """A machine may ask on behalf of somebody."""
    return named if named is not None and caller.is_machine else caller.id


def _newest(services: Services) -> StoredConfig:
    with services.database.reading() as session:
        newest = newest_active(session)
    if newest is None:
        raise NotFoundError("No active audit configuration found")
    return newest


def _queued(fiche_id: str, asking: Asking, services: Services, **beside: object) -> Response:
    now = services.clock.now()
    [asked] = request_audits([fiche_id], asking, database=services.database, clock=services.clock).audits
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


def _rerun(place: Place, wish: RerunWish, services: Services, **beside: object) -> Response:
    asked = request_rerun(place, instructions=wish.instructions, database=services.database, clock=services.clock)
    return said(
        200,
        message="Rerun queued for processing",
        event_id=asked.event_id,
        rerun_id=asked.rerun_id,
        audit_id=str(place.audit_id),
        step_position=place.position,
        **beside,
    )
