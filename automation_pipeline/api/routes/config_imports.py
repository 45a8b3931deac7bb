"""Audit configurations from files: known by their names, and stored once however often they are sent."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.context import TheCaller, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import Answer, answer, refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.once import DoneOnce
from automation_pipeline.api.schemas.audit_configs import CONFIG, ConfigImported
from automation_pipeline.audits.domain.config_document import ConfigDocument
from automation_pipeline.audits.stages.import_config import import_config

router = APIRouter(route_class=GuardedRoute, tags=["audit configurations"])


@router.post(
    "/api/audit-configs/import",
    response_model=Answer[ConfigImported],
    responses=refusals(409),
    openapi_extra=takes(ConfigDocument, sales=CONFIG),
)
def import_(
    body: TheBody,
    caller: TheCaller,
    services: TheServices,
    once: DoneOnce,
    *,
    update: Annotated[bool, Query(description="Replace the one of the same name if it says something else.")] = False,
) -> Response:
    """Store a configuration under its name. The same content again changes nothing; other content is a conflict
    unless `update` says to replace it."""
    given = {name: value for name, value in body.items() if caller.is_machine or name != "createdBy"}

    def work() -> Response:
        imported = import_config(given, update=update, database=services.database, clock=services.clock)
        config = imported.config
        told = {"id": str(imported.id), "name": config.name, "outcome": imported.outcome.value}
        return answer({**told, "stepsCount": len(config.steps)})

    return once(work)
