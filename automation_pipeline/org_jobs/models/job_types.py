"""All job types by name, and the payloads of the agents' types."""

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, cast

from pydantic import Field, StrictBool, StrictInt

from automation_pipeline.core.access import Permission
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, as_document, parse
from automation_pipeline.org_jobs.models.jobs import JobType, Performer
from automation_pipeline.org_jobs.models.secrets import SecretRef, payload_faults
from automation_pipeline.org_jobs.models.service_payloads import (
    AutomationRunPayload,
    CompanyEnrichmentPayload,
    FileName,
    GraceSeconds,
    HttpsCallPayload,
    Keep,
    Key,
    Line,
    NoPayload,
    PricingRulePayload,
    ShortLine,
)

_Region = Annotated[
    str,
    Field(pattern=r"^-?[0-9]{1,6}\.-?[0-9]{1,6}$", description="As `-3.12`: its place on the map."),
]


class ServerStop(JsonModel):
    grace_seconds: GraceSeconds = 30
    message: ShortLine | None = None


class ServerSafeRestart(ServerStop):
    backup: StrictBool = Field(default=True, description="Whether a backup is made before.")
    most_players: StrictInt | None = Field(
        default=None, ge=0, le=10_000, description="It waits until no more are on."
    )


class ServerWipeSave(JsonModel):
    backup: StrictBool = Field(default=True, description="Whether a backup is made before.")
    restart: StrictBool = True


class ConsoleCommand(JsonModel):
    command: Line


class RconCommand(ConsoleCommand):
    password: SecretRef | None = Field(
        default=None, description="Without it the agent uses the one that it knows."
    )
    timeout_seconds: StrictInt = Field(default=10, ge=1, le=120)


class SaveList(JsonModel):
    limit: StrictInt = Field(default=100, ge=1, le=1000)


class SaveBackup(JsonModel):
    name: FileName | None = Field(
        default=None, description="Without it the backup is named after its instant."
    )
    keep: Keep | None = None


class SaveRestore(JsonModel):
    save: FileName
    backup: StrictBool = Field(default=True, description="Whether a backup is made before.")
    restart: StrictBool = True


class SaveDelete(JsonModel):
    save: FileName


class SaveRetention(JsonModel):
    keep: Keep = 10
    older_than_days: StrictInt | None = Field(
        default=None, ge=1, le=3650, description="Only those that are older are removed."
    )


class RegionHealerScan(JsonModel):
    """Without regions: the whole map."""

    regions: tuple[_Region, ...] = Field(default=(), max_length=1000)


class RegionHealerHeal(RegionHealerScan):
    save: FileName | None = Field(
        default=None, description="The backup that regions are taken from; else the newest."
    )


_Player = Annotated[
    ShortLine, Field(description="As the game knows it: a name, or an id of its platform.")
]


class OnePlayer(JsonModel):
    player: _Player


class PlayerKick(OnePlayer):
    reason: ShortLine | None = None


class PlayerBan(PlayerKick):
    minutes: StrictInt | None = Field(
        default=None, ge=1, le=5_256_000, description="Without it the ban is for good."
    )


class PlayerMessage(JsonModel):
    player: _Player | None = Field(default=None, description="Without it the message is for all.")
    message: Line


class ModSearch(JsonModel):
    query: ShortLine
    limit: StrictInt = Field(default=20, ge=1, le=100)


class OneMod(JsonModel):
    mod: Key


class ModVersion(OneMod):
    version: Key | None = Field(default=None, description="Without it the newest.")
    restart: StrictBool = False


class ModUpdateAll(JsonModel):
    restart: StrictBool = True
    backup: StrictBool = Field(default=True, description="Whether a backup is made before.")


class OneProfile(JsonModel):
    profile: FileName


class ProfileApply(OneProfile):
    restart: StrictBool = False


AUTOMATION_RUN, PRICING_RULE_APPLY, HTTPS_CALL = (
    "AUTOMATION_RUN",
    "PRICING_RULE_APPLY",
    "HTTPS_CALL",
)
COMPANY_ENRICHMENT = "COMPANY_ENRICHMENT"
LARGEST_PAYLOAD = 256 * 1024
SHORT, USUAL, LONG = 180, 900, 86_400


