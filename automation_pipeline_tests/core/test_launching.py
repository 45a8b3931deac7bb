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

TICKING = DagsterFacts(heartbeat_seconds=20)
SEVERAL_STOPPED = DagsterFacts(
    has_instance=True, heartbeat_seconds=20, stopped_sensors=("due_schedules", "another")
)
BROKEN_ALONE = DagsterFacts(location_error="ImportError: no module x")


def no_daemon(last: str, more: str = "") -> tuple[str, str]:
    start = "`dagster dev` or `dagster-daemon run` starts it"
    return "NO_DAEMON", f"Dagster's daemon has no heartbeat ({last}): {start}{more}"


def heartbeat(seconds: float) -> DagsterFacts:
    return DagsterFacts(heartbeat_seconds=seconds)


def no_ticks(heartbeat: int, tick: int) -> tuple[str, str]:
    message = (
        f"Dagster's daemon had a heartbeat {heartbeat} s ago, but no sensor of {LOCATION} has ticked for {tick} s: "
        "its code server restarts, or the daemon has ended: `dagster dev` or `dagster-daemon run` starts it"
    )
    return "CODE_LOCATION", message


NEVER = no_daemon("there was none yet")
LOCATION = "the code location automation_pipeline.definitions"
DOES_NOT_LOAD = (
    "CODE_LOCATION",
    f"Dagster's daemon runs, but {LOCATION} does not load: ImportError: no module x",
)
NO_TICKS = (
    "CODE_LOCATION",
    f"Dagster's daemon runs, but no sensor of {LOCATION} ticks: it does not load there, and the daemon's log says why",
)
STOPPED_SENSOR = (
    "SENSOR_STOPPED",
    "A sensor is stopped in Dagster: launch_requests. Start it on the page Automation",
)
OFFERS_NOTHING = (
    "SENSOR_STOPPED",
    "Dagster's daemon ticks, but its sensor launch_requests offers nothing: it is stopped, or it fails",
)

# Name; requests; seconds since the last sensor tick; facts from Dagster; seconds waited; expected
# code and message.
CASES = (
    (
        "refused",
        REFUSED,
        1.0,
        None,
        1,
        ("REQUEST_REFUSED", "The request was refused: The run queue refuses it."),
    ),
    ("no daemon ever, no DAGSTER_HOME", WAITING, None, DagsterFacts(), 12, NEVER),
    ("no daemon, Dagster not checked yet", WAITING, None, None, 12, NEVER),
    ("daemon gone for minutes", WAITING, 600.0, DEAD, 12, no_daemon("the last was 10 min ago")),
    ("daemon gone for two minutes", WAITING, 119.0, None, 12, no_daemon("the last was 119 s ago")),
    ("daemon gone for longer", WAITING, 120.0, None, 12, no_daemon("the last was 2 min ago")),
    ("daemon gone for an hour", WAITING, 7199.0, None, 12, no_daemon("the last was 120 min ago")),
    ("daemon gone for hours", WAITING, 7200.0, None, 12, no_daemon("the last was 2 h ago")),
    ("daemon gone for more hours", WAITING, 9001.0, None, 12, no_daemon("the last was 3 h ago")),
    ("daemon just killed", WAITING, 17.0, ALIVE, 12, no_daemon("the last was 17 s ago")),
    (
        "daemon killed after the offer",
        OFFERED,
        75.0,
        heartbeat(70),
        90,
        no_daemon("the last was 70 s ago"),
    ),
    ("code server killed after the offer", OFFERED, 75.0, ALIVE, 90, no_ticks(20, 75)),
    ("code server killed", WAITING, 16.0, heartbeat(6), 12, no_ticks(6, 16)),
    (
        "daemon killed after a tick",
        WAITING,
        21.0,
        heartbeat(16),
        12,
        no_daemon("the last was 16 s ago"),
    ),
    ("location broken a moment ago", WAITING, 31.0, BROKEN, 12, DOES_NOT_LOAD),
    ("sensors stopped a moment ago", WAITING, 31.0, STOPPED, 12, STOPPED_SENSOR),
    (
        "code server killed, another sensor stopped",
        WAITING,
        31.0,
        SEVERAL_STOPPED,
        12,
        no_ticks(20, 31),
    ),
    (
        "no daemon and a broken location",
        WAITING,
        None,
        BROKEN_ALONE,
        12,
        no_daemon(
            "there was none yet",
            "; its code location automation_pipeline.definitions does not load either: ImportError: no module x",
        ),
    ),
    ("heartbeat just in time", WAITING, None, heartbeat(45), 31, NO_TICKS),
    ("heartbeat too old", WAITING, None, heartbeat(45.1), 31, no_daemon("the last was 45 s ago")),
    ("ticks stopped before the heartbeat", WAITING, 80.1, heartbeat(20), 31, NO_TICKS),
    (
        "ticks stopped with the heartbeat",
        WAITING,
        80.0,
        heartbeat(20),
        31,
        no_ticks(20, 80),
    ),
    ("location broken", WAITING, None, BROKEN, 12, DOES_NOT_LOAD),
    ("location broken since an hour", WAITING, 3600.0, BROKEN, 12, DOES_NOT_LOAD),
    ("daemon is starting", WAITING, None, ALIVE, 11.9, None),
    ("location broken in the daemon's workspace only", WAITING, None, ALIVE, 12, NO_TICKS),
    ("all sensors stopped", WAITING, None, STOPPED, 12, STOPPED_SENSOR),
    (
        "several sensors stopped",
        WAITING,
        None,
        SEVERAL_STOPPED,
        12,
        (
            "SENSOR_STOPPED",
            "A sensor is stopped in Dagster: another, due_schedules. Start it on the page Automation",
        ),
    ),
    ("the sensor is stopped", WAITING, 2.0, STOPPED, 12, STOPPED_SENSOR),
    ("another sensor is stopped", WAITING, 2.0, SEVERAL_STOPPED, 12, None),
    ("the sensor offers nothing", WAITING, 2.0, DagsterFacts(), 30, OFFERS_NOTHING),
    ("the sensor has not offered yet", WAITING, 2.0, DagsterFacts(), 29.9, None),
    ("it takes a moment", WAITING, 15.0, ALIVE, 12, None),
    ("Dagster has it", OFFERED, 2.0, DagsterFacts(), 300, None),
    ("Dagster has it and is busy", OFFERED, 60.0, ALIVE, 60, None),
    ("Dagster was busy for too long", OFFERED, 60.1, ALIVE, 60, no_ticks(20, 60)),
    (
        "some requests wait",
        OFFERED | {"j": (LaunchState.WAITING, None)},
        40.0,
        TICKING,
        60,
        no_ticks(20, 40),
    ),
    ("requests are not known, daemon ticks", {}, 2.0, None, 12, None),
    ("requests are not known, no daemon", {}, None, None, 12, NEVER),
)


def test_the_launch_obstacle_names_what_is_missing() -> None:
    wrong = []
    for name, requests, tick, dagster, waited, expected in CASES:
        obstacle = launch_obstacle(LaunchFacts(requests, tick, dagster, waited))
        found = None if obstacle is None else (obstacle.code, str(obstacle))
        if found != expected or (obstacle is not None and obstacle.details != {}):
            wrong.append((name, found))
    assert wrong == []
