"""Two concurrent `automation fiches sync` commands with a CRM that fails."""

from datetime import date, timedelta

import httpx

from automation_pipeline.simulator import Kind, World
from automation_pipeline_tests.e2e.conftest import NewSystem
from automation_pipeline_tests.e2e.system import TIMEOUT_SECONDS
from automation_pipeline_tests.simulator_control import (
    NO_CERTIFICATES,
    add_faults,
    running_simulator,
)

FICHES_PER_DAY = 40
DAYS = [date(2026, 1, 5) + timedelta(days=number) for number in range(10)]
COMMAND = (
    "automation",
    "fiches",
    "sync",
    "--from",
    str(DAYS[0]),
    "--to",
    str(DAYS[-1]),
    "--details",
    "--json",
)


def test_two_synchronisations_at_once_leave_every_fiche_correct_despite_faults(
    new_system: NewSystem,
) -> None:
    fiches = {
        fiche.id: fiche for day in DAYS for fiche in World(7, FICHES_PER_DAY, vary=False).day(day)
    }
    with running_simulator("--exact", "--fiches-per-day", str(FICHES_PER_DAY)) as url:
        add_faults(
            url,
            {"route": "crm.sales_list", "latency_seconds": 0.2},
            {"route": "crm.details", "status": 500, "probability": 0.05},
            {"route": "crm.details", "hang": True, "probability": 0.01},
            {"route": "crm.details", "body": "truncated", "probability": 0.01},
        )
        system = new_system(at=url, FICHE_FETCH_CONCURRENCY="20", FICHE_API_TIMEOUT_SECONDS="2")
        both = [system.start(*COMMAND, log=f"sync-{number}.log") for number in range(2)]
        for process in both:
            process.wait(TIMEOUT_SECONDS)
        # What failed three times in a row is tried again by repeating the command.
        for _ in range(3):
            if system.run(*COMMAND).returncode == 0:
                break
        rows = system.sql("SELECT fiche_id, details_success, sales_date FROM fiche_cache")
        assert {row["fiche_id"]: bool(row["details_success"]) for row in rows} == {
            each.id: each.kind is not Kind.MISSING for each in fiches.values()
        }
        assert {row["fiche_id"]: str(row["sales_date"]) for row in rows} == {
            each.id: str(each.sold_on) for each in fiches.values()
        }
        [counted] = system.sql("SELECT count(*) AS n FROM recordings")
        assert counted["n"] == sum(len(each.recordings) for each in fiches.values())

        before = httpx.get(f"{url}/_sim/calls", verify=NO_CERTIFICATES).json()["routes"]
        assert before["crm.sales_list"]["in_flight_max"] <= 3, (
            "all processes together ask for three lists at a time"
        )
        again = system.run(*COMMAND)
        assert again.returncode == 0, again.stderr
        assert httpx.get(f"{url}/_sim/calls", verify=NO_CERTIFICATES).json()["routes"] == before
