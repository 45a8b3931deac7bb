"""Why a requested run does not start: a table of facts and the reported obstacle."""

from automation_pipeline.core.launching import (
    DagsterFacts,
    LaunchFacts,
    LaunchState,
    launch_obstacle,
)

WAITING = {"k": (LaunchState.WAITING, None)}
OFFERED = {"k": (LaunchState.OFFERED, None)}
REFUSED = {"k": (LaunchState.REFUSED, "The run queue refuses it.")}
ALIVE = DagsterFacts(has_instance=True, heartbeat_seconds=20)
BROKEN = DagsterFacts(
    has_instance=True, heartbeat_seconds=20, location_error="ImportError: no module x"
)
STOPPED = DagsterFacts(
    has_instance=True, heartbeat_seconds=20, stopped_sensors=("launch_requests",)
)
DEAD = DagsterFacts(has_instance=True, heartbeat_seconds=600)

# Name; requests; seconds since the last sensor tick; facts from Dagster; seconds waited; expected
# code and part of the message.
CASES = (
    ("refused", REFUSED, 1.0, None, 1, "REQUEST_REFUSED", "The run queue refuses it"),
    (
        "no daemon ever, no DAGSTER_HOME",
        WAITING,
        None,
        DagsterFacts(),
        12,
        "NO_DAEMON",
        "there was none yet",
    ),
    ("no daemon, Dagster not checked yet", WAITING, None, None, 12, "NO_DAEMON", "no heartbeat"),
    ("daemon gone for minutes", WAITING, 600.0, DEAD, 12, "NO_DAEMON", "the last was 10 min ago"),
    ("daemon just killed", WAITING, 17.0, ALIVE, 12, "NO_DAEMON", "the last was 17 s ago"),
    ("daemon killed after the offer", OFFERED, 75.0, ALIVE, 90, "NO_DAEMON", "heartbeat"),
    (
        "no daemon and a broken location",
        WAITING,
        None,
        DagsterFacts(location_error="E"),
        12,
        "NO_DAEMON",
        "does not load",
    ),
    ("location broken", WAITING, None, BROKEN, 12, "CODE_LOCATION", "ImportError: no module x"),
    (
        "location broken since an hour",
        WAITING,
        3600.0,
        BROKEN,
        12,
        "CODE_LOCATION",
        "does not load",
    ),
    ("daemon is starting", WAITING, None, ALIVE, 12, None, ""),
    (
        "location broken on another host only",
        WAITING,
        None,
        ALIVE,
        31,
        "CODE_LOCATION",
        "no sensor",
    ),
    ("all sensors stopped", WAITING, None, STOPPED, 12, "SENSOR_STOPPED", "launch_requests"),
    ("the sensor is stopped", WAITING, 2.0, STOPPED, 12, "SENSOR_STOPPED", "launch_requests"),
    (
        "the sensor offers nothing",
        WAITING,
        2.0,
        DagsterFacts(),
        31,
        "SENSOR_STOPPED",
        "launch_requests",
    ),
    ("it takes a moment", WAITING, 2.0, ALIVE, 12, None, ""),
    ("Dagster has it", OFFERED, 2.0, DagsterFacts(), 300, None, ""),
    ("Dagster has it and is busy", OFFERED, 40.0, ALIVE, 60, None, ""),
    ("requests are not known, daemon ticks", {}, 2.0, None, 12, None, ""),
    ("requests are not known, no daemon", {}, None, None, 12, "NO_DAEMON", "heartbeat"),
)


def test_the_launch_obstacle_names_what_is_missing() -> None:
    wrong = []
    for name, requests, tick, dagster, waited, code, part in CASES:
        found = launch_obstacle(LaunchFacts(requests, tick, dagster, waited))
        message = (None, "") if found is None else (found.code, str(found))
        if message[0] != code or part not in message[1]:
            wrong.append((name, message))
    assert wrong == []
