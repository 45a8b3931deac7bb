"""Enriches many companies concurrently while registries fail, and compares the time with the
minimum that the registries' limits allow.

python benchmarks/enrichment_run.py [--companies 200] [--workers 2] [--seed 7]

The simulated registries keep the limits of the real ones, and record faster callers. Every job must
end, with one event `Started` per claim.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
from sqlalchemy import select

from automation_pipeline import migrations
from automation_pipeline.bootstrap import services
from automation_pipeline.enrichment.jobs import work_enrichment
from automation_pipeline.enrichment.models import Requester
from automation_pipeline.enrichment.requests import request_enrichment
from automation_pipeline.enrichment.tables import EnrichmentJobRow
from automation_pipeline.storage.outbox import OutboxRow

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "demo"))

from simulated_systems import environment, simulator  # noqa: E402  demo/ is not a package

AT_ONCE = 8
MOST = 1.25
PACES = {"search": 6.0, "inpi": 170 / 60, "rcs": 4.0}
FAULTS = [
    {"route": "registries.search", "status": 503, "probability": 0.02},
    {"route": "registries.rcs", "status": 502, "probability": 0.02},
    {"route": "registries.inpi.company", "status": 500, "probability": 0.02},
]


def main() -> None:
    options = parse()
    if options.jobs:
        asyncio.run(work([int(job) for job in options.jobs.split(",")]))
        return
    with (
        simulator("--port", "0", "--seed", str(options.seed)) as address,
        tempfile.TemporaryDirectory() as folder,
    ):
        os.environ.update(environment(address, DATABASE_URL=f"sqlite:///{folder}/automation.db"))
        sys.exit(measure(options, address))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--companies", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2, help="processes that work on them")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(options: argparse.Namespace, address: str) -> int:
    jobs = asked_for(address, options.companies)
    httpx.post(f"{address}/_sim/faults", json=FAULTS).raise_for_status()
    started_at = time.monotonic()
    shares = [
        ",".join(map(str, jobs[place :: options.workers])) for place in range(options.workers)
    ]
    workers = [subprocess.Popen([sys.executable, __file__, "--jobs", share]) for share in shares]
    ended_well = all(worker.wait() == 0 for worker in workers)
    took = time.monotonic() - started_at
    document = httpx.get(f"{address}/_sim/registries").raise_for_status().json()["sources"]
    best = max(document[name]["calls"] / pace for name, pace in PACES.items())
    statuses, starts = outcomes()
    refused = {name: document[name]["refused"] for name in PACES}
    peaks = (
        document["search"]["peak_per_second"],
        document["inpi"]["peak_per_minute"],
        document["rcs"]["peak_per_minute"],
    )
    leases = dict(Counter(starts.values()))
    print(
        f"{options.companies} companies in {took:.0f} s: {dict(statuses)}; Started, by job: {leases}"
    )
    print("search {}/s (limit 7), INPI {}/min (limit 180), RCS {}/min (limit 250)".format(*peaks))
    print(
        f"refused for haste: {refused}; ratio to the ideal time of {best:.0f} s: {took / best:.2f} (bar {MOST})"
    )
    is_kept = (
        not any(refused.values())
        and sum(statuses.values()) == options.companies
        and set(starts.values()) == {1}
    )
    return 0 if ended_well and is_kept and took / best <= MOST else 1


def asked_for(address: str, count: int) -> list[int]:

    our = services()
    migrations.upgrade(our.database)
    asking = Requester(tenant_id="main", correlation_id="benchmark", actor="benchmark")
    found = (
        httpx.get(f"{address}/_sim/registries/sirens", params={"count": count})
        .raise_for_status()
        .json()
    )
    jobs = []
    for siren in found["sirens"]:
        wanted = {"siren": siren}
        asked = request_enrichment(
            wanted, asking, options=our.registries.options, database=our.database, clock=our.clock
        )
        jobs.append(asked.job_id)
    return jobs


async def work(jobs: list[int]) -> None:

    our, places = services(), asyncio.Semaphore(AT_ONCE)

    async def one(job_id: int) -> None:
        async with places:
            await work_enrichment(
                job_id,
                registries=our.registries,
                database=our.database,
                clock=our.clock,
                owner=f"bench-{os.getpid()}",
            )

    await asyncio.gather(*map(one, jobs))


def outcomes() -> tuple[Counter[str], dict[str, int]]:

    with services().database.reading() as session:
        statuses = Counter(
            str(status) for status in session.scalars(select(EnrichmentJobRow.status))
        )
        named = select(OutboxRow.payload).where(OutboxRow.event_name == "CompanyEnrichmentStarted")
        starts = Counter(str(payload["job_id"]) for payload in session.scalars(named))
    return statuses, dict(starts)


if __name__ == "__main__":
    main()
