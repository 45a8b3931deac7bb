"""Use cases of agents: heartbeat, claim, progress and result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.metrics import Meter
from automation_pipeline.org_jobs.models.agents import (
    LEASE_SECONDS,
    AgentJob,
    Orders,
    ProgressReport,
    ResultReport,
    agent_name,
    read_result,
)
from automation_pipeline.org_jobs.models.jobs import OrgJobRun
from automation_pipeline.org_jobs.models.organisations import Host, OrgScope
from automation_pipeline.org_jobs.queries.agents import (
    as_agent_jobs,
    held_jobs,
    host_of_agent,
    keep_late_report,
    orders_of,
    past_attempt,
    record_agent_report,
    record_heartbeat,
    reporter_of,
    write_progress,
)
from automation_pipeline.org_jobs.queries.attempts import (
    EndedRun,
    LostLeaseError,
    begin_run,
    end_attempts,
    extend_lease,
    held_run,
    locked_run,
)
from automation_pipeline.org_jobs.queries.jobs import get_run
from automation_pipeline.org_jobs.queries.organisations import get_host
from automation_pipeline.org_jobs.queries.queue import (
    AttemptHold,
    claim_for_host,
    of_host,
    postpone_closed,
)
from automation_pipeline.org_jobs.rules.attempts import (
    ReportVerdict,
    attempt_end,
    lost_lease_message,
    refusal_message,
    verdict_on,
)
from automation_pipeline.org_jobs.runs import count_ended_runs
from automation_pipeline.storage.database import Database, Session


def touch_heartbeat(
    host_id: int, *, within: OrgScope, database: Database, agent_version: str | None = None
) -> Host:
    """A transaction of its own: whoever waits for jobs keeps nobody from the host."""
    with database.transaction() as session:
        record_heartbeat(session, host_of_agent(session, host_id, within), agent_version)
        return get_host(session, host_id, within)


def claim_jobs(
    host_id: int, *, within: OrgScope, database: Database, clock: Clock, most: int = 1
) -> list[AgentJob]:
    """Most urgent first; nothing, where there is nothing to do or no place for it. What is not
    begun before its lease is over is free again."""
    with database.transaction() as session:
        host = host_of_agent(session, host_id, within)
        record_heartbeat(session, host)
        postpone_closed(session, of_host(host.id, host.org_id), clock.now())
    with database.transaction() as session:
        claimed = claim_for_host(
            session, host, agent_name(host.name), most, LEASE_SECONDS, clock.now()
        )
    return as_agent_jobs(claimed)


def list_held_jobs(host_id: int, *, within: OrgScope, database: Database) -> list[AgentJob]:
    """Oldest first, with the lease tokens that it had."""
    with database.transaction() as session:
        host = host_of_agent(session, host_id, within)
        record_heartbeat(session, host)
        return held_jobs(session, host)


def report_progress(
    run_id: int, given: Mapping[str, object], *, within: OrgScope, database: Database, clock: Clock
) -> Orders:
    """LostLeaseError tells the agent to stop: the attempt is not its own any more."""
    report = parse(ProgressReport, given, "Invalid progress")
    hold = AttemptHold(run_id, report.attempt_no, report.lease_token)
    with database.transaction() as session:
        reporter = reporter_of(session, hold, within)
        record_agent_report(session, reporter)
    now = clock.now()
    deadline_at = now + timedelta(seconds=reporter.limit_seconds)
    try:
        with database.transaction() as session:
            begin_run(
                session, hold, deadline_at, now, within=within, actor=agent_name(reporter.host.name)
            )
            run = extend_lease(session, hold, LEASE_SECONDS, within)
            write_progress(run, report, now)
            return orders_of(run)
    except LostLeaseError:
        raise LostLeaseError(lost_lease_message(run_id, report.attempt_no)) from None


@dataclass(frozen=True, kw_only=True)
class _Word:
    """What was said, by whom and when."""

    run_id: int
    report: ResultReport
    within: OrgScope
    actor: str
    now: datetime
    deadline_at: datetime


@dataclass(frozen=True)
class _Outcome:
    ended: Sequence[EndedRun] = ()
    refusal: str | None = None


def report_result(
    run_id: int,
    given: Mapping[str, object],
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    meter: Meter,
) -> OrgJobRun:
    """The same again changes nothing. ConflictError: it was said otherwise before, or the attempt
    is not the agent's any more; what comes too late is kept beside the attempt all the same."""
    report = read_result(given)
    with database.transaction() as session:
        reporter = reporter_of(
            session, AttemptHold(run_id, report.attempt_no, report.lease_token), within
        )
        record_agent_report(session, reporter)
    now = clock.now()
    word = _Word(
        run_id=run_id,
        report=report,
        within=within,
        actor=agent_name(reporter.host.name),
        now=now,
        deadline_at=now + timedelta(seconds=reporter.limit_seconds),
    )
    with database.transaction() as session:
        outcome = _take(session, word)
        run = get_run(session, run_id, within)
    count_ended_runs(outcome.ended, meter=meter, now=now)
    if outcome.refusal is not None:  # what came too late is kept: only now is it refused
        raise ConflictError(outcome.refusal)
    return run


def _take(session: Session, word: _Word) -> _Outcome:
    hold = AttemptHold(word.run_id, word.report.attempt_no, word.report.lease_token)
    try:
        run = held_run(session, hold, word.within, to_end=True)
    except LostLeaseError:
        return _Outcome(refusal=_refusal(session, word))
    # Of what was done at once: no progress was reported before.
    begin_run(session, hold, word.deadline_at, word.now, within=word.within, actor=word.actor)
    end = attempt_end(word.report, is_cancel_wanted=run.cancel_requested_at is not None)
    return _Outcome(ended=end_attempts(session, {run.id: end}, word.actor, word.now))


def _refusal(session: Session, word: _Word) -> str | None:
    """None: it says what was said before."""
    run, report = locked_run(session, word.run_id, word.within), word.report
    past = past_attempt(session, run, report.attempt_no)
    verdict = verdict_on(report, run.attempt_no, run.lease_token, past)
    if verdict is ReportVerdict.SAME:
        return None
    if verdict is ReportVerdict.LATE:
        keep_late_report(session, run, report, actor=word.actor, now=word.now)
    return refusal_message(verdict, run.id, report.attempt_no, past)
