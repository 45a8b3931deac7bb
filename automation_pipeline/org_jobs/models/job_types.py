"""Job types: those of this system, the built-in types of agents, and those of an organisation.

A type of an agent is data: a name, limits and an optional JSON Schema of the payload. An
organisation adds types, or replaces a built-in one for itself; see ADR 0026.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, NoReturn, cast

import jsonschema_rs
from pydantic import AfterValidator, BeforeValidator, Field

from automation_pipeline.core.access import Permission
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import (
    Instant,
    JsonModel,
    as_document,
    escape_surrogates,
    is_deeper,
    parse,
    text_fault,
)
from automation_pipeline.org_jobs.models.jobs import JobType, Performer
from automation_pipeline.org_jobs.models.organisations import Flag, Whole, refused_by
from automation_pipeline.org_jobs.models.payloads import (
    AUTOMATION_RUN,
    COMPANY_ENRICHMENT,
    DEEPEST,
    HTTPS_CALL,
    LONGEST_PAYLOAD_KEY,
    PRICING_RULE_APPLY,
    AutomationRunPayload,
    CompanyEnrichmentPayload,
    HttpsCallPayload,
    PayloadFault,
    PricingRulePayload,
    payload_faults,
    reference_in,
    texts_in,
)

Schema = Mapping[str, object]

LARGEST_PAYLOAD = 256 * 1024
SHORT, USUAL, LONG = 180, 900, 86_400

# The summary of each type, the model of its payload, and the permission that a caller needs in
# addition to `org-jobs`.
_SERVICE_TYPES: Mapping[str, tuple[str, type[JsonModel], Permission | None]] = {
    AUTOMATION_RUN: (
        "Run an automation schedule, and wait for its end.",
        AutomationRunPayload,
        Permission.AUTOMATION,
    ),
    PRICING_RULE_APPLY: (
        "Plan a pricing rule and apply it, and wait for its end.",
        PricingRulePayload,
        Permission.PRICING_RUNS,
    ),
    COMPANY_ENRICHMENT: (
        "Request a company from the French registers, and wait for the result.",
        CompanyEnrichmentPayload,
        Permission.ENRICHMENT,
    ),
    HTTPS_CALL: ("Call a public address over HTTPS.", HttpsCallPayload, None),
}


def _requires(field: str, pattern: str, longest: int) -> Schema:
    text = {"type": "string", "maxLength": longest, "pattern": pattern}
    return {"type": "object", "required": [field], "properties": {field: text}}


_ONE_LINE = r"^[^\r\n]*\S[^\r\n]*$"
_COMMAND = _requires("command", _ONE_LINE, 1000)
_MESSAGE = _requires("message", _ONE_LINE, 1000)
_PLAYER = _requires("player", _ONE_LINE, 200)
_QUERY = _requires("query", _ONE_LINE, 200)
# A name, never a path.
_SAVE = _requires("save", r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", 120)
_PROFILE = _requires("profile", r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", 120)
_MOD = _requires("mod", r"^[A-Za-z0-9][A-Za-z0-9 ._:@+-]*$", 120)

# The types of the original system: the summary and the payload schema of each.
_AGENT_TYPES: Mapping[str, tuple[str, Schema | None]] = {
    "SERVER_START": ("Start the server.", None),
    "SERVER_STOP": ("Stop the server after a warning to its players.", None),
    "SERVER_KILL": ("End the server's process at once.", None),
    "SERVER_RESTART": ("Stop the server and start it again.", None),
    "SERVER_SAFE_RESTART": ("Back up, then restart when few players are online.", None),
    "SERVER_WIPE_SAVE": ("Remove the save, so that the world starts from scratch.", None),
    "RCON": ("Send a command over the remote console.", _COMMAND),
    "SEND_COMMAND": ("Type a command into the server's own console.", _COMMAND),
    "SAVE_LIST": ("List the saves and backups.", None),
    "SAVE_BACKUP": ("Back up the save.", None),
    "SAVE_RESTORE": ("Restore a backup.", _SAVE),
    "SAVE_DELETE": ("Remove a backup.", _SAVE),
    "SAVE_RETENTION": ("Remove old backups.", None),
    "REGION_HEALER_SCAN": ("Check the map for damaged regions.", None),
    "REGION_HEALER_HEAL": ("Replace damaged regions from a backup.", None),
    "PLAYER_LIST": ("List the players who are online.", None),
    "PLAYER_KICK": ("Disconnect a player.", _PLAYER),
    "PLAYER_BAN": ("Disconnect and ban a player.", _PLAYER),
    "PLAYER_UNBAN": ("Admit a banned player again.", _PLAYER),
    "PLAYER_WHITELIST": ("Add a player to the allow list.", _PLAYER),
    "PLAYER_UNWHITELIST": ("Remove a player from the allow list.", _PLAYER),
    "PLAYER_MESSAGE": ("Send a message to a player, or to all.", _MESSAGE),
    "MOD_LIST": ("List the installed mods.", None),
    "MOD_SEARCH": ("Search the catalogue for mods.", _QUERY),
    "MOD_INSTALL": ("Install a mod.", _MOD),
    "MOD_UNINSTALL": ("Remove a mod.", _MOD),
    "MOD_ENABLE": ("Enable a mod.", _MOD),
    "MOD_DISABLE": ("Disable a mod.", _MOD),
    "MOD_UPDATE": ("Update a mod.", _MOD),
    "MOD_UPDATE_ALL": ("Update all mods.", None),
    "PROFILE_LIST": ("List the profiles: sets of mods and settings.", None),
    "PROFILE_APPLY": ("Apply a profile.", _PROFILE),
    "PROFILE_DELETE": ("Remove a profile.", _PROFILE),
}
_READING = frozenset(
    {
        "SAVE_LIST",
        "REGION_HEALER_SCAN",
        "PLAYER_LIST",
        "MOD_LIST",
        "MOD_SEARCH",
        "PROFILE_LIST",
    }
)
_LONG = frozenset({"SERVER_RESTART", "SERVER_SAFE_RESTART", "MOD_UPDATE", "MOD_UPDATE_ALL"})
ALIASES = {
    "start": "SERVER_START",
    "stop": "SERVER_STOP",
    "restart": "SERVER_RESTART",
    "rcon": "RCON",
}


SERVICE_TYPES: Mapping[str, JobType] = MappingProxyType(
    {
        name: JobType(
            name=name,
            performer=Performer.SERVICE,
            is_mutation=True,
            limit_seconds=SHORT if name == HTTPS_CALL else LONG,
            payload=payload,
            summary=summary,
            permission=permission,
        )
        for name, (summary, payload, permission) in _SERVICE_TYPES.items()
    }
)


def _agent(name: str, summary: str, schema: Schema | None) -> JobType:
    limit = LONG if name in _LONG else USUAL
    return JobType(
        name=name,
        performer=Performer.AGENT,
        is_mutation=name not in _READING,
        limit_seconds=SHORT if name in _READING else limit,
        payload=schema,
        summary=summary,
        aliases=tuple(alias for alias, of in ALIASES.items() if of == name),
    )


# Every organisation has these.
JOB_TYPES: Mapping[str, JobType] = MappingProxyType(
    {name: _agent(name, *about) for name, about in _AGENT_TYPES.items()} | dict(SERVICE_TYPES)
)
NO_OWN_TYPES: Mapping[str, JobType] = MappingProxyType({})


def job_type(name: str, own: Mapping[str, JobType] = NO_OWN_TYPES) -> JobType:
    """Find a type by its name or an alias; `own` are the types of the organisation, which have
    priority. Raises InvalidInputError for an unknown name."""
    name = ALIASES.get(name, name)
    known = own.get(name) or JOB_TYPES.get(name)
    if known is None:
        raise InvalidInputError(
            "Unknown job type", (("jobType", f"is not a type of job: {name[:100]!r}"),)
        )
    return known


class JobTypeCard(JsonModel):
    """A job type. `payload_schema` is a JSON Schema; null accepts any object. `org_id` is null for
    the types that every organisation has."""

    name: str
    performer: Performer
    is_mutation: bool
    limit_seconds: int
    summary: str
    payload_schema: Mapping[str, object] | None
    permission: Permission | None
    aliases: tuple[str, ...]
    org_id: str | None = None
    updated_at: Instant | None = None


def job_types() -> tuple[JobTypeCard, ...]:
    """The types that every organisation has, in the order of lists."""
    return tuple(
        JobTypeCard(
            name=one.name,
            performer=one.performer,
            is_mutation=one.is_mutation,
            limit_seconds=one.limit_seconds,
            summary=one.summary,
            payload_schema=one.payload.model_json_schema(by_alias=True)
            if isinstance(one.payload, type)
            else one.payload,
            permission=one.permission,
            aliases=one.aliases,
        )
        for one in JOB_TYPES.values()
    )


MOST_OWN_TYPES = 100
LARGEST_SCHEMA = 16 * 1024
TYPE_NAME = "^[A-Z][A-Z0-9_]{0,99}$"
# References could reach other hosts, recurse endlessly, or grow exponentially.
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def _name_fault(name: str) -> str | None:
    if not re.fullmatch(TYPE_NAME, name):
        return "must consist of 1 to 100 capital letters, digits and underscores, and start with a letter"
    return "is a type of this system, which cannot be replaced" if name in SERVICE_TYPES else None


def _usable_schema(schema: dict[str, object] | None) -> dict[str, object] | None:
    if schema is None:
        return None
    if is_deeper(schema, DEEPEST):
        raise ValueError(f"must not be nested more than {DEEPEST} deep")
    if len(json.dumps(schema, ensure_ascii=False, default=str)) > LARGEST_SCHEMA:
        raise ValueError(f"must not be larger than {LARGEST_SCHEMA // 1024} kB")
    for text, is_key in texts_in(schema):
        if is_key and text in _REFERENCES:
            raise ValueError(f"must not use {text}: write the schema without references")
        if fault := text_fault(text):
            raise ValueError(fault)
    try:
        _validator(schema)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        words = str(error).partition("\n")[0][:200]
        raise ValueError(f"is not a JSON Schema: {words}") from None
    return schema


def _no_retrieval(uri: str) -> NoReturn:
    raise ValueError(f"does not read {uri[:100]}")


def _validator(schema: Schema) -> jsonschema_rs.Draft202012Validator:
    """Regular expressions take linear time, the validator fetches nothing, and no message contains a value."""
    return jsonschema_rs.Draft202012Validator(
        dict(schema),
        mask="the value",
        retriever=_no_retrieval,
        pattern_options=jsonschema_rs.RegexOptions(),
    )


class OwnTypeFields(JsonModel):
    """The fields of an agents' job type that an organisation defines."""

    summary: str = Field(min_length=1, max_length=500, description="What a job of this type does.")
    is_mutation: Flag = Field(
        default=True,
        description="An agent runs one job that makes changes at a time, and up to eight read-only jobs.",
    )
    limit_seconds: Annotated[Whole, Field(ge=1, le=LONG)] = Field(
        default=USUAL, description="The time limit of an attempt."
    )
    payload_schema: Annotated[
        dict[str, object] | None,
        AfterValidator(_usable_schema),
        refused_by(
            lambda given: (
                None if given is None or isinstance(given, dict) else "must be an object or null"
            ),
            BeforeValidator,
        ),
    ] = Field(
        default=None,
        description="A JSON Schema (2020-12) without references; null accepts any object. A secret "
        "reference is accepted in place of any string.",
    )


