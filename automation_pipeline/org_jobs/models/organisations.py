"""Organisations, their hosts and servers, audit log entries, and how far a caller reaches."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel, as_document, parse
from automation_pipeline.org_jobs.models.fields import Flag, KnownId, Name, Whole, ZonedInstant


@dataclass(frozen=True)
class OrgScope:
    """`org_id` is None for whoever runs the whole system."""

    org_id: str | None

    def includes(self, org_id: str) -> bool:
        return self.org_id is None or self.org_id == org_id


ALL_ORGANISATIONS = OrgScope(None)


LONGEST_ID = 40
MOST_RUNNING = 1000
DEFAULT_RUNNING = 10

_ID = re.compile(r"[a-z0-9](-?[a-z0-9])*")
_NEVER_NULL = "cannot be null: leave it out to keep it"


def id_fault(text: str) -> str | None:
    """Why no organisation can have this id."""
    if len(text) > LONGEST_ID:
        return f"must have at most {LONGEST_ID} characters"
    if not _ID.fullmatch(text):
        return "must be made of small letters a-z and digits, with single hyphens between them, such as acme-eu"
    return None


def _org_id(text: str) -> str:
    fault = id_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


OrgId = Annotated[str, AfterValidator(_org_id)]


class OrganisationFields(JsonModel):
    """What may be changed of an organisation. While its maintenance lasts, what is due is left
    out."""

    name: Name = Field(description="What people know it by.")
    max_running: Annotated[Whole, Field(ge=1, le=MOST_RUNNING)] = Field(
        default=DEFAULT_RUNNING,
        description="How many of its jobs are at work at the same time, at most.",
    )
    maintenance_until: ZonedInstant | None = Field(
        default=None, description="What is due before is left out."
    )


class OrganisationInput(OrganisationFields):
    id: OrgId = Field(description="A short name, for good.", examples=["acme"])


class Organisation(OrganisationFields):
    id: str
    suspended_at: Instant | None = None
    suspend_reason: str | None = None
    created_at: Instant
    updated_at: Instant


class HostInput(JsonModel):
    """A machine that an agent works on."""

    name: Name = Field(description="What people know it by; one of its organisation has it.")
    maintenance_until: ZonedInstant | None = Field(
        default=None, description="What is due before on its servers is left out."
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
    """What jobs of agents are about."""

    name: Name = Field(description="What people know it by; one of its organisation has it.")
    host_id: KnownId | None = Field(
        default=None, description="Without one, its jobs wait until it has one."
    )
    is_enabled: Flag = Field(
        default=True, description="What is due on one that is not enabled is left out."
    )


class Server(ServerInput):
    id: Id
    org_id: str
    created_at: Instant
    updated_at: Instant


Fields = TypeVar("Fields", bound=JsonModel)


def complaint(noun: str) -> str:
    return f"Invalid {noun}"


def given_fields(model: type[Fields], given: Mapping[str, object], noun: str) -> Fields:
    """InvalidInputError names every field at fault."""
    return parse(model, given, complaint(noun))


def changed_fields(
    model: type[Fields], stored: JsonModel, patch: Mapping[str, object], noun: str
) -> Fields:
    """What the patch does not name stays as it is stored; null clears what may be null."""
    said = written_fields(model, stored)
    try:
        return parse(model, {**said, **patch}, complaint(noun))
    except InvalidInputError as error:
        nulls = {name for name in said if name in patch and patch[name] is None}
        faults = tuple((name, _NEVER_NULL if name in nulls else why) for name, why in error.fields)
        raise InvalidInputError(complaint(noun), faults) from None


def written_fields(model: type[JsonModel], stored: JsonModel) -> dict[str, object]:
    """What people write of it, as they do."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    return {name: value for name, value in as_document(stored).items() if name in names}


class AuditEntry(JsonModel):
    """`before` and `after` hold what was changed, and nothing else."""

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


def differences(
    before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    """Only the fields that differ, as they were and as they are."""
    names = [name for name in after if before.get(name) != after[name]]
    return {name: before.get(name) for name in names}, {name: after[name] for name in names}
