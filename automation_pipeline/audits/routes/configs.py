"""HTTP endpoints of audit configurations, their steps and imports."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    CallerDep,
    DatabaseDep,
    IdInPath,
    Limit,
    Offset,
    ServicesDep,
)
from automation_pipeline.api.responses import (
    Answer,
    Done,
    FieldFault,
    Listing,
    answer,
    answer_with,
    refusals,
)
from automation_pipeline.api.scopes import with_creator, without_creator
from automation_pipeline.audits.configs import (
    Outcome,
    add_step,
    config_page,
    config_view,
    create_config,
    delete_config,
    delete_step,
    import_config,
    reorder_steps,
    stats_of,
    update_config,
    update_step,
    validate_config,
)
from automation_pipeline.audits.models.configs import (
    MAX_STEPS,
    ConfigDocument,
    ConfigShown,
    ConfigStats,
    ConfigStepDocument,
    ConfigStepShown,
    NewStepDocument,
    config_not_found,
    step_shown,
    steps_shown,
)
from automation_pipeline.audits.models.requests import IdInBody
from automation_pipeline.core.json_model import JsonModel


class StepOrder(JsonModel):
    """The ids of all steps of the configuration, in the new order."""

    step_ids: Annotated[tuple[IdInBody, ...], Field(min_length=1, max_length=MAX_STEPS)]


STEP_EXAMPLE: Mapping[str, object] = {
    "position": 1,
    "name": "Identity and recording notice",
    "prompt": "Check that the advisor introduces the company and says that the call is recorded.",
    "controlPoints": ["Advisor gives first and last name", "Recording announced"],
    "keywords": ["recorded", "ORIAS"],
    "severityLevel": "CRITICAL",
    "isCritical": True,
    "weight": 10,
}
CONFIG_EXAMPLE: Mapping[str, object] = {
    "name": "Sales call compliance",
    "systemPrompt": "You are a quality controller.",
    "runAutomatically": True,
    "steps": [STEP_EXAMPLE],
}
CHANGE_EXAMPLE: Mapping[str, object] = {"description": None, "isActive": False}
STEP_CHANGE_EXAMPLE: Mapping[str, object] = {"weight": 8, "description": None}
ORDER_EXAMPLE: Mapping[str, object] = {"stepIds": ["31", "30", "32"]}


class ConfigCreated(BaseModel):
    id: str = Field(examples=["11"])
    name: str


class ConfigImported(ConfigCreated):
    outcome: Outcome
    stepsCount: int  # noqa: N815  its name in JSON


class ConfigChanged(ConfigCreated):
    stepsCount: int  # noqa: N815  its name in JSON


class Validity(BaseModel):
    """Whether the configuration could be imported unchanged."""

    valid: bool
    errors: list[FieldFault]


router = APIRouter(route_class=GuardedRoute, tags=["audit configurations"])
PATH = "/api/audit-configs"
ONE = f"{PATH}/{{config_id}}"
STEP_PATH = f"{PATH}/steps/{{step_id}}"

WithSteps = Annotated[bool, Query(description="Include the steps.")]
WithStats = Annotated[bool, Query(description="Include the statistics of the audits.")]


@router.get(PATH, response_model=Listing[ConfigShown])
def list_(
    database: DatabaseDep,
    *,
    include_inactive: Annotated[
        bool, Query(description="Include deactivated configurations.")
    ] = False,
    include_steps: WithSteps = False,
    include_stats: WithStats = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the configurations, newest first."""
    found = database.read(
        config_page,
        include_inactive=include_inactive,
        include_steps=include_steps,
        include_stats=include_stats,
        limit=limit,
        offset=offset,
    )
    return answer([one.document() for one in found], count=len(found), limit=limit, offset=offset)


