"""How a run begins to be applied, or to be tried again: the moves that only its worker makes."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.events import Event
from automation_pipeline.pricing.domain.keys import apply_key, run_event_key
from automation_pipeline.pricing.domain.pricing_rule import TENANT
from automation_pipeline.pricing.domain.states import RunState, TargetState
from automation_pipeline.pricing.domain.work import Terms, WorkTarget
from automation_pipeline.pricing.store.moves import log_target_moves, move_run
from automation_pipeline.pricing.store.policies import policy_of
from automation_pipeline.pricing.store.rules import rule_at
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.outbox import enqueue

ACTOR = "worker"


def begin_applying(session: Session, run: RuleRunRow, now: datetime) -> None:
    """A queued run's first step, or the first of its next cycle. The first beginning is kept."""
    run.started_at = run.started_at or _not_before(now, run.queued_at)
    run.finished_at = None
    run.error_type = run.error_message = None
    run.resume_at = None
    move_run(session, run, RunState.APPLYING, ACTOR, now)
    enqueue(session, [run_event(run, "rule.run.started", now, {"cycle": run.retry_cycle})])


def begin_retry(session: Session, run: RuleRunRow, now: datetime) -> int:
    """The targets wished for are queued again, from the beginning: a new cycle, with keys of its own. How many."""
    chosen = session.scalars(
        update(RuleTargetRow)
        .where(
            RuleTargetRow.rule_run_id == run.id,
            RuleTargetRow.is_wished,
            RuleTargetRow.status == TargetState.FAILED,
        )
        .values(
            status=TargetState.QUEUED,
            is_wished=False,
            attempts=0,
            rate_limit_waits=0,
            rate_limit_seconds=0.0,
            began_at=None,
            next_attempt_at=None,
            error_type=None,
            error_message=None,
            error_retryable=None,
            acknowledged_at=None,
            acknowledged_by=None,
        )
        .returning(RuleTargetRow.id)
        .execution_options(synchronize_session=False)
    ).all()
    wished_by = run.wished_by or ACTOR
    log_target_moves(
        session, TargetState.FAILED, {id_: {"status": TargetState.QUEUED} for id_ in chosen}, wished_by, now
    )
    run.retry_cycle += 1
    run.wish = run.wished_by = None
    begin_applying(session, run, now)
    return len(chosen)


def tell_attempts(session: Session, run: RuleRunRow, targets: Sequence[WorkTarget], now: datetime) -> None:
    """Before the calls: each of them under a key of its own."""
    enqueue(session, [_attempt(run, target, now) for target in targets])


def terms_of(session: Session, run_id: int) -> Terms:
    """What the run is worked under: the rule as it was when the run was made, the guardrails as they are now."""
    run = session.scalars(select(RuleRunRow).where(RuleRunRow.id == run_id)).one()
    rule = rule_at(session, run.rule_id, run.rule_version)
    return Terms(rule.on_drift, policy_of(session, run.project_id))


def run_event(run: RuleRunRow, name: str, now: datetime, payload: dict[str, object]) -> Event:
    told = {"runId": str(run.id), "ruleId": str(run.rule_id), "projectId": run.project_id, **payload}
    key = run_event_key(str(run.id), name, run.retry_cycle)
    return Event(TENANT, key, name, "pricing", aggregate(run.id), now, told)


def aggregate(run_id: int) -> str:
    return f"rule-run-{run_id}"


def wisher_of(session: Session, run_id: int) -> tuple[str, bool]:
    """Who asked for the run, and whether its rule's rest is cut short for it."""
    run = session.scalars(select(RuleRunRow).where(RuleRunRow.id == run_id)).one()
    return run.wished_by or run.created_by, bool((run.run_metadata or {}).get("force"))


def _attempt(run: RuleRunRow, target: WorkTarget, now: datetime) -> Event:
    progress = target.progress
    key = apply_key(str(run.id), str(target.id), run.retry_cycle, progress.attempts)
    payload = {"targetId": str(target.id), "runId": str(run.id), "attempt": progress.attempts, "cycle": run.retry_cycle}
    return Event(TENANT, key, "automation.target.apply", "pricing", aggregate(run.id), now, payload)


def _not_before(now: datetime, queued_at: datetime | None) -> datetime:
    """The clock that queued it may be ahead of the database's."""
    return now if queued_at is None else max(now, queued_at)
