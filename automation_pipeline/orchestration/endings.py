"""What a Dagster run leaves behind that ended badly: the request that it was launched for, and its audit."""

from dagster import DagsterInstance, DagsterRun, RunRecord, RunsFilter

from automation_pipeline.audits.stages.fail_audit import fail_audit
from automation_pipeline.audits.store.batches import items_never_begun
from automation_pipeline.bootstrap import Services
from automation_pipeline.orchestration.aftermath import Aftermath, aftermath, will_retry
from automation_pipeline.orchestration.audits import fail_audit_of
from automation_pipeline.orchestration.requests import REQUEST_TAG, refuse_request
from automation_pipeline.storage.run_requests import mark_refused

TERMINATED = "The run was terminated in Dagster"
LOST = "The Dagster run ended without beginning the audit"
AT_MOST = 500


def end_work_of(run: DagsterRun, reason: str, services: Services) -> bool:
    """The automation run is left to `finalise_run` and the watchdog. False when the run was not launched for a
    request."""
    requested = refuse_request(run, reason, services)
    fail_audit_of(run, reason, services)
    return requested


def end_lost_audits(instance: DagsterInstance, services: Services) -> list[str]:
    """The tracking ids of what batches waited for in vain, however its Dagster run ended: one query here and one of
    Dagster's. A retry has the tag of the request too, and is the newest run with it."""
    with services.database.reading() as session:
        waiting = items_never_begun(session, services.settings.audit_max_wait_seconds, limit=AT_MOST)
    if not waiting:
        return []
    newest: dict[str, RunRecord] = {}
    for record in instance.get_run_records(RunsFilter(tags={REQUEST_TAG: waiting})):
        newest.setdefault(record.dagster_run.tags[REQUEST_TAG], record)
    lost = [tracking_id for tracking_id in waiting if _is_over(newest.get(tracking_id), services)]
    for tracking_id in lost:
        with services.database.transaction() as session:
            mark_refused(session, tracking_id, LOST)
            fail_audit(session, tracking_id, LOST, "sweep")
    return lost


def _is_over(record: RunRecord | None, services: Services) -> bool:
    if record is None:
        return True
    run, now = record.dagster_run, services.clock.now().timestamp()
    silent = record.end_time is not None and now - record.end_time > services.settings.audit_max_wait_seconds
    return aftermath(run.status, will_retry=will_retry(run), silent=silent) is Aftermath.CLOSE
