"""The sweeps over audits and jobs over days whose Dagster run ended without closing them."""

from collections.abc import Sequence
from datetime import timedelta

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from automation_pipeline.audits.audits import fail_audit
from automation_pipeline.audits.queries.requests import items_never_started
from automation_pipeline.bootstrap import Services
from automation_pipeline.fiches.fetch_jobs import fail_range
from automation_pipeline.fiches.queries.fetch_jobs import silent_jobs
from automation_pipeline.orchestration.job_registry import REQUEST_TAG
from automation_pipeline.orchestration.recovery import ENDED
from automation_pipeline.storage.run_requests import filed_requests, mark_refused

LOST = "The Dagster run ended without beginning the audit"
UNFINISHED = "The Dagster run ended without finishing the job"
# Of a job over days: a sales list may take its time, and a place in a queue too.
SILENT_FOR = timedelta(minutes=15)
AT_MOST = 500


def end_lost_audits(instance: DagsterInstance, services: Services) -> list[str]:
    """The tracking ids of what batches waited for in vain, however its Dagster run ended: one query
    here and one of Dagster's. A retry has the tag of the request too, and is the newest run with
    it."""
    with services.database.reading() as session:
        waiting = items_never_started(
            session, services.settings.audit_max_wait_seconds, limit=AT_MOST
        )
    lost = _lost(waiting, instance, services)
    for tracking_id in lost:
        with services.database.transaction() as session:
            mark_refused(session, tracking_id, LOST)
            fail_audit(session, tracking_id, LOST, "sweep")
    return lost


def end_lost_ranges(instance: DagsterInstance, services: Services) -> list[str]:
    """The ids of the jobs over days that nobody works on any more, however their Dagster run
    ended."""
    with services.database.reading() as session:
        silent = silent_jobs(session, services.clock.now() - SILENT_FOR, limit=AT_MOST)
    lost = _lost(silent, instance, services)
    return [
        job
        for job in lost
        if fail_range(job, UNFINISHED, database=services.database, clock=services.clock)
    ]


def _lost(keys: Sequence[str], instance: DagsterInstance, services: Services) -> list[str]:
    """Those of the requests whose newest Dagster run is over, and for which no other one was
    requested."""
    if not keys:
        return []
    newest: dict[str, DagsterRunStatus] = {}
    for run in instance.get_runs(RunsFilter(tags={REQUEST_TAG: list(keys)})):
        newest.setdefault(run.tags[REQUEST_TAG], run.status)
    with services.database.reading() as session:
        filed = filed_requests(session, keys)
    again = {one.key for one in filed if one.launch > 1 and one.state == "waiting"}
    return [
        key
        for key in keys
        if key not in again and newest.get(key, DagsterRunStatus.FAILURE) in ENDED
    ]
