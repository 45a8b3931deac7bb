"""Celery's application and its only task, which the worker imports. Redis stores the results."""

import os
import sys
from functools import cache
from pathlib import Path

from celery import Celery

sys.path.append(str(Path(__file__).parents[1]))

from one_fiche import BlockingUpstream, Results

app = Celery("fiches", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])


@app.task
def audit_fiche(fiche_id: str) -> str:
    results().begin()
    outcome = upstream().outcome(fiche_id)
    results().add(outcome)
    return outcome[-1]


@cache
def upstream() -> BlockingUpstream:
    return BlockingUpstream(os.environ["PEER_UPSTREAM"], int(os.environ["PEER_WIDTH"]))


@cache
def results() -> Results:
    return Results(Path(os.environ["PEER_FOLDER"]))