class OwnTypeInput(OwnTypeFields):
    name: Annotated[str, refused_by(_name_fault)] = Field(
        description="The name in capitals. The name of a built-in agents' type replaces that type.",
        examples=["REPORT_EXPORT"],
    )


_COMPLAINT = "The payload is refused"


def checked_payload(
    type_: JobType, given: object, *, call_origins: Collection[str] | None = ()
) -> dict[str, object]:
    """Return the payload as it is stored. Raises InvalidInputError, which names each invalid field as
    `payload.x`, and never quotes a value. `call_origins` are the private origins that an HTTPS_CALL
    may name; None accepts every address."""
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise _refused([("", "must be an object")])
    payload = cast("Mapping[str, object]", given)
    faults = payload_faults(payload)
    size = len(json.dumps(payload, ensure_ascii=False, default=str).encode()) if not faults else 0
    if size > LARGEST_PAYLOAD:
        faults = [("", f"must not be larger than {LARGEST_PAYLOAD // 1024} kB")]
    if not faults and isinstance(type_.payload, Mapping):
        faults = schema_faults(type_.payload, payload)
    if faults:
        raise _refused(faults)
    if not isinstance(type_.payload, type):
        return dict(payload)
    return _parsed(type_.payload, payload, call_origins)


def _parsed(
    model: type[JsonModel], payload: Mapping[str, object], call_origins: Collection[str] | None
) -> dict[str, object]:
    try:
        parsed = parse(model, payload, _COMPLAINT)
    except InvalidInputError as error:
        raise _refused(error.fields) from None
    if isinstance(parsed, HttpsCallPayload) and call_origins is not None:
        try:
            parsed.check_address(call_origins)
        except InvalidInputError as error:
            raise _refused([("url", str(error))]) from None
    return as_document(parsed)


