"""How a run ends: by what its targets say."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.failures import CRITICAL, Failure, FailureKind
from automation_pipeline.pricing.domain.run_result import success_rate
from automation_pipeline.pricing.domain.states import RunState, TargetState, run_error, verdict
from automation_pipeline.pricing.store.beginnings import ACTOR, run_event
from automation_pipeline.pricing.store.checks import plan_checks
from automation_pipeline.pricing.store.chunks import doom_uncertain, queued_targets
from automation_pipeline.pricing.store.moves import give_up_queued, move_run
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.outbox import enqueue

TOLD_ERRORS = 10


def end_run(session: Session, run: RuleRunRow, now: datetime, *, reconciles: bool) -> bool:
    """False: something of it is open still. A run is ended once; its checks are planned with its end."""
    counts = _counts(session, run.id)
    ended = verdict(counts)
    if ended is None:
        return False
    kinds = _failed_kinds(session, run.id)
    errors = _first_errors(session, run.id) if ended is not RunState.APPLIED else []
    run.finished_at = max(now, run.started_at or now)
    run.resume_at = None
    error = run_error(ended, was_critical=bool(CRITICAL & kinds.keys()))
    run.error_type = error and error.value
    run.error_message = "; ".join(errors) or None
    told = _told(counts, kinds)
    run.explain_json = {**(run.explain_json or {}), "results": told, "cycles": run.retry_cycle + 1}
    move_run(session, run, ended, ACTOR, now, run.error_message)
    enqueue(session, [run_event(run, "rule.run.ended", now, {"status": ended.value, **told})])
    if reconciles and counts.get(TargetState.APPLIED):
        plan_checks(session, run.id, run.finished_at)
    return True


def give_up_rest(session: Session, run: RuleRunRow, failure: Failure, actor: str, now: datetime) -> int:
    """Every target that waits fails without a call; but what may have been written is looked at once more."""
    doom_uncertain(session, run.id, failure)
    left = queued_targets(session, run.id)
    values = {
        "is_writing": False,
        "error_message": failure.message,
        "error_type": failure.kind,
        "error_retryable": failure.kind is FailureKind.CANCELLED,
        "next_attempt_at": None,
        "last_attempt": now,
    }
    give_up_queued(session, left, values, actor, now)
    return len(left)


def _counts(session: Session, run_id: int) -> Mapping[TargetState, int]:
    query = select(RuleTargetRow.status, func.count()).where(RuleTargetRow.rule_run_id == run_id)
    return {
        TargetState(status): count for status, count in session.execute(query.group_by(RuleTargetRow.status)).tuples()
    }


def _failed_kinds(session: Session, run_id: int) -> Mapping[FailureKind, int]:
    query = (
        select(RuleTargetRow.error_type, func.count())
        .where(RuleTargetRow.rule_run_id == run_id, RuleTargetRow.status == TargetState.FAILED)
        .group_by(RuleTargetRow.error_type)
    )
    return {FailureKind(kind): count for kind, count in session.execute(query).tuples() if kind is not None}


def _first_errors(session: Session, run_id: int) -> list[str]:
    query = (
        select(RuleTargetRow.error_message)
        .where(RuleTargetRow.rule_run_id == run_id, RuleTargetRow.status == TargetState.FAILED)
        .order_by(case((RuleTargetRow.error_type == FailureKind.CANCELLED, 1), else_=0), RuleTargetRow.id)
        .limit(TOLD_ERRORS)
    )
    return [message.rstrip(".") for message in session.scalars(query) if message]


def _told(counts: Mapping[TargetState, int], kinds: Mapping[FailureKind, int]) -> dict[str, object]:
    applied, failed = counts.get(TargetState.APPLIED, 0), counts.get(TargetState.FAILED, 0)
    rolled_back, cancelled = counts.get(TargetState.ROLLED_BACK, 0), kinds.get(FailureKind.CANCELLED, 0)
    rate = success_rate(applied + rolled_back, failed - cancelled)
    return {
        "successCount": applied,
        "errorCount": failed,
        "cancelledCount": cancelled,
        "totalTargets": sum(counts.values()),
        "successRate": None if rate is None else round(float(rate), 4),
    }
