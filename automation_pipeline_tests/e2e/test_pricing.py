"""Pricing as people use it: a rule, a preview, a job of Dagster's; prices in a shop over HTTP; and a worker killed."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from automation_pipeline.storage.database import Database
from automation_pipeline_tests.e2e.system import PATIENCE, System, kill_tree
from automation_pipeline_tests.outside import SHOP_TOKEN, edit_in_shop, fault, set_up_shop, shop_totals, simulator
from automation_pipeline_tests.waiting import wait_until

PRODUCTS, VARIANTS = 60, 3
RULE = {"name": "A tenth off", "selector": {"all": True}, "transform": {"op": "percent", "value": -10}}


@pytest.fixture
def outside_world() -> Iterator[str]:
    shop = ("--shop-products", str(PRODUCTS), "--shop-variants", str(VARIANTS))
    with simulator(*shop, "--latency", "0.05") as url:
        set_up_shop(url, maximum=20_000, restore_rate=1000)
        yield url


@pytest.fixture
def system(tmp_path: Path, database: Database, database_url: str, outside_world: str) -> System:
    return System(
        tmp_path,
        database_url,
        outside_world,
        SHOP_API_BASE_URL=outside_world,
        SHOP_API_TOKEN=SHOP_TOKEN,
        SHOP_TIMEOUT_SECONDS="6",
        PRICING_LEASE_SECONDS="12",
    )


def previewed(system: System) -> dict:
    rule = system.automation("pricing", "rules", "create", "--file", "-", given=json.dumps(RULE))
    return system.automation("pricing", "preview", rule["id"])["run"]


def worker(system: System, run_id: str) -> subprocess.Popen[bytes]:
    """The job of Dagster's, as CI executes it."""
    config = system.room / "run.yaml"
    config.write_text(f"ops:\n  work_rule_run:\n    config:\n      run_id: {run_id}\n")
    command = [
        "dagster",
        "job",
        "execute",
        "-m",
        "automation_pipeline.definitions",
        "-j",
        "rule_run",
        "-c",
        str(config),
    ]
    with (system.room / "worker.log").open("ab") as log:
        return subprocess.Popen(
            command, env=system.environment, cwd=system.room, stdout=log, stderr=log, start_new_session=True
        )


def worked(system: System, run_id: str) -> dict:
    assert worker(system, run_id).wait(PATIENCE) == 0, (system.room / "worker.log").read_text()[-4000:]
    return system.automation("pricing", "runs", "show", run_id)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_rule_is_previewed_applied_looked_up_and_taken_back(system: System, outside_world: str) -> None:
    run = previewed(system)
    assert (run["status"], run["totalTargets"] > 100) == ("PREVIEW", True)
    system.automation("pricing", "runs", "apply", run["id"])
    applied = worked(system, run["id"])
    assert (applied["status"], applied["targets"]["applied"]) == ("APPLIED", run["totalTargets"])
    one, other = system.automation("pricing", "runs", "targets", run["id"])["targets"][:2]
    edit_in_shop(outside_world, one["variantId"], "0.50")
    looked = system.run("automation", "pricing", "runs", "reconcile", run["id"], "--json")
    report = json.loads(looked.stdout)
    assert (looked.returncode, report["mismatches"], report["details"][0]["targetId"]) == (1, 1, one["id"])
    system.automation("pricing", "runs", "rollback", run["id"])
    taken_back = worked(system, run["id"])
    assert (taken_back["status"], taken_back["rollbackState"]) == ("APPLIED", "PARTIAL")
    assert taken_back["targets"]["applied"] == 1
    then = shop_totals(outside_world, variant=other["variantId"])["history"][-1]
    assert then["price"] == f"{other['before']['unitAmount'] / 100:.2f}"


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_worker_that_is_killed_is_followed_by_one_that_writes_nothing_twice(
    system: System, outside_world: str
) -> None:
    run = previewed(system)
    fault(
        outside_world,
        {"route": "shop.graphql", "status": 429, "retry_after": 1, "probability": 0.03},
        {"route": "shop.graphql", "status": 503, "probability": 0.01},
        {"route": "shop.graphql", "drop": True, "after": True, "probability": 0.02},
    )
    system.automation("pricing", "runs", "apply", run["id"])
    first = worker(system, run["id"])
    wait_until(lambda: len(shop_totals(outside_world)["writes"]) > run["totalTargets"] / 3, PATIENCE)
    kill_tree(first.pid)
    first.wait()
    ended = worked(system, run["id"])
    assert (ended["status"], ended["targets"]["applied"]) == ("APPLIED", run["totalTargets"])
    totals = shop_totals(outside_world)
    assert set(totals["writes"].values()) == {1}
    assert (len(totals["writes"]), totals["throttled"]) == (run["totalTargets"], 0)