def _reads(name: str, summary: str, payload: type[JsonModel] = NoPayload) -> JobType:
    performer = Performer.AGENT
    return JobType(
        name=name,
        performer=performer,
        is_mutation=False,
        limit_seconds=SHORT,
        payload=payload,
        summary=summary,
    )


def _changes(
    name: str,
    summary: str,
    payload: type[JsonModel] = NoPayload,
    *,
    limit: int = USUAL,
    alias: str | None = None,
) -> JobType:
    return JobType(
        name=name,
        performer=Performer.AGENT,
        is_mutation=True,
        limit_seconds=limit,
        payload=payload,
        summary=summary,
        aliases=() if alias is None else (alias,),
    )


def _ours(
    name: str,
    summary: str,
    payload: type[JsonModel],
    *,
    limit: int,
    permission: Permission | None = None,
) -> JobType:
    return JobType(
        name=name,
        performer=Performer.SERVICE,
        is_mutation=True,
        limit_seconds=limit,
        payload=payload,
        summary=summary,
        permission=permission,
    )


_ALL = (
    _changes("SERVER_START", "Start the server.", alias="start"),
    _changes(
        "SERVER_STOP", "Stop the server after a warning to its players.", ServerStop, alias="stop"
    ),
    _changes("SERVER_KILL", "End the server's process at once."),
    _changes(
        "SERVER_RESTART",
        "Stop the server and start it again.",
        ServerStop,
        limit=LONG,
        alias="restart",
    ),
    _changes(
        "SERVER_SAFE_RESTART",
        "Restart when few are on, after a backup.",
        ServerSafeRestart,
        limit=LONG,
    ),
    _changes("SERVER_WIPE_SAVE", "Remove the save, so that the world begins anew.", ServerWipeSave),
    _changes("RCON", "Send a command over the remote console.", RconCommand, alias="rcon"),
    _changes("SEND_COMMAND", "Type a command into the server's own console.", ConsoleCommand),
    _reads("SAVE_LIST", "List the saves and backups.", SaveList),
    _changes("SAVE_BACKUP", "Back the save up.", SaveBackup),
    _changes("SAVE_RESTORE", "Put a backup back.", SaveRestore),
    _changes("SAVE_DELETE", "Remove a backup.", SaveDelete),
    _changes("SAVE_RETENTION", "Remove old backups.", SaveRetention),
    _reads("REGION_HEALER_SCAN", "Look for damaged regions of the map.", RegionHealerScan),
    _changes("REGION_HEALER_HEAL", "Replace damaged regions from a backup.", RegionHealerHeal),
    _reads("PLAYER_LIST", "List the players who are on."),
    _changes("PLAYER_KICK", "Put a player out.", PlayerKick),
    _changes("PLAYER_BAN", "Put a player out, and keep it out.", PlayerBan),
    _changes("PLAYER_UNBAN", "Let a banned player in again.", OnePlayer),
    _changes("PLAYER_WHITELIST", "Add a player to the list of those who may come in.", OnePlayer),
    _changes(
        "PLAYER_UNWHITELIST", "Take a player off the list of those who may come in.", OnePlayer
    ),
    _changes("PLAYER_MESSAGE", "Say something to a player, or to all.", PlayerMessage),
    _reads("MOD_LIST", "List the mods that are installed."),
    _reads("MOD_SEARCH", "Look for mods in the catalogue.", ModSearch),
    _changes("MOD_INSTALL", "Install a mod.", ModVersion),
    _changes("MOD_UNINSTALL", "Remove a mod.", OneMod),
    _changes("MOD_ENABLE", "Switch a mod on.", OneMod),
    _changes("MOD_DISABLE", "Switch a mod off.", OneMod),
    _changes("MOD_UPDATE", "Bring a mod up to date.", ModVersion, limit=LONG),
    _changes("MOD_UPDATE_ALL", "Bring all mods up to date.", ModUpdateAll, limit=LONG),
    _reads("PROFILE_LIST", "List the profiles: sets of mods and settings."),
    _changes("PROFILE_APPLY", "Put a profile into use.", ProfileApply),
    _changes("PROFILE_DELETE", "Remove a profile.", OneProfile),
    _ours(
        AUTOMATION_RUN,
        "Run an automation schedule, and wait for its end.",
        AutomationRunPayload,
        limit=LONG,
        permission=Permission.AUTOMATION,
    ),
    _ours(
        PRICING_RULE_APPLY,
        "Plan a pricing rule and apply it, and wait for its end.",
        PricingRulePayload,
        limit=LONG,
        permission=Permission.PRICING_RUNS,
    ),
    _ours(
        COMPANY_ENRICHMENT,
        "Ask the French registers for a company, and wait for the answer.",
        CompanyEnrichmentPayload,
        limit=LONG,
        permission=Permission.ENRICHMENT,
    ),
    _ours(HTTPS_CALL, "Call a public address over HTTPS.", HttpsCallPayload, limit=SHORT),
)

