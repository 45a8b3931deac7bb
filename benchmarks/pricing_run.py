"""Compares a run of a pricing rule with the minimum time that the shop's rate limit allows, and
prints the ratio.

python benchmarks/pricing_run.py [--products 1000] [--variants 5] [--rate 100] [--latency 0.03]
    [--seed 7] [--kill]

3 % of the shop's answers are 429, and 1 % are 503. `--kill` kills the worker half-way with SIGKILL,
and another one continues.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "demo"))

from simulated_systems import environment, simulator  # noqa: E402  demo/ is not a package

MAXIMUM = 2000
CHUNK = 250
WRITE_COST = 10
MOST = 1.10
FAULTS = [
    {"route": "shop.graphql", "status": 429, "retry_after": 2.0, "probability": 0.03},
    {"route": "shop.graphql", "status": 503, "probability": 0.01},
]


def main() -> None:
    options = parse()
    if options.worker:
        asyncio.run(work(options.worker))
        return
    world = (
        "--port",
        "0",
        "--shop-products",
        str(options.products),
        "--shop-variants",
        str(options.variants),
    )
    world = (*world, "--seed", str(options.seed))
    with (
        simulator(*world, "--latency", str(options.latency)) as address,
        tempfile.TemporaryDirectory(prefix="pricing-run-") as folder,
    ):
        os.environ.update(
            environment(
                address,
                DATABASE_URL=f"sqlite:///{folder}/automation.db",
                PRICING_LEASE_SECONDS="4",
                SHOP_TIMEOUT_SECONDS="3",
            )
        )
        measure(options, address)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--products", type=int, default=1000)
    parser.add_argument("--variants", type=int, default=5)
    parser.add_argument("--rate", type=float, default=100, help="points that come back a second")
    parser.add_argument("--latency", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=7, help="which of the shop's answers fail")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(options: argparse.Namespace, address: str) -> None:
    run_id, points = queued_run(address)
    best = max((points - MAXIMUM) / options.rate, 0.0)
    put(address, {"maximum": MAXIMUM, "restore_rate": options.rate})
    httpx.post(f"{address}/_sim/faults", json=FAULTS).raise_for_status()
    clock_start = time.monotonic()
    worker = started(run_id)
    if options.kill:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(best / 2)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        worker = started(run_id)
    if worker.wait() != 0:
        raise SystemExit("The worker failed.")
    seconds = time.monotonic() - clock_start
    report(options, address, run_id, best, seconds)


def queued_run(address: str) -> tuple[int, float]:
    """A planned run that lowers all prices by 10 %, and the points that its application costs
    without errors: one read per price and one write per product."""
    from automation_pipeline import migrations  # noqa: PLC0415  settings are read when they are asked for
    from automation_pipeline.bootstrap import services  # noqa: PLC0415
    from automation_pipeline.pricing.models.runs import RuleTrigger  # noqa: PLC0415
    from automation_pipeline.pricing.planning import preview_rule  # noqa: PLC0415
    from automation_pipeline.pricing.pricing_rules import create_rule  # noqa: PLC0415
    from automation_pipeline.pricing.queries.runs import targets_of  # noqa: PLC0415
    from automation_pipeline.pricing.runs import queue_run  # noqa: PLC0415

    put(address, {"maximum": 10**9, "restore_rate": 10**9})
    system = services()
    ground = {"database": system.database, "clock": system.clock}
    migrations.upgrade(system.database)
    given = {
        "name": "A tenth off",
        "selector": {"all": True},
        "transform": {"op": "percent", "value": -10},
    }
    rule = create_rule(given, project_id="default", actor="benchmark", **ground)
    clock_start = time.monotonic()
    run = system.run(
        preview_rule(rule.id, system.pricing_context, actor="benchmark", trigger=RuleTrigger.CLI)
    )
    print(
        f"previewed {run.total_targets} of {run.matched} variants in {time.monotonic() - clock_start:.1f} s"
    )
    queue_run(run.id, actor="benchmark", **ground)
    with system.database.reading() as session:
        products = {
            target.product_id for target in targets_of(session, run.id, limit=run.total_targets)
        }
    return run.id, run.total_targets * (1 + 1 / CHUNK) + len(products) * WRITE_COST


def started(run_id: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "--worker", str(run_id)])


async def work(run_id: int) -> None:
    """The work of the Dagster job without its start, until the run waits or ends."""
    from automation_pipeline.bootstrap import services  # noqa: PLC0415
    from automation_pipeline.core.errors import TransientError  # noqa: PLC0415
    from automation_pipeline.pricing.worker import work_run  # noqa: PLC0415

    system = services()
    while True:
        try:
            run = await work_run(run_id, system.pricing_context, f"benchmark:{os.getpid()}")
        except TransientError as error:
            await asyncio.sleep(error.retry_after_seconds or 1)
            continue
        if run.finished_at is not None:
            return
        await asyncio.sleep(1)


def report(
    options: argparse.Namespace, address: str, run_id: int, best: float, seconds: float
) -> None:
    from automation_pipeline.bootstrap import services  # noqa: PLC0415
    from automation_pipeline.pricing.queries.runs import get_run  # noqa: PLC0415

    with services().database.reading() as session:
        run = get_run(session, run_id)
    shop = httpx.get(f"{address}/_sim/shop").json()
    twice = sum(count > 1 for count in shop["writes"].values())
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {run.status}: {run.targets}")
    print(f"points spent {shop['spent']:.0f}, left {shop['level']:.0f}")
    print(
        f"calls {shop['calls']}, throttled by the bucket {shop['throttled']}, variants written twice {twice}"
    )
    assert run.started_at is not None
    assert run.finished_at is not None
    took = (run.finished_at - run.started_at).total_seconds()
    print(f"ours  {took:7.1f} s, {seconds:.1f} s with the start of the worker")
    print(f"ideal {best:7.1f} s")
    print(f"ratio {took / best:7.2f}")
    if shop["throttled"] or twice:
        raise SystemExit("No call may come before its points, and no variant be written twice.")
    if not options.kill and took > MOST * best:
        raise SystemExit(f"A run is to take at most {MOST:g} times as long as the bucket does.")


def put(address: str, settings: dict[str, float]) -> None:
    httpx.put(f"{address}/_sim/shop", json=settings).raise_for_status()


if __name__ == "__main__":
    main()
