"""Take the word of an agent that it is at work: its first one begins the attempt, each keeps it from being given up."""

from collections.abc import Mapping
from datetime import timedelta

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.json_model import parse
from automation_pipeline.org_jobs.domain.agent_job import LEASE_SECONDS, Orders, ProgressReport, agent_name
from automation_pipeline.org_jobs.domain.agent_report import no_longer_yours
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.agents import limit_seconds, note_reported, reporter_of
from automation_pipeline.org_jobs.store.claims import Hold
from automation_pipeline.org_jobs.store.holds import LostLeaseError, begin_run, extend
from automation_pipeline.org_jobs.store.reports import orders_of, write_progress
from automation_pipeline.storage.database import Database


def report_progress(
    run_id: int, given: Mapping[str, object], *, within: Within, database: Database, clock: Clock
) -> Orders:
    """LostLeaseError tells the agent to stop: the attempt is not its own any more."""
    report = parse(ProgressReport, given, "Invalid progress")
    hold = Hold(run_id, report.attempt_no, report.lease_token)
    with database.transaction() as session:
        reporter = reporter_of(session, hold, within)
        note_reported(session, reporter)
    now = clock.now()
    deadline_at = now + timedelta(seconds=limit_seconds(reporter.type_name))
    try:
        with database.transaction() as session:
            begin_run(session, hold, deadline_at, now, within=within, actor=agent_name(reporter.host.name))
            run = extend(session, hold, LEASE_SECONDS, within)
            write_progress(run, report, now)
            return orders_of(run)
    except LostLeaseError:
        raise LostLeaseError(no_longer_yours(run_id, report.attempt_no)) from None
