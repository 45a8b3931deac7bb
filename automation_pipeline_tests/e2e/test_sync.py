"""`automation fiches sync` against a CRM that misbehaves, and two of it at once."""

import subprocess
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select

from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.simulator import Kind, World
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.e2e.system import PATIENCE, System
from automation_pipeline_tests.outside import fault, simulator

FIRST, DAYS, A_DAY = date(2026, 1, 5), 30, 200
MONTH = [FIRST + timedelta(days=number) for number in range(DAYS)]
WORLD = World(7, A_DAY, vary=False)


@pytest.fixture
def busy_simulator() -> Iterator[str]:
    with simulator("--exact", "--fiches-per-day", str(A_DAY)) as url:
        yield url


def sync(*options: str) -> tuple[str, ...]:
    return ("automation", "fiches", "sync", *options, "--details", "--json")


def sales_list_calls(url: str) -> dict[str, int]:
    return httpx.get(f"{url}/_sim/calls").json()["routes"]["crm.sales_list"]


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_month_ends_with_every_fiche_in_its_right_state_despite_the_faults(
    tmp_path: Path, database: Database, database_url: str, busy_simulator: str
) -> None:
    system = System(tmp_path, database_url, busy_simulator, FICHE_FETCH_CONCURRENCY="50", FICHE_API_TIMEOUT_SECONDS="2")
    fault(
        busy_simulator,
        {"route": "crm.details", "status": 500, "probability": 0.05},
        {"route": "crm.details", "hang": True, "probability": 0.02},
        {"route": "crm.details", "body": "truncated", "probability": 0.01},
    )
    month = sync("--from", str(MONTH[0]), "--to", str(MONTH[-1]))
    # What failed three times in a row is tried again by repeating the command.
    for _ in range(3):
        if system.run(*month).returncode == 0:
            break
    before, lists_before = system.calls_per_fiche(), sales_list_calls(busy_simulator)["calls"]

    fiches = {fiche.id: fiche for day in MONTH for fiche in WORLD.day(day)}
    with database.reading() as session:
        states = dict(session.execute(select(FicheCache.fiche_id, FicheCache.details_success)).tuples().all())
        sold = dict(session.execute(select(FicheCache.fiche_id, FicheCache.sales_date)).tuples().all())
        recordings = session.scalar(select(func.count()).select_from(RecordingRow))
    assert states == {each.id: each.kind is not Kind.MISSING for each in fiches.values()}
    assert sold == {each.id: str(each.sold_on) for each in fiches.values()}
    assert recordings == sum(len(each.recordings) for each in fiches.values())

    again = system.run(*month)
    assert again.returncode == 0, again.stderr
    assert system.calls_per_fiche() == before, "what was fresh has been asked for again"
    assert sales_list_calls(busy_simulator)["calls"] == lists_before, "final lists have been asked for again"


def test_two_at_once_end_in_the_same_state_as_one(
    tmp_path: Path, database: Database, database_url: str, busy_simulator: str
) -> None:
    system = System(tmp_path, database_url, busy_simulator, FICHE_FETCH_CONCURRENCY="20")
    command = sync("--date", str(FIRST))
    both = [
        subprocess.Popen(command, env=system.environment, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(PATIENCE) for process in both] == [0, 0]

    expected = {fiche.id: fiche for fiche in WORLD.day(FIRST)}
    with database.reading() as session:
        states = session.execute(select(FicheCache.fiche_id, FicheCache.details_success)).tuples().all()
        recordings = session.scalar(select(func.count()).select_from(RecordingRow))
    assert sorted(states) == sorted((each.id, each.kind is not Kind.MISSING) for each in expected.values())
    assert recordings == sum(len(each.recordings) for each in expected.values())


def test_all_processes_together_ask_for_three_sales_lists_at_a_time(
    tmp_path: Path, database_url: str, busy_simulator: str
) -> None:
    system = System(tmp_path, database_url, busy_simulator)
    fault(busy_simulator, {"route": "crm.sales_list", "latency_seconds": 0.2})
    command = ("automation", "fiches", "sync", "--from", str(MONTH[0]), "--to", str(MONTH[9]), "--force", "--json")
    crowd = [
        subprocess.Popen(command, env=system.environment, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(3)
    ]
    assert [process.wait(PATIENCE) for process in crowd] == [0, 0, 0]
    lists = sales_list_calls(busy_simulator)
    assert (lists["calls"], lists["in_flight_max"]) == (30, 3)
