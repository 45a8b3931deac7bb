"""Prefect 3 with its temporary server: one task mapped over the fiches, in a pool of threads."""

import time

STARTED = time.time()

import os  # noqa: E402  the clock starts before the imports
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path.append(str(Path(__file__).parents[1]))

from one_fiche import BlockingUpstream, Results, parse, report  # noqa: E402

GIVEN = parse()
os.environ.update(
    PREFECT_HOME=str(GIVEN.folder / "prefect"),
    PREFECT_LOGGING_LEVEL="WARNING",
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
)

from prefect import flow, task  # noqa: E402  it reads its settings when it is imported
from prefect.task_runners import ThreadPoolTaskRunner  # noqa: E402

RESULTS = Results(GIVEN.folder)
UPSTREAM = BlockingUpstream(GIVEN.upstream, GIVEN.width)


@task
def audit_fiche(fiche_id: str) -> str:
    RESULTS.begin()
    outcome = UPSTREAM.outcome(fiche_id)
    RESULTS.add(outcome)
    return outcome[-1]


@flow(task_runner=ThreadPoolTaskRunner(max_workers=GIVEN.width))
def audit_day() -> list[str]:
    return audit_fiche.map(UPSTREAM.fiches()).result()


if __name__ == "__main__":
    audit_day()
    RESULTS.close()
    report(GIVEN.folder, STARTED)
