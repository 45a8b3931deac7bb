"""Procrastinate: one asynchronous job per fiche, deferred in one batch, with one asyncio worker."""

import time

STARTED = time.time()

import asyncio  # noqa: E402  the clock starts before the imports
import os  # noqa: E402
import sys  # noqa: E402
from argparse import Namespace  # noqa: E402
from pathlib import Path  # noqa: E402

import procrastinate  # noqa: E402

sys.path.append(str(Path(__file__).parents[1]))

from one_fiche import Results, Upstream, parse, report  # noqa: E402

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"])
)


@app.task(queue="fiches", pass_context=True)
async def audit_fiche(context: procrastinate.JobContext, fiche_id: str) -> None:
    results: Results = context.additional_context["results"]
    upstream: Upstream = context.additional_context["upstream"]
    results.begin()
    results.add(await upstream.outcome(fiche_id))


async def main(options: Namespace) -> None:
    results = Results(options.folder)
    async with app.open_async(), Upstream(options.upstream, options.width) as upstream:
        await app.schema_manager.apply_schema_async()
        fiches = await upstream.fiches()
        await audit_fiche.batch_defer_async(*({"fiche_id": fiche_id} for fiche_id in fiches))
        world = {"results": results, "upstream": upstream}
        await app.run_worker_async(
            queues=["fiches"], concurrency=options.width, wait=False, additional_context=world
        )
    results.close()


if __name__ == "__main__":
    given = parse()
    asyncio.run(main(given))
    report(given.folder, STARTED)
