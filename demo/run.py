"""`make demo`: executes one automation run in a new database, with the commands that an operator would
use."""

import json
import os
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from simulated_systems import environment, simulator

HERE = Path(__file__).parent
FOLDER = Path(".automation/demo")
DATABASE = FOLDER / "automation.db"
LOG = FOLDER / "dagster.log"


def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with simulator("--port", "0", "--exact") as address:
        say(f"The simulator of the external systems runs at {address}.")
        variables = environment(
            address, DATABASE_URL=f"sqlite:///{DATABASE}", AUTOMATION_REPORTS_DIR=str(FOLDER)
        )
        command(variables, "automation", "db", "upgrade")
        imported = answer(
            variables, "automation", "audit-configs", "import", str(HERE / "audit_config.json")
        )
        say(f"Audit configuration {imported['id']}: {imported['steps']} steps, for every sale.")
        schedule = answer(
            variables, "automation", "schedules", "create", "--file", str(HERE / "schedule.json")
        )
        say(
            f"Schedule {schedule['id']}: {schedule['name']}. Dagster runs it now: select, fetch, transcribe, audit ..."
        )
        execute(variables, schedule["id"])
        return show_outcome(variables)


def execute(variables: Mapping[str, str], schedule_id: str) -> None:
    config = FOLDER / "run.yaml"
    config.write_text(f"ops:\n  open_run:\n    config:\n      schedule_id: {schedule_id}\n")
    job = [
        "dagster",
        "job",
        "execute",
        "-m",
        "automation_pipeline.definitions",
        "-j",
        "automation_run",
    ]
    with LOG.open("w") as log:
        ended = subprocess.run(
            [*job, "-c", str(config)], env=variables, stdout=log, stderr=log, check=False
        )
    if ended.returncode != 0:
        raise SystemExit(f"Dagster's run failed: see {LOG}.")


def show_outcome(variables: Mapping[str, str]) -> int:
    run_id = answer(variables, "automation", "runs", "list")["runs"][0]["id"]
    subprocess.run(["automation", "runs", "show", run_id], env=variables, check=True)
    report = Path(answer(variables, "automation", "runs", "report", run_id)["file"]).resolve()
    say(f"The report is {report.as_uri()}, and Dagster's log is {LOG}.")
    if sys.stdout.isatty() and (os.environ.get("DISPLAY") or sys.platform == "darwin"):
        webbrowser.open(report.as_uri())
    if as_expected(answer(variables, "automation", "runs", "show", run_id)):
        return 0
    say("The outcome differs from what the demo expects.")
    return 1


def as_expected(run: dict) -> bool:
    """Whether exactly one fiche was unknown to the CRM, and fiches failed only because a recording has no
    address."""
    failed = [fiche for fiche in run["fiches"] if fiche["status"] == "failed"]
    return (
        run["status"] == ("partial" if failed else "completed")
        and run["ignoredFiches"] == 1
        and run["auditsRun"] > 0
        and all(fiche["reason"] == "transcription_incomplete" for fiche in failed)
    )


def answer(variables: Mapping[str, str], *arguments: str) -> dict:
    return json.loads(command(variables, *arguments, "--json"))


def command(variables: Mapping[str, str], *arguments: str) -> str:
    ended = subprocess.run(arguments, env=variables, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"`{' '.join(arguments)}` failed.")
    return ended.stdout


def say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