def schema_faults(schema: Schema, payload: Mapping[str, object]) -> list[PayloadFault]:
    """Where and why a payload does not match, in the order of the schema. A secret reference is
    accepted where the schema requires a string."""
    document = dict(payload)
    return [
        fault
        for error in _validator(schema).iter_errors(document)
        if not _is_secret_for_text(error, document)
        for fault in _faults(error)
    ]


def _is_secret_for_text(error: jsonschema_rs.ValidationError, document: object) -> bool:
    if error.kind.name != "type" or "string" not in error.kind.value:
        return False
    for step in error.instance_path:
        document = cast("Mapping[str | int, object]", document)[step]
    return reference_in(document) is not None


def _faults(error: jsonschema_rs.ValidationError) -> Iterator[PayloadFault]:
    path = [str(step) for step in error.instance_path]
    match error.kind.name:
        case "required":
            yield _path([*path, cast("str", error.kind.value)]), "is required"
        case "additionalProperties" | "unevaluatedProperties":
            for name in cast("Sequence[str]", error.kind.value):
                yield _path([*path, name]), "is not a known field"
        case _:
            yield _path(path), escape_surrogates(error.message.removeprefix("the value "))[:300]


def _path(steps: Sequence[str]) -> str:
    return ".".join(escape_surrogates(step)[:LONGEST_PAYLOAD_KEY] for step in steps)


def _refused(faults: Iterable[PayloadFault]) -> InvalidInputError:
    fields = ((f"payload.{where}" if where else "payload", why) for where, why in faults)
    return InvalidInputError(_COMPLAINT, tuple(fields))
