"""DBOS on PostgreSQL: one durable workflow per fiche on a queue, with checkpointed steps."""

import time

STARTED = time.time()

import asyncio  # noqa: E402  the clock starts before the imports
import os  # noqa: E402
import sys  # noqa: E402
from argparse import Namespace  # noqa: E402
from pathlib import Path  # noqa: E402

from dbos import DBOS, DBOSConfig  # noqa: E402

sys.path.append(str(Path(__file__).parents[1]))

from one_fiche import Outcome, Results, Upstream, parse, report  # noqa: E402

OFTEN_SECONDS = 0.05
GIVEN: Namespace = parse()
RESULTS = Results(GIVEN.folder)
UPSTREAM = Upstream(GIVEN.upstream, GIVEN.width)


@DBOS.step()
async def outcome_of(fiche_id: str) -> Outcome:
    return await UPSTREAM.outcome(fiche_id)


@DBOS.step()
async def store(outcome: Outcome) -> None:
    RESULTS.add(outcome)


@DBOS.workflow()
async def audit_fiche(fiche_id: str) -> str:
    RESULTS.begin()
    outcome = await outcome_of(fiche_id)
    await store(outcome)
    return outcome[-1]


async def main() -> None:
    """DBOS has its own event loop, so the list and the fiches are fetched by different clients."""
    async with Upstream(GIVEN.upstream, GIVEN.width) as upstream:
        await DBOS.register_queue_async(
            "fiches", worker_concurrency=GIVEN.width, polling_interval_sec=OFTEN_SECONDS
        )
        fiches = await upstream.fiches()
        handles = [
            await DBOS.enqueue_workflow_async("fiches", audit_fiche, fiche_id)
            for fiche_id in fiches
        ]
        for handle in handles:
            await handle.get_result(polling_interval_sec=OFTEN_SECONDS)


if __name__ == "__main__":
    config: DBOSConfig = {
        "name": "fiches",
        "system_database_url": os.environ["DATABASE_URL"],
        "log_level": "WARNING",
    }
    DBOS(config=config)
    DBOS.launch()
    asyncio.run(main())
    DBOS.destroy()
    RESULTS.close()
    report(GIVEN.folder, STARTED)
