"""`python -m automation_pipeline.orchestration.launch_probe`: prints what Dagster knows about
itself, a JSON object per line, the quick facts first. The command line asks for it when work does
not begin."""

import json
import sys
import time
from importlib import import_module

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorStatus

from automation_pipeline.core.launching import LOCATION

SENSOR_DAEMON = "SENSOR"


def main() -> None:
    facts = _of_instance()
    print(json.dumps(facts), flush=True)  # noqa: T201  the answer
    print(json.dumps({**facts, "location_error": _location_error()}), flush=True)  # noqa: T201  the answer


def _of_instance() -> dict[str, object]:
    try:
        instance = dg.DagsterInstance.get()
    except Exception:  # noqa: BLE001  without DAGSTER_HOME, or with one that cannot be read, nothing is known
        return {"has_instance": False}
    with instance:
        heartbeat = instance.get_daemon_heartbeats().get(SENSOR_DAEMON)
        sensors = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
        stopped = [
            state.instigator_name for state in sensors if state.status is InstigatorStatus.STOPPED
        ]
    silence = None if heartbeat is None else max(0.0, time.time() - heartbeat.timestamp)
    return {"has_instance": True, "heartbeat_seconds": silence, "stopped_sensors": stopped}


def _location_error() -> str | None:
    try:
        import_module(LOCATION).defs()
    except BaseException as error:  # noqa: BLE001  whatever user code raises while it is loaded
        return " ".join(f"{type(error).__name__}: {error}".split())[:500]
    return None


if __name__ == "__main__":
    sys.exit(main())
