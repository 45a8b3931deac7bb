"""Domain events, log entries of workflows, and the realtime channels of an event."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True)
class Event:
    """`key` is unique per tenant: writing an event again has no effect."""

    tenant_id: str
    key: str
    name: str
    producer: str
    correlation_id: str
    occurred_at: datetime
    payload: Mapping[str, object]


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class WorkflowLogEntry:
    """One line of a workflow's log. `trace_id` is that of the run."""

    workflow: str
    entity_type: str
    entity_id: str
    trace_id: str
    message: str
    level: str = "info"
    step_name: str | None = None
    dagster_run_id: str | None = None
    data: Mapping[str, object] = field(default_factory=dict[str, object])


MOST_CHANNELS = 10
LONGEST_ID = 180
LONGEST_NAME = 200
PRIVATE = "private-"
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_\-=@,.;]")
_VALID_NAME = re.compile(r"[A-Za-z0-9_\-=@,.;]+")
_FICHE_ID = re.compile(r"[0-9]+")


class ChannelKind(StrEnum):
    AUDIT = "audit"
    FICHE = "fiche"
    JOB = "job"
    GLOBAL = "global"
    PRESENCE_GLOBAL = "presence-global"
    PRESENCE_ORG = "presence-org"

    @property
    def is_presence(self) -> bool:
        return self in {ChannelKind.PRESENCE_GLOBAL, ChannelKind.PRESENCE_ORG}


@dataclass(frozen=True)
class RealtimeChannel:
    """`id` is truncated and has `_` for characters that a name cannot contain. It is empty for
    channels of everyone."""

    kind: ChannelKind
    id: str = ""

    def name(self, *, private: bool = True) -> str:
        name = f"{self.kind}-{self.id}" if self.id else str(self.kind)
        return PRIVATE + name if private and not self.kind.is_presence else name


class ChannelRefusal(StrEnum):
    MALFORMED = "malformed"
    NOT_ALLOWED = "not allowed"


# Events of pricing and of organisations need a permission, so no channel shows them.
_RESTRICTED = (
    "automation.circuit.",
    "automation.dlq.",
    "automation.reconciliation.",
    "automation.target.",
    "job_run.",
    "policy.",
    "rule.",
    "schedule.",
)


def is_internal(event_name: str) -> bool:
    """Whether browsers must not get the event: internal ones such as `automation/completed`, and
    those that need a permission."""
    return "/" in event_name or event_name.startswith(_RESTRICTED)


def channels_of(event_name: str, payload: Mapping[str, object]) -> tuple[RealtimeChannel, ...]:
    """The channels that show an event: at most ten, none for an internal event. Ids that are not
    texts are ignored."""
    if is_internal(event_name):
        return ()
    ids = {name: payload.get(name) for name in ("jobId", *(field for _, field in _ID_FIELDS))}
    given = {name: channel_id(value) for name, value in ids.items() if isinstance(value, str)}
    given["job_id"] = given.get("jobId") or given.get("job_id", "")
    found = [RealtimeChannel(kind, id_) for kind, field in _ID_FIELDS if (id_ := given.get(field))]
    if not found or event_name == "notification" or event_name.startswith("batch."):
        found.append(RealtimeChannel(ChannelKind.GLOBAL))
    return tuple(dict.fromkeys(found))[:MOST_CHANNELS]


# `jobId` takes precedence over `job_id`.
_ID_FIELDS = (
    (ChannelKind.AUDIT, "audit_id"),
    (ChannelKind.AUDIT, "audit_db_id"),
    (ChannelKind.FICHE, "fiche_id"),
    (ChannelKind.JOB, "job_id"),
    (ChannelKind.JOB, "batch_id"),
)


def channel_id(text: str) -> str:
    return _INVALID_CHARACTER.sub("_", text)[:LONGEST_ID]


def parse_channel(name: str) -> RealtimeChannel | ChannelRefusal:
    """The channel that a browser asks to join. Public channels are refused: they need no
    authentication."""
    if len(name) > LONGEST_NAME or not _VALID_NAME.fullmatch(name) or name.startswith("pusher-"):
        return ChannelRefusal.MALFORMED
    if name == ChannelKind.PRESENCE_GLOBAL:
        return RealtimeChannel(ChannelKind.PRESENCE_GLOBAL)
    if name == PRIVATE + ChannelKind.GLOBAL:
        return RealtimeChannel(ChannelKind.GLOBAL)
    for prefix, kind in _BY_PREFIX.items():
        given = name.removeprefix(prefix)
        is_id = given != "" and (kind is not ChannelKind.FICHE or _FICHE_ID.fullmatch(given))
        if name.startswith(prefix) and is_id:
            return RealtimeChannel(kind, given)
    return ChannelRefusal.NOT_ALLOWED


_BY_PREFIX = {
    f"{ChannelKind.PRESENCE_ORG}-": ChannelKind.PRESENCE_ORG,
    f"{PRIVATE}{ChannelKind.AUDIT}-": ChannelKind.AUDIT,
    f"{PRIVATE}{ChannelKind.FICHE}-": ChannelKind.FICHE,
    f"{PRIVATE}{ChannelKind.JOB}-": ChannelKind.JOB,
}
