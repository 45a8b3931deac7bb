"""What requests about organisations name: one of them, a schedule, and what lists are narrowed to."""

import re
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator, BeforeValidator, Field

from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.org_jobs.domain.organisation import LONGEST_ID, id_fault
from automation_pipeline.org_jobs.domain.preview import MOST_RUNS

_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_FIRST_YEAR, _LAST_YEAR = 1970, 2200


def _org_name(given: object) -> object:
    fault = id_fault(given) if isinstance(given, str) else None
    if fault is not None:
        raise ValueError(fault)
    return given


def _uuid(given: object) -> object:
    if isinstance(given, str) and not re.fullmatch(_UUID, given):
        raise ValueError("must be a UUID, such as 6f1c2f7e-4a38-4c0b-9d53-0a4f6d3f8b21")
    return given.lower() if isinstance(given, str) else given


def _zoned(instant: datetime) -> datetime:
    """Without a time zone it is UTC."""
    if not _FIRST_YEAR <= instant.year <= _LAST_YEAR:
        raise ValueError(f"must lie in the years {_FIRST_YEAR} to {_LAST_YEAR}")
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


_OrgName = Annotated[
    Annotated[str, Field(pattern=r"^[a-z0-9](-?[a-z0-9])*$", max_length=LONGEST_ID)], BeforeValidator(_org_name)
]
_Uuid = Annotated[Annotated[str, Field(pattern=_UUID)], BeforeValidator(_uuid)]

OrgInPath = Annotated[_OrgName, Path(examples=["acme"])]
ScheduleInPath = Annotated[_Uuid, Path(examples=["6f1c2f7e-4a38-4c0b-9d53-0a4f6d3f8b21"])]
MadeForOrg = Annotated[
    _OrgName | None,
    Query(
        alias="org",
        description="The organisation that it is made for. A token of an organisation needs no word.",
        examples=["acme"],
    ),
]
OneOrg = Annotated[_OrgName | None, Query(alias="org", description="Only of this organisation.")]
OneSchedule = Annotated[_Uuid | None, Query(alias="schedule", description="Only of this schedule.")]
OneServer = Annotated[int | None, Query(alias="server", ge=1, le=LARGEST_ID, description="Only about this server.")]
OneBatch = Annotated[int | None, Query(alias="batch", ge=1, le=LARGEST_ID, description="Only of this backfill.")]
OneHost = Annotated[int | None, Query(alias="host", ge=1, le=LARGEST_ID, description="Only on this host.")]
PartOfName = Annotated[str | None, Query(max_length=200, description="Part of the name.")]
AfterId = Annotated[int, Query(ge=0, le=LARGEST_ID, description="Only what follows the entry of this id.")]
Coming = Annotated[int, Query(alias="count", ge=1, le=MOST_RUNS, description="So many coming times.")]
After = Annotated[
    Annotated[datetime, AfterValidator(_zoned)] | None,
    Query(description=f"Start from this instant instead of now, in the years {_FIRST_YEAR} to {_LAST_YEAR}."),
]
Newest = Annotated[bool, Query(description="Newest first; `after` is then what comes before, in time.")]
