"""One mapped op per fiche, as coroutines on the community's asyncio executor."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import dagster as dg
from dagster_async_executor import async_executor

sys.path.append(str(Path(__file__).parents[1]))

from one_fiche import Results, Upstream

WIDTH = int(os.environ["PEER_WIDTH"])
UPSTREAM = Upstream(os.environ["PEER_UPSTREAM"], WIDTH)
RESULTS = Results(Path(os.environ["PEER_FOLDER"]))


@dg.op(out=dg.DynamicOut(str))
async def list_fiches() -> AsyncIterator[dg.DynamicOutput[str]]:
    for fiche_id in await UPSTREAM.fiches():
        yield dg.DynamicOutput(fiche_id, mapping_key=fiche_id)


@dg.op
async def audit_fiche(fiche_id: str) -> str:
    RESULTS.begin()
    outcome = await UPSTREAM.outcome(fiche_id)
    RESULTS.add(outcome)
    return outcome[-1]


@dg.op
def count(verdicts: list[str]) -> int:
    return len(verdicts)


@dg.job(executor_def=async_executor.configured({"max_concurrent": WIDTH}))
def audit_day() -> None:
    count(list_fiches().map(audit_fiche).collect())
