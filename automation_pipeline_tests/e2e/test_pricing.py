"""Pricing from a rule to a rollback: a preview, a run whose worker is killed, and a reconciliation."""

import json

from automation_pipeline_tests.e2e.conftest import NewSystem
from automation_pipeline_tests.e2e.system import TIMEOUT_SECONDS, kill_tree
from automation_pipeline_tests.simulator_control import (
    add_faults,
    configure_shop,
    edit_variant,
    running_simulator,
    shop_totals,
)
from automation_pipeline_tests.waiting import wait_until

RULE = {
    "name": "A tenth off",
    "selector": {"all": True},
    "transform": {"op": "percent", "value": -10},
}


def test_prices_are_written_once_despite_a_killed_worker_and_rolled_back(
    new_system: NewSystem,
) -> None:
    shop = ("--shop-products", "40", "--shop-variants", "3", "--latency", "0.05")
    with running_simulator(*shop) as url:
        configure_shop(url, maximum=20_000, restore_rate=1000)
        system = new_system(at=url)
        with system.api():
            rule = system.post("/api/pricing/rules", **RULE)
            run = system.post(f"/api/pricing/rules/{rule['id']}/preview")
            many = run["totalTargets"]
            assert (run["status"], many > 60) == ("PREVIEW", True)
            add_faults(
                url,
                {"route": "shop.graphql", "status": 429, "retry_after": 1, "probability": 0.03},
                {"route": "shop.graphql", "drop": True, "after": True, "probability": 0.02},
            )
            system.post(f"/api/pricing/runs/{run['id']}/apply")
            words = system.job_command("rule_run", work_rule_run={"run_id": int(run["id"])})
            with system.running(*words, log="killed.log") as first:
                wait_until(lambda: len(shop_totals(url)["writes"]) > 40, TIMEOUT_SECONDS)
                kill_tree(first.pid)
            ended = system.run(*words)
            assert ended.returncode == 0, ended.stderr[-3000:]
            applied = system.get(f"/api/pricing/runs/{run['id']}")
            assert (applied["status"], applied["targets"]["applied"]) == ("APPLIED", many)
            totals = shop_totals(url)
            assert (len(totals["writes"]), set(totals["writes"].values()), totals["throttled"]) == (
                many,
                {1},
                0,
            )

            one, other = system.get(f"/api/pricing/runs/{run['id']}/targets")[:2]
            edit_variant(url, one["variantId"], "0.50")
            looked = system.run("automation", "pricing", "runs", "reconcile", run["id"], "--json")
            report = json.loads(looked.stdout)
            assert (looked.returncode, report["mismatches"], report["details"][0]["targetId"]) == (
                1,
                1,
                one["id"],
            )
            system.post(f"/api/pricing/runs/{run['id']}/rollback")
            assert system.run(*words).returncode == 0
            taken_back = system.get(f"/api/pricing/runs/{run['id']}")
            assert (taken_back["rollbackState"], taken_back["targets"]["applied"]) == ("PARTIAL", 1)
            then = shop_totals(url, variant=other["variantId"])["history"][-1]
            assert then["price"] == f"{other['before']['unitAmount'] / 100:.2f}"
