"""The list of fiches as dynamic outputs, one mapped op per fiche, and one op that collects."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import dagster as dg

sys.path.append(str(Path(__file__).parents[1]))

from one_fiche import BlockingUpstream, Results

WIDTH = int(os.environ["PEER_WIDTH"])
FORKSERVER = {"forkserver": {"preload_modules": ["jobs"]}}


@dg.op(out=dg.DynamicOut(str))
def list_fiches() -> Iterator[dg.DynamicOutput[str]]:
    for fiche_id in upstream().fiches():
        yield dg.DynamicOutput(fiche_id, mapping_key=fiche_id)


@dg.op
def audit_fiche(fiche_id: str) -> str:
    results().begin()
    outcome = upstream().outcome(fiche_id)
    results().add(outcome)
    return outcome[-1]


@dg.op
def count(verdicts: list[str]) -> int:
    return len(verdicts)


@dg.job(executor_def=dg.in_process_executor)
def in_process() -> None:
    count(list_fiches().map(audit_fiche).collect())


@dg.job(
    executor_def=dg.multiprocess_executor.configured(
        {"max_concurrent": WIDTH, "start_method": FORKSERVER}
    )
)
def multiprocess() -> None:
    count(list_fiches().map(audit_fiche).collect())


@cache
def upstream() -> BlockingUpstream:
    return BlockingUpstream(os.environ["PEER_UPSTREAM"], WIDTH)


@cache
def results() -> Results:
    return Results(Path(os.environ["PEER_FOLDER"]))
