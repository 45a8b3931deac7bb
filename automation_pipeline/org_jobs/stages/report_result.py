"""Take an agent's word on how its attempt has ended: once, and only while the attempt is its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.meter import Meter
from automation_pipeline.org_jobs.domain.agent_job import ResultReport, agent_name, read_result
from automation_pipeline.org_jobs.domain.agent_report import Verdict, attempt_end, refusal_words, verdict_on
from automation_pipeline.org_jobs.domain.org_job import OrgJobRun
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.stages.count_ends import count_ends
from automation_pipeline.org_jobs.store.agents import limit_seconds, note_reported, reporter_of
from automation_pipeline.org_jobs.store.claims import Hold
from automation_pipeline.org_jobs.store.endings import EndedRun, end_attempts
from automation_pipeline.org_jobs.store.holds import LostLeaseError, begin_run, held_run, locked_run
from automation_pipeline.org_jobs.store.job_views import get_run
from automation_pipeline.org_jobs.store.reports import keep_late_report, past_attempt
from automation_pipeline.storage.database import Database, Session


@dataclass(frozen=True, kw_only=True)
class _Word:
    """What was said, by whom and when."""

    run_id: int
    report: ResultReport
    within: Within
    actor: str
    now: datetime
    deadline_at: datetime


@dataclass(frozen=True)
class _Outcome:
    ended: Sequence[EndedRun] = ()
    refusal: str | None = None


def report_result(
    run_id: int, given: Mapping[str, object], *, within: Within, database: Database, clock: Clock, meter: Meter
) -> OrgJobRun:
    """The same again changes nothing. ConflictError: it was said otherwise before, or the attempt is not the agent's
    any more; what comes too late is kept beside the attempt all the same."""
    report = read_result(given)
    with database.transaction() as session:
        reporter = reporter_of(session, Hold(run_id, report.attempt_no, report.lease_token), within)
        note_reported(session, reporter)
    now = clock.now()
    word = _Word(
        run_id=run_id,
        report=report,
        within=within,
        actor=agent_name(reporter.host.name),
        now=now,
        deadline_at=now + timedelta(seconds=limit_seconds(reporter.type_name)),
    )
    with database.transaction() as session:
        outcome = _take(session, word)
        run = get_run(session, run_id, within)
    count_ends(outcome.ended, meter=meter, now=now)
    if outcome.refusal is not None:  # what came too late is kept: only now is it refused
        raise ConflictError(outcome.refusal)
    return run


def _take(session: Session, word: _Word) -> _Outcome:
    hold = Hold(word.run_id, word.report.attempt_no, word.report.lease_token)
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
    if verdict is Verdict.SAME:
        return None
    if verdict is Verdict.LATE:
        keep_late_report(session, run, report, actor=word.actor, now=word.now)
    return refusal_words(verdict, run.id, report.attempt_no, past)
