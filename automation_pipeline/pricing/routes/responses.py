"""Responses and parameters that the pricing routes share."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import Response

from automation_pipeline.api.responses import answer
from automation_pipeline.automation.models.schedules import KnownId
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.json_model import LARGEST_ID, JsonModel
from automation_pipeline.pricing.models.rules import MAX_PROJECT_LENGTH, Policy
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.transforms import Flag
from automation_pipeline.pricing.shop import is_shop_paused

_PATTERN = rf"^[A-Za-z0-9._-]{{1,{MAX_PROJECT_LENGTH}}}$"
_NAME = re.compile(_PATTERN)


def _project_name(given: object) -> object:
    if isinstance(given, str) and not _NAME.fullmatch(given):
        raise ValueError(
            f"must be 1 to {MAX_PROJECT_LENGTH} of the letters A to Z, digits, dots, dashes and underscores"
        )
    return given


ProjectName = Annotated[Annotated[str, Field(pattern=_PATTERN)], BeforeValidator(_project_name)]
ProjectInPath = Annotated[ProjectName, Path(examples=["default"])]
Project = Annotated[ProjectName | None, Query(description="Only entries of this project.")]
ItsProject = Annotated[ProjectName, Query(description="The project.")]
RuleId = Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="Only entries of this rule.")]
RunId = Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="Only entries of this run.")]
AfterId = Annotated[int, Query(ge=0, le=LARGEST_ID, description="Only entries after this id.")]


SALE: Mapping[str, object] = {
    "name": "Spring sale",
    "selector": {"and": [{"tag": ["spring"]}, {"price": {"gte": 1000, "currency": "EUR"}}]},
    "transform": {
        "op": "percent",
        "value": -10,
        "floor": 900,
        "ending": ".99",
        "compareAt": "before",
    },
    "currency": "EUR",
    "scheduleAt": "2027-03-20T07:00:00Z",
    "endsAt": "2027-03-27T07:00:00Z",
}
FORCED: Mapping[str, object] = {"force": True}
CHANGE: Mapping[str, object] = {"enabled": False, "endsAt": None}
GUARDRAILS: Mapping[str, object] = {
    "maxPctDelta": 0.15,
    "floor": 500,
    "currency": "EUR",
    "dailyChangeBudgetPct": 0.25,
}


class Force(JsonModel):
    """`force` skips the cooldown of the rule."""

    force: Flag = False


class PolicyShown(Policy):
    """A policy with all its fields."""


MOST_TARGETS = 10_000
SOME: Mapping[str, object] = {"targetIds": ["118", "121"]}

TargetIds = Annotated[tuple[KnownId, ...], Field(min_length=1, max_length=MOST_TARGETS)]


class TargetInput(JsonModel):
    """Without `targetIds`, all eligible targets. `force` includes targets that are otherwise
    refused as not retryable or unsafe."""

    target_ids: TargetIds | None = None
    force: Flag = False


class RunAnswer(BaseModel):
    """`shopPaused`: no price is written until the shop is resumed."""

    success: Literal[True] = True
    data: RuleRun
    shopPaused: bool  # noqa: N815  its name in JSON


def shown_run(run: RuleRun, services: Services, *, status: int = 200) -> Response:
    """While the shop is paused, a run waits; a request for it is not an error."""
    return answer(run, status=status, shopPaused=services.database.read(is_shop_paused, run.shop))
