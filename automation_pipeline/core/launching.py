"""Decides why requested work does not start, from facts about Dagster and the requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from automation_pipeline.core.errors import PermanentError

LOCATION = "automation_pipeline.definitions"
LAUNCHING_SENSOR = "launch_requests"
# Sensors of this system tick every five seconds.
TICK_SILENCE_SECONDS = 15.0
# A daemon that is launching the run may tick less often.
BUSY_SECONDS = 60.0
# Dagster's daemon writes its own heartbeat every 30 seconds.
HEARTBEAT_SILENCE_SECONDS = 45.0
# Sensors tick every five seconds. A daemon whose heartbeat is later than that after the last tick was
# running without its sensors.
HEARTBEAT_AFTER_TICK_SECONDS = 5.0
# Ticks that are missing for longer do not come back with a restart of the code server.
RESTART_SECONDS = 60.0
# After its first heartbeat, a daemon that has just started needs some seconds for its first sensors.
FIRST_TICK_SECONDS = 12.0
# A sensor that ticks may be busy with other requests.
FIRST_OFFER_SECONDS = 30.0
_START_HINT = "`dagster dev` or `dagster-daemon run` starts it"


class LaunchState(StrEnum):
    WAITING = "waiting"
    OFFERED = "offered"
    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True)
class DagsterFacts:
    """Facts from Dagster's own storage. Without DAGSTER_HOME, `has_instance` is false and only
    `location_error` is known: the reason why the definitions do not load in this environment."""

    has_instance: bool = False
    heartbeat_seconds: float | None = None
    stopped_sensors: Sequence[str] = ()
    location_error: str | None = None


@dataclass(frozen=True)
class LaunchFacts:
    """`tick_seconds`: seconds since a sensor of this system ticked; None if none ever did.
    `dagster`: None until the probe has answered. `waited_seconds`: seconds since the request."""

    requests: Mapping[str, tuple[LaunchState, str | None]]
    tick_seconds: float | None
    dagster: DagsterFacts | None
    waited_seconds: float


class NotStartedError(PermanentError):
    def __init__(
        self, code: str, message: str, details: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = details or {}


class DagsterProbe(Protocol):
    def begin(self) -> None: ...

    def facts(self) -> DagsterFacts | None:
        """None until the probe has answered."""


def launch_obstacle(facts: LaunchFacts) -> NotStartedError | None:
    """The reason to stop waiting; None if the work may still start."""
    for state, reason in facts.requests.values():
        if state is LaunchState.REFUSED:
            return NotStartedError("REQUEST_REFUSED", f"The request was refused: {reason}")
    dagster, tick = facts.dagster or DagsterFacts(), facts.tick_seconds
    # True also if the requests are not known.
    is_offered = all(state is not LaunchState.WAITING for state, _ in facts.requests.values())
    if tick is not None and (tick <= TICK_SILENCE_SECONDS or (is_offered and tick <= BUSY_SECONDS)):
        return None if is_offered else _obstacle_while_ticking(dagster, facts.waited_seconds)
    heartbeat = dagster.heartbeat_seconds
    is_alive = heartbeat is not None and heartbeat <= HEARTBEAT_SILENCE_SECONDS
    if (
        heartbeat is not None
        and is_alive
        and (tick is None or tick > heartbeat + HEARTBEAT_AFTER_TICK_SECONDS)
    ):
        return _obstacle_without_ticks(dagster, heartbeat, tick, facts.waited_seconds)
    broken = f"; its code location {LOCATION} does not load either: {dagster.location_error}"
    return NotStartedError(
        "NO_DAEMON",
        f"Dagster's daemon has no heartbeat ({_time_since_last(tick, heartbeat)}): {_START_HINT}"
        + (broken if dagster.location_error else ""),
    )


def _obstacle_while_ticking(dagster: DagsterFacts, waited_seconds: float) -> NotStartedError | None:
    if LAUNCHING_SENSOR in dagster.stopped_sensors:
        return _sensors_stopped(LAUNCHING_SENSOR)
    if dagster.has_instance or waited_seconds < FIRST_OFFER_SECONDS:
        return None
    return NotStartedError(
        "SENSOR_STOPPED",
        f"Dagster's daemon ticks, but its sensor {LAUNCHING_SENSOR} offers nothing: it is stopped, or it fails",
    )


def _obstacle_without_ticks(
    dagster: DagsterFacts, heartbeat: float, tick: float | None, waited_seconds: float
) -> NotStartedError | None:
    if dagster.location_error is not None:
        return NotStartedError(
            "CODE_LOCATION",
            f"Dagster's daemon runs, but the code location {LOCATION} does not load: {dagster.location_error}",
        )
    has_just_stopped = tick is not None and tick <= heartbeat + RESTART_SECONDS
    if LAUNCHING_SENSOR in dagster.stopped_sensors or (
        dagster.stopped_sensors and not has_just_stopped
    ):
        return _sensors_stopped(*dagster.stopped_sensors)
    if tick is not None and has_just_stopped:
        return NotStartedError(
            "CODE_LOCATION",
            f"Dagster's daemon had a heartbeat {round(heartbeat)} s ago, but no sensor of the code location {LOCATION} "
            f"has ticked for {round(tick)} s: its code server restarts, or the daemon has ended: {_START_HINT}",
        )
    if waited_seconds < FIRST_TICK_SECONDS:
        return None
    return NotStartedError(
        "CODE_LOCATION",
        f"Dagster's daemon runs, but no sensor of the code location {LOCATION} ticks: it does not load there, and the "
        "daemon's log says why",
    )


def _sensors_stopped(*sensors: str) -> NotStartedError:
    names = ", ".join(sorted(sensors))
    return NotStartedError(
        "SENSOR_STOPPED",
        f"A sensor is stopped in Dagster: {names}. Start it on the page Automation",
    )


def _time_since_last(*silences: float | None) -> str:
    known = [silence for silence in silences if silence is not None]
    if not known:
        return "there was none yet"
    seconds = min(known)
    length = f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"
    return f"the last was {length if seconds < 7200 else f'{round(seconds / 3600)} h'} ago"