@router.post(PATH, status_code=201, response_model=Answer[ConfigCreated], responses=refusals(409))
def create(
    body: Annotated[JsonObject, json_body(ConfigDocument, sales=CONFIG_EXAMPLE)],
    caller: CallerDep,
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Store a new configuration. The positions of its steps are 1 to n."""

    def work() -> Response:
        stored = create_config(
            with_creator(body, caller), database=services.database, clock=services.clock
        )
        return answer({"id": str(stored.id), "name": stored.config.name}, status=201)

    return once(work)


@router.put(STEP_PATH, response_model=Answer[ConfigStepShown], responses=refusals(404))
def change_step(
    step_id: IdInPath,
    body: Annotated[
        JsonObject, json_body(ConfigStepDocument, partial=True, weigh=STEP_CHANGE_EXAMPLE)
    ],
    services: ServicesDep,
) -> Response:
    """Change the given fields of a step; null clears a field. The only free position is the last
    one: `reorder` changes the order."""
    return answer(
        step_shown(update_step(step_id, body, database=services.database, clock=services.clock))
    )


@router.delete(STEP_PATH, response_model=Done, responses=refusals(404, 409))
def remove_step(step_id: IdInPath, services: ServicesDep) -> Response:
    """Delete a step. The following steps move up. The only step of a configuration cannot be deleted."""
    delete_step(step_id, database=services.database, clock=services.clock)
    return answer_with(message="Audit step deleted")


@router.get(ONE, response_model=Answer[ConfigShown], responses=refusals(404))
def show(
    config_id: IdInPath, database: DatabaseDep, *, include_stats: WithStats = False
) -> Response:
    """Show one configuration with its steps."""
    return answer(database.read(config_view, config_id, include_stats=include_stats).document())


@router.put(ONE, response_model=Answer[ConfigChanged], responses=refusals(404))
def update(
    config_id: IdInPath,
    body: Annotated[JsonObject, json_body(ConfigDocument, partial=True, retire=CHANGE_EXAMPLE)],
    caller: CallerDep,
    services: ServicesDep,
) -> Response:
    """Change the given fields; null clears a field. Given steps replace all steps and get new ids.
    Running audits keep the version that they started with."""
    stored = update_config(
        config_id,
        without_creator(body, caller),
        database=services.database,
        clock=services.clock,
    )
    return answer(
        {"id": str(stored.id), "name": stored.config.name, "stepsCount": len(stored.step_ids)}
    )


@router.delete(ONE, response_model=Done, responses=refusals(404, 409))
def delete(config_id: IdInPath, database: DatabaseDep) -> Response:
    """Delete a configuration without audits. Deactivate a configuration with audits instead."""
    delete_config(config_id, database=database)
    return answer_with(message="Audit config deleted")


@router.post(
    f"{ONE}/steps",
    status_code=201,
    response_model=Answer[ConfigStepShown],
    responses=refusals(404, 409),
)
def append_step(
    config_id: IdInPath,
    body: Annotated[JsonObject, json_body(NewStepDocument, notice=STEP_EXAMPLE)],
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Add a step at the end or, with a position, at a free position."""
    return once(
        lambda: answer(
            step_shown(add_step(config_id, body, database=services.database, clock=services.clock)),
            status=201,
        )
    )


@router.put(
    f"{ONE}/steps/reorder", response_model=Answer[list[ConfigStepShown]], responses=refusals(404)
)
def reorder(
    config_id: IdInPath,
    given: Annotated[StepOrder, json_body(StepOrder, "Invalid step order", turned=ORDER_EXAMPLE)],
    services: ServicesDep,
) -> Response:
    """Reorder the steps. The request names every step once."""
    return answer(
        steps_shown(
            reorder_steps(
                config_id, given.step_ids, database=services.database, clock=services.clock
            )
        )
    )


@router.get(f"{ONE}/validate", response_model=Answer[Validity], responses=refusals(404))
def validate(config_id: IdInPath, database: DatabaseDep) -> Response:
    """Check a stored configuration against the rules for new ones."""
    faults = validate_config(config_id, database=database)
    return answer(
        {
            "valid": not faults,
            "errors": [{"field": field, "message": message} for field, message in faults],
        }
    )


@router.get(f"{ONE}/stats", response_model=Answer[ConfigStats], responses=refusals(404))
def stats(config_id: IdInPath, database: DatabaseDep) -> Response:
    """Show statistics of its audits without the deleted ones. Averages and the rate count completed audits."""
    found = database.read(stats_of, [config_id])
    if config_id not in found:
        raise config_not_found(config_id)
    return answer(found[config_id])


@router.post(f"{PATH}/import", response_model=Answer[ConfigImported], responses=refusals(409))
def import_(
    body: Annotated[JsonObject, json_body(ConfigDocument, sales=CONFIG_EXAMPLE)],
    caller: CallerDep,
    services: ServicesDep,
    once: OncePerKey,
    *,
    update: Annotated[
        bool,
        Query(description="Replace the configuration of the same name if its content differs."),
    ] = False,
) -> Response:
    """Store a configuration under its name. The same content again changes nothing; other content
    is a conflict unless `update` replaces it."""
    given = without_creator(body, caller)

    def work() -> Response:
        imported = import_config(
            given, update=update, database=services.database, clock=services.clock
        )
        config = imported.config
        return answer(
            {
                "id": str(imported.id),
                "name": config.name,
                "outcome": imported.outcome.value,
                "stepsCount": len(config.steps),
            }
        )

    return once(work)
