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


# Async, because FastAPI runs a plain function in a thread, and `/health` must not wait for a free one.
async def get_services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


async def get_database(request: Request) -> Database:
    services = cast("Services", request.app.state.services)
    return services.database


async def get_caller(request: Request) -> Caller:
    return cast("Caller", request.state.caller)


async def get_reach(request: Request) -> Reach:
    return cast("Reach", request.state.reach)


ServicesDep = Annotated[Services, Depends(get_services)]
DatabaseDep = Annotated[Database, Depends(get_database)]
CallerDep = Annotated[Caller, Depends(get_caller)]
ReachDep = Annotated[Reach, Depends(get_reach)]


class Context(TypedDict):
    """The arguments of use cases that record the caller."""

    database: Database
    clock: Clock
    actor: str


async def get_context(caller: CallerDep, services: ServicesDep) -> Context:
    return {"database": services.database, "clock": services.clock, "actor": caller.id}


ContextDep = Annotated[Context, Depends(get_context)]

# An id in a path has one spelling, so that the scope check and the endpoint cannot read it differently.
# Any other spelling is a 400.
ID = re.compile(r"[1-9][0-9]{0,18}")
NO_ID = "must be a whole number from 1, in digits alone"


def matching(pattern: str, message: str) -> BeforeValidator:
    """Check a text with a message that is easier to read than the model's own."""

    def check(given: object) -> object:
        if isinstance(given, str) and not re.fullmatch(pattern, given):
            raise ValueError(message)
        return given

    return BeforeValidator(check)


IdInPath = Annotated[
    Annotated[int, Field(ge=1, le=LARGEST_ID)], matching(ID.pattern, NO_ID), Path(examples=["12"])
]
FicheInPath = Annotated[
    str,
    Path(pattern=r"^[0-9]{1,32}$", examples=["1900417"], description="The fiche's id in the CRM."),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="The maximum number of entries.")]
Offset = Annotated[int, Query(ge=0, le=1_000_000_000, description="The number of entries to skip.")]


class Pagination(BaseModel):
    total: int
    limit: int
    offset: int
    current_page: int
    total_pages: int
    has_next_page: bool
    has_prev_page: bool


def pagination(total: int, limit: int, offset: int) -> dict[str, int | bool]:
    """Pages are numbered from 1. An empty list has one page."""
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


def query_parameters(model: type[BaseModel]) -> dict[str, Any]:  # Any: JSON
    """Describe the fields of a model as query parameters, for `openapi_extra`. The endpoint treats an
    empty parameter as missing."""
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


# Without a pattern: schemathesis generates too few values for a schema with both.
_SCHEMA = {"type": "string", "format": "date"}


def day_parameters(**described: str) -> dict[str, Any]:  # Any: JSON
    """Describe required query parameters that are days, for `openapi_extra`."""
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
    """Return the instant in UTC, which is also the default time zone."""
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
        description="The organisation of the new object. Tokens of an organisation may omit it.",
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
    int, Query(ge=0, le=LARGEST_ID, description="Only entries after the one with this id.")
]
OccurrenceCount = Annotated[
    int, Query(alias="count", ge=1, le=MOST_RUNS, description="The number of times to list.")
]
After = Annotated[
    Annotated[datetime, AfterValidator(_zoned)] | None,
    Query(
        description=f"Start from this instant instead of now, in the years {_FIRST_YEAR} to {_LAST_YEAR}."
    ),
]
NewestFirst = Annotated[
    bool, Query(description="List the newest entries first. `after` then selects older entries.")
]
