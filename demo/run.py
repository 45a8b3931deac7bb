"""`make demo`: one automation run from nothing to its outcome, by the commands that an operator would type."""

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from outside import TOKEN, environment, simulator

HERE = Path(__file__).parent
ROOM = Path(".automation/demo")
DATABASE = ROOM / "automation.db"
REPORT = ROOM / "report.json"
LOG = ROOM / "dagster.log"


def main() -> int:
    shutil.rmtree(ROOM, ignore_errors=True)
    ROOM.mkdir(parents=True)
    with simulator("--port", "0", "--exact") as address:
        say(f"The outside world is played at {address}.")
        variables = environment(address, DATABASE_URL=f"sqlite:///{DATABASE}")
        command(variables, "automation", "db", "upgrade")
        imported = command(
            variables, "automation", "audit-configs", "import", str(HERE / "audit_config.json"), "--json"
        )
        say(f"Audit configuration {json.loads(imported)['id']}: {json.loads(imported)['steps']} steps.")
        schedule = create_schedule(variables, fiches_of_yesterday(address))
        say(f"Schedule {schedule['id']}: {len(schedule['ficheSelection']['ficheIds'])} fiches. Dagster runs it now ...")
        execute(variables, schedule["id"])
        return show_outcome(variables)


def fiches_of_yesterday(address: str) -> list[str]:
    day = datetime.now(UTC).date() - timedelta(days=1)
    url = f"{address}/api/fiches/sales-with-calls?start_date={day}&end_date={day}&status_id=53"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return [fiche["id"] for fiche in json.load(answer)["fiches"]]


def create_schedule(variables: Mapping[str, str], fiche_ids: list[str]) -> dict:
    schedule = json.loads((HERE / "schedule.json").read_text())
    schedule["ficheSelection"]["ficheIds"] = fiche_ids
    given = json.dumps(schedule)
    return json.loads(command(variables, "automation", "schedules", "create", "--file", "-", "--json", given=given))


def execute(variables: Mapping[str, str], schedule_id: str) -> None:
    config = ROOM / "run.yaml"
    config.write_text(f"ops:\n  open_run:\n    config:\n      schedule_id: {schedule_id}\n")
    job = ["dagster", "job", "execute", "-m", "automation_pipeline.definitions", "-j", "automation_run"]
    with LOG.open("w") as log:
        ended = subprocess.run([*job, "-c", str(config)], env=variables, stdout=log, stderr=log, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"Dagster's run failed: see {LOG}.")


def show_outcome(variables: Mapping[str, str]) -> int:
    run_id = json.loads(command(variables, "automation", "runs", "list", "--json"))["runs"][0]["id"]
    REPORT.write_text(command(variables, "automation", "runs", "show", run_id, "--json"))
    subprocess.run(["automation", "runs", "show", run_id], env=variables, check=True)
    run = json.loads(REPORT.read_text())
    say(f"The report is {REPORT}, Dagster's own log {LOG}.")
    # The simulated day has exactly one fiche that its details do not know.
    as_expected = run["status"] == "completed" and run["ignoredFiches"] == 1 and run["failedFiches"] == 0
    if not as_expected:
        say("This is not how the demo's data should have ended.")
    return 0 if as_expected else 1


def command(variables: Mapping[str, str], *words: str, given: str | None = None) -> str:
    ended = subprocess.run(words, env=variables, input=given, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"`{' '.join(words)}` failed.")
    return ended.stdout


def say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