JOB_TYPES: Mapping[str, JobType] = MappingProxyType({one.name: one for one in _ALL})
_BY_ALIAS = {alias: one for one in _ALL for alias in one.aliases}


class JobTypeCard(JsonModel):
    """A type as people read it. `payload_schema` is a JSON schema."""

    name: str
    performer: Performer
    is_mutation: bool
    limit_seconds: int
    summary: str
    payload_schema: Mapping[str, object]
    permission: Permission | None
    aliases: tuple[str, ...]


def job_type(name: str) -> JobType:
    """By its name or an alias. InvalidInputError for a name that is of none."""
    known = JOB_TYPES.get(name) or _BY_ALIAS.get(name)
    if known is None:
        raise InvalidInputError(
            "Unknown job type", (("jobType", f"is not a type of job: {name[:100]!r}"),)
        )
    return known


def checked_payload(
    type_: JobType, given: object, *, call_origins: Collection[str] | None = ()
) -> dict[str, object]:
    """The payload as it is stored, with what is left out filled in; nothing given is an empty one.
    InvalidInputError says for each field as `payload.x` what is wrong with it, and never what it
    holds.

    `call_origins` are the origins that an HTTPS_CALL may name though they are not public; None
    accepts every address.
    """
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise _refused([("", "must be an object")])
    payload = cast("Mapping[str, object]", given)
    faults = payload_faults(payload) or _size_faults(payload)
    if faults:
        raise _refused(faults)
    try:
        parsed = parse(type_.payload, payload, _COMPLAINT)
    except InvalidInputError as error:
        raise _refused(error.fields) from None
    if isinstance(parsed, HttpsCallPayload) and call_origins is not None:
        try:
            parsed.check_address(call_origins)
        except InvalidInputError as error:
            raise _refused([("url", str(error))]) from None
    return as_document(parsed)


def job_types() -> tuple[JobTypeCard, ...]:
    """All, in the order in which they are shown."""
    return tuple(_card(one) for one in _ALL)


_COMPLAINT = "The payload is refused"


def _size_faults(payload: Mapping[str, object]) -> list[tuple[str, str]]:
    size = len(json.dumps(payload, ensure_ascii=False, default=str).encode())
    return (
        [("", f"must not be larger than {LARGEST_PAYLOAD // 1024} kB")]
        if size > LARGEST_PAYLOAD
        else []
    )


def _refused(faults: "list[tuple[str, str]] | tuple[tuple[str, str], ...]") -> InvalidInputError:
    return InvalidInputError(
        _COMPLAINT,
        tuple((f"payload.{where}" if where else "payload", why) for where, why in faults),
    )


def _card(one: JobType) -> JobTypeCard:
    return JobTypeCard(
        name=one.name,
        performer=one.performer,
        is_mutation=one.is_mutation,
        limit_seconds=one.limit_seconds,
        summary=one.summary,
        payload_schema=one.payload.model_json_schema(by_alias=True),
        permission=one.permission,
        aliases=one.aliases,
    )
