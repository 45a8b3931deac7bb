"""Organisations, their hosts and servers, the audit log, and the fields that people write."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import (
    ID_DIGITS,
    ID_SCHEMA,
    Id,
    Instant,
    JsonModel,
    as_document,
    parse,
)
from automation_pipeline.core.scheduling.cron import Cron
from automation_pipeline.core.scheduling.zones import zone

LONGEST_NAME = 200
LONGEST_CRON = 255
LONGEST_DESCRIPTION = 2000
DAY_MINUTES = 24 * 60

_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt _].*)?", re.DOTALL)
_EXAMPLE = "such as 2026-05-04T02:00:00Z"


def refused_by(
    fault_of: Callable[[Any], str | None],
    validator: type[AfterValidator | BeforeValidator] = AfterValidator,
) -> AfterValidator | BeforeValidator:
    """Reject a value with a fault, and return any other value unchanged."""

    def checked(value: object) -> object:
        fault = fault_of(value)
        if fault is not None:
            raise ValueError(fault)
        return value

    return validator(checked)


def matching(pattern: str, fault: str) -> AfterValidator | BeforeValidator:
    """Reject a text that does not match the whole pattern."""
    return refused_by(lambda text: None if re.fullmatch(pattern, text) else fault)


def _name(text: str) -> str:
    name = text.strip()
    if not name:
        raise ValueError("must not be empty")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"must have at most {LONGEST_NAME} characters")
    return name


def _id_fault(given: object) -> str | None:
    is_number = isinstance(given, int) and not isinstance(given, bool)
    if is_number or (isinstance(given, str) and re.fullmatch(ID_DIGITS, given)):
        return None
    return "must be a whole number, or its digits as a string"


def _instant_fault(given: object) -> str | None:
    """Pydantic reads numbers, and texts of numbers, as seconds or milliseconds since 1970."""
    if isinstance(given, datetime) or (isinstance(given, str) and _ISO.fullmatch(given)):
        return None
    return f"must be a date and time with its time zone, {_EXAMPLE}"


def _in_utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"must have a time zone, {_EXAMPLE}")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the calendar") from None


def _fault_by(reader: Callable[[str], object]) -> Callable[[str], str | None]:
    def fault_of(text: str) -> str | None:
        try:
            reader(text)
        except InvalidInputError as error:
            return str(error)
        return None

    return fault_of


Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
Name = Annotated[str, AfterValidator(_name)]
KnownId = Annotated[
    Id,
    Field(ge=1),
    refused_by(_id_fault, BeforeValidator),
    WithJsonSchema(ID_SCHEMA, mode="validation"),
]
ZonedInstant = Annotated[
    Instant, AfterValidator(_in_utc), refused_by(_instant_fault, BeforeValidator)
]
CronText = Annotated[str, Field(max_length=LONGEST_CRON), refused_by(_fault_by(Cron.parse))]
TimeZone = Annotated[str, Field(max_length=LONGEST_CRON), refused_by(_fault_by(zone))]
TimeOfDay = Annotated[
    str,
    matching(
        r"([01][0-9]|2[0-3]):[0-5][0-9]",
        "must be a time of day as HH:MM, between 00:00 and 23:59",
    ),
]
# The type of the job decides what its payload contains.
Payload = Annotated[
    dict[str, object],
    refused_by(
        lambda given: None if isinstance(given, dict) else "must be an object", BeforeValidator
    ),
]


@dataclass(frozen=True)
class OrgScope:
    """The organisation that a caller can access. None: all organisations."""

    org_id: str | None

    def includes(self, org_id: str) -> bool:
        return self.org_id is None or self.org_id == org_id


ALL_ORGANISATIONS = OrgScope(None)

LONGEST_ID = 40
MOST_RUNNING = 1000

_ID = re.compile(r"[a-z0-9](-?[a-z0-9])*")


def id_fault(text: str) -> str | None:
    if len(text) > LONGEST_ID:
        return f"must have at most {LONGEST_ID} characters"
    if not _ID.fullmatch(text):
        return "must consist of lower-case letters a-z and digits, with single hyphens between them, such as acme-eu"
    return None


class OrganisationFields(JsonModel):
    """The changeable fields of an organisation. Jobs that are due during its maintenance are skipped."""

    name: Name = Field(description="A name for people.")
    max_running: Annotated[Whole, Field(ge=1, le=MOST_RUNNING)] = Field(
        default=10,
        description="The maximum number of its jobs that run at the same time.",
    )
    maintenance_until: ZonedInstant | None = Field(
        default=None, description="Jobs that are due before this time are skipped."
    )


class OrganisationInput(OrganisationFields):
    id: Annotated[str, refused_by(id_fault)] = Field(
        description="A short name, which cannot be changed.", examples=["acme"]
    )


class Organisation(OrganisationFields):
    id: str
    suspended_at: Instant | None = None
    suspend_reason: str | None = None
    created_at: Instant
    updated_at: Instant


class HostInput(JsonModel):
    """A machine that an agent works on."""

    name: Name = Field(description="A name for people, unique in the organisation.")
    maintenance_until: ZonedInstant | None = Field(
        default=None, description="Jobs on its servers that are due before this time are skipped."
    )


class Host(HostInput):
    """`last_seen_at` is the last call of its agent."""

    id: Id
    org_id: str
    last_seen_at: Instant | None = None
    agent_version: str | None = None
    created_at: Instant
    updated_at: Instant


class ServerInput(JsonModel):
    """A server that agents' jobs work on."""

    name: Name = Field(description="A name for people, unique in the organisation.")
    host_id: KnownId | None = Field(
        default=None, description="The host of the server. Without a host, its jobs wait."
    )
    is_enabled: Flag = Field(
        default=True, description="Jobs that are due on a disabled server are skipped."
    )


class Server(ServerInput):
    id: Id
    org_id: str
    created_at: Instant
    updated_at: Instant


class AuditEntry(JsonModel):
    """`before` and `after` contain the changed fields only."""

    id: Id
    org_id: str
    actor: str
    action: str
    entity: str
    entity_id: str
    before: dict[str, Any] | None  # Any: JSON
    after: dict[str, Any] | None  # Any: JSON
    reason: str | None
    at: Instant


Fields = TypeVar("Fields", bound=JsonModel)


def changed_fields(
    model: type[Fields], stored: JsonModel, patch: Mapping[str, object], noun: str
) -> Fields:
    """The stored fields merged with those of the patch. Raises InvalidInputError, which names every invalid field."""
    written = written_fields(model, stored)
    try:
        return parse(model, {**written, **patch}, f"Invalid {noun}")
    except InvalidInputError as error:
        nulls = {name for name in written if name in patch and patch[name] is None}
        never_null = "cannot be null: omit it to keep it"
        faults = tuple((name, never_null if name in nulls else why) for name, why in error.fields)
        raise InvalidInputError(str(error), faults) from None


def written_fields(model: type[JsonModel], stored: JsonModel) -> dict[str, object]:
    """The fields of a stored value that people write, in the format in which they write them."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    return {name: value for name, value in as_document(stored).items() if name in names}


def differences(
    before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    names = [name for name in after if before.get(name) != after[name]]
    return {name: before.get(name) for name in names}, {name: after[name] for name in names}
