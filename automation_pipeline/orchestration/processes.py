"""Commands for other processes: `python -m automation_pipeline.orchestration.processes COMMAND`.

code-server PORT  exits 1 with a sentence unless the code server on this port serves the definitions
probe             prints facts about the Dagster instance, for a command whose work does not start
execute KEY...    executes the jobs of filed requests, one after the other, as `dagster job execute`
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module

import dagster as dg

from automation_pipeline.core.launching import LOCATION

SENSOR_DAEMON = "SENSOR"


def check_code_server(port: str) -> str | None:
    from automation_pipeline.orchestration.dagster_internals import code_server_fault  # noqa: PLC0415  only here

    return code_server_fault(int(port))


def print_probe() -> None:
    """Print a JSON object per line: first the facts of the instance, then also whether the
    definitions load, which takes seconds."""
    try:
        facts = instance_facts()
    except Exception:  # noqa: BLE001  DAGSTER_HOME is missing or unreadable
        facts = {"has_instance": False}
    print(json.dumps(facts), flush=True)  # noqa: T201  the output of the command
    error = None
    try:
        import_module(LOCATION).defs()
    except BaseException as failure:  # noqa: BLE001  loading can raise anything
        error = " ".join(f"{type(failure).__name__}: {failure}".split())[:500]
    print(json.dumps({**facts, "location_error": error}), flush=True)  # noqa: T201  the output of the command


def instance_facts() -> dict[str, object]:
    with dg.DagsterInstance.get() as instance:
        heartbeat = instance.get_daemon_heartbeats().get(SENSOR_DAEMON)
        states = instance.all_instigator_state()
    return {
        "has_instance": True,
        "heartbeat_seconds": heartbeat and max(0.0, time.time() - heartbeat.timestamp),
        "stopped_sensors": [
            state.instigator_name
            for state in states
            if state.instigator_type.value == "SENSOR" and not state.is_running
        ],
    }


def job_named(name: str) -> dg.JobDefinition:
    """Processes of steps load the job by its name."""
    return import_module(LOCATION).defs().resolve_job_def(name)


def execute(keys: Sequence[str]) -> bool:
    """Whether every job succeeded. Without DAGSTER_HOME, Dagster stores nothing about the runs."""
    from automation_pipeline.bootstrap import services  # noqa: PLC0415  only here
    from automation_pipeline.orchestration.job_registry import run_request  # noqa: PLC0415  only where it is used
    from automation_pipeline.storage.run_requests import NewRunRequest, filed_requests  # noqa: PLC0415  only where it is used

    with services().database.reading() as session:
        filed = filed_requests(session, keys)
    succeeded = True
    with ExitStack() as stack:
        if os.environ.get("DAGSTER_HOME"):
            instance = stack.enter_context(dg.DagsterInstance.get())
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="automation-here-"))
            instance = stack.enter_context(dg.DagsterInstance.local_temp(folder))
        for one in filed:
            request = run_request(NewRunRequest(one.key, one.job, one.config, one.tags, one.launch))
            result = dg.execute_job(
                dg.build_reconstructable_job(
                    "automation_pipeline.orchestration.processes", "job_named", (one.job,)
                ),
                instance,
                run_config=dict(request.run_config),
                tags=dict(request.tags),
                raise_on_error=False,
            )
            succeeded = succeeded and result.success
    return succeeded


def main(command: str, *arguments: str) -> str | int | None:
    """The exit status of the process."""
    match command:
        case "code-server":
            return check_code_server(*arguments)
        case "probe":
            print_probe()
            return None
        case "execute":
            return 0 if execute(arguments) else 1
        case _:
            return f"No such command: {command}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
