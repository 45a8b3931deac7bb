"""Functions that tests of the queue call in other processes."""

import asyncio
import os
import signal
from collections.abc import Sequence
from datetime import datetime
from random import Random

from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.org_jobs.jobs import release_jobs, retry_job
from automation_pipeline.org_jobs.models.jobs import AttemptEnd
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline.org_jobs.ports import JobContext
from automation_pipeline.org_jobs.queries.queue import claim_for_host, claim_run
from automation_pipeline.org_jobs.runs import work_job
from automation_pipeline.org_jobs.tables import HostRow
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.org_jobs.data import SERVICE
from automation_pipeline_tests.storage.processes import opened

LEASE_SECONDS = 3600.0


def claim_all(
    url: str, now: datetime, host_id: int, run_ids: Sequence[int], seed: int
) -> list[int]:
    """Claim runs, in turn as an agent and as a worker; return the claimed runs."""
    chosen, got = Random(seed), list[int]()
    with opened(url) as database:
        for run_id in chosen.sample(run_ids, len(run_ids)):
            with database.transaction() as session:
                host = session.get_one(HostRow, host_id)
                claimed = claim_for_host(
                    session, host, f"agent-{seed}", chosen.randint(1, 3), LEASE_SECONDS, now
                )
            with database.transaction() as session:
                service_job = claim_run(session, run_id, f"worker-{seed}", LEASE_SECONDS, now)
            got += [
                one.hold.run_id
                for one in (*claimed, *([] if service_job is None else [service_job]))
            ]
    return got


def release(url: str, now: datetime, limit: int) -> list[int]:
    with opened(url) as database:
        return list(release_jobs(database=database, clock=FakeClock(now), limit=limit))


class KilledLocally:
    async def work(self, context: JobContext) -> AttemptEnd:
        os.kill(os.getpid(), signal.SIGKILL)
        return await asyncio.Future()


class KilledRemotely:
    """Kills the process while the remote work is being started."""

    def start(self, context: JobContext) -> dict[str, object]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    def find_ended(self, followed: object) -> dict[int, AttemptEnd]:
        return {}

    def cancel(self, following: object, actor: str, reason: str | None = None) -> bool:
        return False


def work_and_die(url: str, now: str, run_id: int, kind: str) -> None:
    runner = KilledLocally() if kind == "local" else KilledRemotely()
    with opened(url) as database:
        asyncio.run(
            work_job(
                run_id,
                runners={SERVICE.name: runner},
                lease_seconds=LEASE_SECONDS,
                database=database,
                clock=FakeClock(datetime.fromisoformat(now)),
                meter=Meter(),
                owner="killed-worker",
            )
        )


def retry(url: str, now: datetime, job_id: int) -> bool:
    with opened(url) as database:
        try:
            retry_job(
                job_id,
                within=ALL_ORGANISATIONS,
                database=database,
                clock=FakeClock(now),
                actor="user:1",
            )
        except ConflictError:
            return False
        return True
