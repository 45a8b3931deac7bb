"""Parameters that routes share: services, caller, ids, paging, days."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict, cast

from fastapi import Depends, Path, Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from starlette.requests import Request

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, Reach
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.fiches.models.days import FIRST_YEAR, LAST_YEAR
from automation_pipeline.org_jobs.models.organisations import LONGEST_ID, id_fault
from automation_pipeline.org_jobs.rules.schedules import MOST_RUNS
from automation_pipeline.storage.database import Database


# Async, because a plain function would wait for a free thread, and `/health` must not.
async def get_services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


async def get_database(request: Request) -> Database:
    services = cast("Services", request.app.state.services)
    return services.database


async def get_caller(request: Request) -> Caller:
    return cast("Caller", request.state.caller)


async def get_reach(request: Request) -> Reach:
    return cast("Reach", request.state.reach)


TheServices = Annotated[Services, Depends(get_services)]
TheDatabase = Annotated[Database, Depends(get_database)]
TheCaller = Annotated[Caller, Depends(get_caller)]
TheReach = Annotated[Reach, Depends(get_reach)]


class Context(TypedDict):
    """The arguments of every use case that makes a change on behalf of a caller."""

    database: Database
    clock: Clock
    actor: str


async def get_context(caller: TheCaller, services: TheServices) -> Context:
    return {"database": services.database, "clock": services.clock, "actor": caller.id}


TheContext = Annotated[Context, Depends(get_context)]

# Ids in paths are written one way: scopes are checked by the same words. Anything else is a 400
# that says so.
ID = re.compile(r"[1-9][0-9]{0,18}")
NO_ID = "must be a whole number from 1, in digits alone"


def matching(pattern: str, complaint: str) -> BeforeValidator:
    """Checks a text before its model does, with a complaint that is easier to read."""

    def check(given: object) -> object:
        if isinstance(given, str) and not re.fullmatch(pattern, given):
            raise ValueError(complaint)
        return given

    return BeforeValidator(check)


IdInPath = Annotated[
    Annotated[int, Field(ge=1, le=LARGEST_ID)], matching(ID.pattern, NO_ID), Path(examples=["12"])
]
FicheInPath = Annotated[
    str,
    Path(pattern=r"^[0-9]{1,32}$", examples=["1900417"], description="The fiche's id in the CRM."),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Offset = Annotated[int, Query(ge=0, le=1_000_000_000, description="Leave out the first so many.")]


class Pagination(BaseModel):
    total: int
    limit: int
    offset: int
    current_page: int
    total_pages: int
    has_next_page: bool
    has_prev_page: bool


def pagination(total: int, limit: int, offset: int) -> dict[str, int | bool]:
    """Pages count from 1, also in an empty list."""
    pages = max(1, -(-total // limit))
    return {
        "total": total,
        "limit": limit,
        "offset": offset,
        "current_page": offset // limit + 1,
        "total_pages": pages,
        "has_next_page": offset + limit < total,
        "has_prev_page": offset > 0,
    }


def query_parameters(model: type[BaseModel]) -> dict[str, Any]:  # Any: a piece of the document
    """For `openapi_extra`: the fields of the model are query parameters. An empty one counts as
    missing."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    required: list[str] = schema.get("required", [])
    return {
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": name in required,
                "schema": field,
                "allowEmptyValue": True,
            }
            for name, field in schema["properties"].items()
        ]
    }


# A pattern in addition to the format would leave generators of test values too few values.
_SCHEMA = {"type": "string", "format": "date"}


def day_parameters(**described: str) -> dict[str, Any]:  # Any: JSON
    """For `openapi_extra`: required query parameters that are days."""
    return {
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": True,
                "description": f"{description} From {FIRST_YEAR} to {LAST_YEAR}.",
                "schema": _SCHEMA,
                "example": "2026-02-03",
            }
            for name, description in described.items()
        ]
    }


_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_FIRST_YEAR, _LAST_YEAR = 1970, 2200


def _org_name(given: object) -> object:
    fault = id_fault(given) if isinstance(given, str) else None
    if fault is not None:
        raise ValueError(fault)
    return given


def _zoned(instant: datetime) -> datetime:
    """UTC without a time zone."""
    if not _FIRST_YEAR <= instant.year <= _LAST_YEAR:
        raise ValueError(f"must lie in the years {_FIRST_YEAR} to {_LAST_YEAR}")
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


_OrgName = Annotated[
    Annotated[str, Field(pattern=r"^[a-z0-9](-?[a-z0-9])*$", max_length=LONGEST_ID)],
    BeforeValidator(_org_name),
]
_Uuid = Annotated[
    Annotated[str, Field(pattern=_UUID)],
    matching(_UUID, "must be a UUID, such as 6f1c2f7e-4a38-4c0b-9d53-0a4f6d3f8b21"),
    AfterValidator(str.lower),
]

OrgInPath = Annotated[_OrgName, Path(examples=["acme"])]
ScheduleInPath = Annotated[_Uuid, Path(examples=["6f1c2f7e-4a38-4c0b-9d53-0a4f6d3f8b21"])]
TargetOrg = Annotated[
    _OrgName | None,
    Query(
        alias="org",
        description="The organisation that it is made for. A token of an organisation needs no word.",
        examples=["acme"],
    ),
]
OrgFilter = Annotated[_OrgName | None, Query(alias="org", description="Only of this organisation.")]
OrgScheduleFilter = Annotated[
    _Uuid | None, Query(alias="schedule", description="Only of this schedule.")
]
ServerFilter = Annotated[
    int | None, Query(alias="server", ge=1, le=LARGEST_ID, description="Only about this server.")
]
BackfillFilter = Annotated[
    int | None, Query(alias="batch", ge=1, le=LARGEST_ID, description="Only of this backfill.")
]
HostFilter = Annotated[
    int | None, Query(alias="host", ge=1, le=LARGEST_ID, description="Only on this host.")
]
NameFilter = Annotated[str | None, Query(max_length=200, description="Part of the name.")]
AfterId = Annotated[
    int, Query(ge=0, le=LARGEST_ID, description="Only what follows the entry of this id.")
]
OccurrenceCount = Annotated[
    int, Query(alias="count", ge=1, le=MOST_RUNS, description="So many coming times.")
]
After = Annotated[
    Annotated[datetime, AfterValidator(_zoned)] | None,
    Query(
        description=f"Start from this instant instead of now, in the years {_FIRST_YEAR} to {_LAST_YEAR}."
    ),
]
NewestFirst = Annotated[
    bool, Query(description="Newest first; `after` is then what comes before, in time.")
]
