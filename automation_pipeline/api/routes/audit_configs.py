"""Audit configurations: what calls are judged by. They belong to no fiche, so scopes do not narrow them."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from automation_pipeline.api.automation_scopes import signed
from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.context import IdInPath, Limit, Offset, TheCaller, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import Answer, Done, Listing, answer, refusals, said
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.once import DoneOnce
from automation_pipeline.api.schemas.audit_configs import (
    CHANGE,
    CONFIG,
    ORDER,
    STEP,
    STEP_CHANGE,
    ConfigChanged,
    ConfigCreated,
    Validity,
)
from automation_pipeline.audits.domain.config_document import ConfigDocument
from automation_pipeline.audits.domain.config_shown import (
    ConfigShown,
    ConfigStats,
    ConfigStepShown,
    step_shown,
    steps_shown,
)
from automation_pipeline.audits.domain.config_step import ConfigStepDocument, NewStepDocument
from automation_pipeline.audits.domain.reorder import StepOrder
from automation_pipeline.audits.stages.add_step import add_step
from automation_pipeline.audits.stages.create_config import create_config
from automation_pipeline.audits.stages.delete_config import delete_config
from automation_pipeline.audits.stages.delete_step import delete_step
from automation_pipeline.audits.stages.reorder_steps import reorder_steps
from automation_pipeline.audits.stages.update_config import update_config
from automation_pipeline.audits.stages.update_step import update_step
from automation_pipeline.audits.stages.validate_config import validate_config
from automation_pipeline.audits.store.config_stats import stats_of
from automation_pipeline.audits.store.config_views import Shown, config_page, config_view
from automation_pipeline.audits.store.configs import unknown_config
from automation_pipeline.core.json_model import as_document, parse

router = APIRouter(route_class=GuardedRoute, tags=["audit configurations"])
PATH = "/api/audit-configs"
ONE = f"{PATH}/{{config_id}}"
STEP_PATH = f"{PATH}/steps/{{step_id}}"

WithSteps = Annotated[bool, Query(description="Show the steps too.")]
WithStats = Annotated[bool, Query(description="Show what became of the audits too.")]


@router.get(PATH, response_model=Listing[ConfigShown])
def list_(
    services: TheServices,
    *,
    include_inactive: Annotated[bool, Query(description="Show those out of use too.")] = False,
    include_steps: WithSteps = False,
    include_stats: WithStats = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the configurations, newest first."""
    shown = Shown(steps=include_steps, stats=include_stats)
    with services.database.reading() as session:
        found = config_page(session, shown, include_inactive=include_inactive, limit=limit, offset=offset)
    return answer([one.document() for one in found], count=len(found), limit=limit, offset=offset)


@router.post(
    PATH,
    status_code=201,
    response_model=Answer[ConfigCreated],
    responses=refusals(409),
    openapi_extra=takes(ConfigDocument, sales=CONFIG),
)
def create(body: TheBody, caller: TheCaller, services: TheServices, once: DoneOnce) -> Response:
    """Store a new configuration with its steps, whose positions are 1 to n."""

    def work() -> Response:
        stored = create_config(signed(body, caller), database=services.database, clock=services.clock)
        return answer({"id": str(stored.id), "name": stored.config.name}, status=201)

    return once(work)


@router.put(
    STEP_PATH,
    response_model=Answer[ConfigStepShown],
    responses=refusals(404),
    openapi_extra=takes(ConfigStepDocument, partial={}, weigh=STEP_CHANGE),
)
def change_step(step_id: IdInPath, body: TheBody, services: TheServices) -> Response:
    """Change the fields of a step that are named; null clears. Of the positions only the one behind all others is
    free: `reorder` changes the order."""
    changed = update_step(step_id, body, database=services.database, clock=services.clock)
    return answer(as_document(step_shown(changed.id, changed.step)))


@router.delete(STEP_PATH, response_model=Done, responses=refusals(404, 409))
def remove_step(step_id: IdInPath, services: TheServices) -> Response:
    """Take a step out of its configuration. Those behind it move up; the last one stays."""
    delete_step(step_id, database=services.database, clock=services.clock)
    return said(message="Audit step deleted")


@router.get(ONE, response_model=Answer[ConfigShown], responses=refusals(404))
def show(config_id: IdInPath, services: TheServices, *, include_stats: WithStats = False) -> Response:
    """Show one configuration with its steps."""
    with services.database.reading() as session:
        return answer(config_view(session, config_id, Shown(steps=True, stats=include_stats)).document())


@router.put(
    ONE,
    response_model=Answer[ConfigChanged],
    responses=refusals(404),
    openapi_extra=takes(ConfigDocument, partial={}, retire=CHANGE),
)
def update(config_id: IdInPath, body: TheBody, caller: TheCaller, services: TheServices) -> Response:
    """Change the fields that are named; null clears. Steps that are given are all that there will be, with new ids.

    Audits under way keep what they began with.
    """
    changes = {name: value for name, value in body.items() if caller.is_machine or name != "createdBy"}
    stored = update_config(config_id, changes, database=services.database, clock=services.clock)
    return answer({"id": str(stored.id), "name": stored.config.name, "stepsCount": len(stored.step_ids)})


@router.delete(ONE, response_model=Done, responses=refusals(404, 409))
def delete(config_id: IdInPath, services: TheServices) -> Response:
    """Delete a configuration that was never used. Deactivate any other: its audits need it."""
    delete_config(config_id, database=services.database)
    return said(message="Audit config deleted")


@router.post(
    f"{ONE}/steps",
    status_code=201,
    response_model=Answer[ConfigStepShown],
    responses=refusals(404, 409),
    openapi_extra=takes(NewStepDocument, notice=STEP),
)
def append_step(config_id: IdInPath, body: TheBody, services: TheServices, once: DoneOnce) -> Response:
    """Add a step behind the others: at the position that is free, or without naming one."""

    def work() -> Response:
        added = add_step(config_id, body, database=services.database, clock=services.clock)
        return answer(as_document(step_shown(added.id, added.step)), status=201)

    return once(work)


@router.put(
    f"{ONE}/steps/reorder",
    response_model=Answer[list[ConfigStepShown]],
    responses=refusals(404),
    openapi_extra=takes(StepOrder, turned=ORDER),
)
def reorder(config_id: IdInPath, body: TheBody, services: TheServices) -> Response:
    """Put the steps into another order. Every one must be named once."""
    order = parse(StepOrder, body, "Invalid step order").step_ids
    stored = reorder_steps(config_id, order, database=services.database, clock=services.clock)
    return answer([as_document(step) for step in steps_shown(stored.step_ids, stored.config)])


@router.get(f"{ONE}/validate", response_model=Answer[Validity], responses=refusals(404))
def validate(config_id: IdInPath, services: TheServices) -> Response:
    """Look a stored configuration over by the rules for new ones."""
    faults = validate_config(config_id, database=services.database)
    errors = [{"field": field, "message": message} for field, message in faults]
    return answer({"valid": not faults, "errors": errors})


@router.get(f"{ONE}/stats", response_model=Answer[ConfigStats], responses=refusals(404))
def stats(config_id: IdInPath, services: TheServices) -> Response:
    """What became of the audits by it that are not deleted. Averages and the rate are of completed ones."""
    with services.database.reading() as session:
        found = stats_of(session, [config_id])
    if config_id not in found:
        raise unknown_config(config_id)
    return answer(as_document(found[config_id]))
