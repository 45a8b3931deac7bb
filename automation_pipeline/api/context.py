"""What endpoints ask for: the services, the caller, and how far the caller reaches."""

import re
from typing import Annotated, cast

from fastapi import Depends, Path, Query
from pydantic import BeforeValidator, Field
from starlette.requests import Request

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, Reach
from automation_pipeline.core.json_model import LARGEST_ID


# Async, because what is not waits for a thread: `/health` answers also when none is free.
async def _services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


async def _caller(request: Request) -> Caller:
    return cast("Caller", request.state.caller)


async def _reach(request: Request) -> Reach:
    return cast("Reach", request.state.reach)


TheServices = Annotated[Services, Depends(_services)]
TheCaller = Annotated[Caller, Depends(_caller)]
TheReach = Annotated[Reach, Depends(_reach)]

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
