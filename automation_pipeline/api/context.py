"""What endpoints ask for: the services, the caller, how far the caller reaches, and the JSON body."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, cast

from fastapi import Depends, Path, Query
from pydantic import BeforeValidator, Field
from starlette.requests import Request

from automation_pipeline.api.errors import InvalidJsonError
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, Reach
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID


# Async, because what is not waits for a thread: `/health` answers also when none is free.
async def _services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


async def _caller(request: Request) -> Caller:
    return cast("Caller", request.state.caller)


async def _reach(request: Request) -> Reach:
    return cast("Reach", request.state.reach)


async def _body(request: Request) -> Mapping[str, object]:
    """The JSON object that was sent."""
    try:
        document: object = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise InvalidJsonError("The body is not valid JSON") from None
    if not isinstance(document, dict):
        raise InvalidInputError("The body must be a JSON object")
    return cast("dict[str, object]", document)


async def _optional_body(request: Request) -> Mapping[str, object]:
    """The JSON object that was sent; empty when nothing was."""
    return await _body(request) if await request.body() else {}


TheServices = Annotated[Services, Depends(_services)]
TheCaller = Annotated[Caller, Depends(_caller)]
TheReach = Annotated[Reach, Depends(_reach)]
TheBody = Annotated[Mapping[str, object], Depends(_body)]
OptionalBody = Annotated[Mapping[str, object], Depends(_optional_body)]

# Ids in paths are written one way: scopes are checked by the same words. Anything else is a 400 that says so.
ID = re.compile(r"[1-9][0-9]{0,18}")
NO_ID = "must be a whole number from 1, in digits alone"


def _written_out(given: object) -> object:
    if isinstance(given, str) and not ID.fullmatch(given):
        raise ValueError(NO_ID)
    return given


IdInPath = Annotated[Annotated[int, Field(ge=1, le=LARGEST_ID)], BeforeValidator(_written_out), Path(examples=["12"])]
FicheInPath = Annotated[
    str, Path(pattern=r"^[0-9]{1,32}$", examples=["1900417"], description="The fiche's id in the CRM.")
]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Offset = Annotated[int, Query(ge=0, le=1_000_000_000, description="Leave out the first so many.")]
