"""The context of a service job, and a worker killed before its transaction commits."""

from collections.abc import Callable

from automation_pipeline.org_jobs.models.job_types import checked_payload, job_type
from automation_pipeline.org_jobs.ports import JobContext
from automation_pipeline.storage.database import Database


class Killed(Exception):  # noqa: N818  simulates a killed worker
    pass


def job_context(type_: str, org_id: str = "acme", **payload: object) -> JobContext:
    # `call_origins=None` accepts receivers on loopback.
    stored = checked_payload(job_type(type_), payload, call_origins=None)
    return JobContext(
        org_id=org_id, job_id=7, run_id=12, attempt_no=2, payload=stored, key="org-job-run-12"
    )


def killed_after(work: Callable[[], object], database: Database) -> None:
    with database.single_transaction():
        work()
        raise Killed
