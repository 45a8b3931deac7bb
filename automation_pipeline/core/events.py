"""What workflows emit: domain events, log entries, and the realtime channels of an event."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True)
class Event:
    """`key` makes the event unique for its tenant: a repeated write has no effect."""

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
    """One line of a workflow's log. `trace_id` is the run's."""

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
_UNUSABLE = re.compile(r"[^A-Za-z0-9_\-=@,.;]")
_USABLE_NAME = re.compile(r"[A-Za-z0-9_\-=@,.;]+")
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
    """`id` is shortened, with `_` for characters that a name cannot contain. GLOBAL kinds have
    none."""

    kind: ChannelKind
    id: str = ""

    def name(self, *, private: bool = True) -> str:
        name = f"{self.kind}-{self.id}" if self.id else str(self.kind)
        return PRIVATE + name if private and not self.kind.is_presence else name


class ChannelRefusal(StrEnum):
    MALFORMED = "malformed"
    NOT_ALLOWED = "not allowed"


# Events of prices and of organisations' schedules and jobs need a permission: no channel shows them.
_FOR_SOME = (
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
    """Not for browsers: events of internal processes such as `automation/completed`, and events
    that need a permission."""
    return "/" in event_name or event_name.startswith(_FOR_SOME)


def channels_of(event_name: str, payload: Mapping[str, object]) -> tuple[RealtimeChannel, ...]:
    """The channels that show an event: at most ten, and none for an internal event. Ids must be
    texts."""
    if is_internal(event_name):
        return ()
    found = _named_in(payload)
    if not found or event_name == "notification" or event_name.startswith("batch."):
        found.append(RealtimeChannel(ChannelKind.GLOBAL))
    return tuple(dict.fromkeys(found))[:MOST_CHANNELS]


def _named_in(payload: Mapping[str, object]) -> list[RealtimeChannel]:
    job_field = "jobId" if _id(payload, "jobId") else "job_id"
    fields = (
        (ChannelKind.AUDIT, "audit_id"),
        (ChannelKind.AUDIT, "audit_db_id"),
        (ChannelKind.FICHE, "fiche_id"),
        (ChannelKind.JOB, job_field),
        (ChannelKind.JOB, "batch_id"),
    )
    return [
        RealtimeChannel(kind, given) for kind, field in fields if (given := _id(payload, field))
    ]


def _id(payload: Mapping[str, object], field: str) -> str:
    value = payload.get(field)
    return channel_id(value) if isinstance(value, str) else ""


def channel_id(text: str) -> str:
    return _UNUSABLE.sub("_", text)[:LONGEST_ID]


def parse_channel(name: str) -> RealtimeChannel | ChannelRefusal:
    """The channel that a browser wants to join. Public channels need no authentication and are
    refused."""
    if len(name) > LONGEST_NAME or not _USABLE_NAME.fullmatch(name) or name.startswith("pusher-"):
        return ChannelRefusal.MALFORMED
    if name == ChannelKind.PRESENCE_GLOBAL:
        return RealtimeChannel(ChannelKind.PRESENCE_GLOBAL)
    if name.startswith(f"{ChannelKind.PRESENCE_ORG}-"):
        return _with_id(ChannelKind.PRESENCE_ORG, name.removeprefix(f"{ChannelKind.PRESENCE_ORG}-"))
    return (
        _private(name.removeprefix(PRIVATE))
        if name.startswith(PRIVATE)
        else ChannelRefusal.NOT_ALLOWED
    )


def _private(name: str) -> RealtimeChannel | ChannelRefusal:
    if name == ChannelKind.GLOBAL:
        return RealtimeChannel(ChannelKind.GLOBAL)
    kind, _, given = name.partition("-")
    if kind == ChannelKind.FICHE and not _FICHE_ID.fullmatch(given):
        return ChannelRefusal.NOT_ALLOWED
    if kind in {ChannelKind.AUDIT, ChannelKind.FICHE, ChannelKind.JOB}:
        return _with_id(ChannelKind(kind), given)
    return ChannelRefusal.NOT_ALLOWED


def _with_id(kind: ChannelKind, given: str) -> RealtimeChannel | ChannelRefusal:
    return RealtimeChannel(kind, given) if given else ChannelRefusal.NOT_ALLOWED
