"""How a rollback ends: by what is still applied."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.keys import run_event_key
from automation_pipeline.pricing.domain.promotion import END_AGAIN_AFTER, LASTING
from automation_pipeline.pricing.domain.rollback import after_rollback
from automation_pipeline.pricing.domain.rule_run import Wish
from automation_pipeline.pricing.domain.states import RunState, TargetState
from automation_pipeline.pricing.store.beginnings import ACTOR, run_event
from automation_pipeline.pricing.store.moves import move_run
from automation_pipeline.pricing.store.rollbacks import states_of_targets
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.outbox import enqueue

_EVENT = "rule.run.rolled_back"


def end_rollback(session: Session, run: RuleRunRow, now: datetime) -> None:
    """Of a run that is held, when nothing is wished any more. A wish that came meanwhile stays, unless there is
    nothing left to do for it. The end of a promotion that failed for a reason that may pass is to be tried again."""
    counts = states_of_targets(session, run.id)
    before, actor = RunState(run.status), run.wished_by or ACTOR
    after = after_rollback(before, counts)
    run.rollback_state, run.rollback_force, run.resume_at = after.rollback_state, False, None
    if run.wish == Wish.ROLLBACK and run.promotion_ended_at is not None and _may_pass(session, run.id):
        run.promotion_ended_at, run.resume_at = None, now + END_AGAIN_AFTER
    if run.wish == Wish.ROLLBACK or after.status is RunState.ROLLED_BACK:
        run.wish = run.wished_by = None
    run.updated_at = now
    if after.status is not before:
        move_run(session, run, after.status, actor, now)
    told: dict[str, object] = {
        "status": run.status,
        "rollbackState": run.rollback_state,
        "rolledBack": counts.get(TargetState.ROLLED_BACK, 0),
        "stillApplied": counts.get(TargetState.APPLIED, 0),
    }
    # A run may be rolled back in several parts, and each is under a hold of its own.
    key = run_event_key(str(run.id), _EVENT, run.lease_token)
    enqueue(session, [replace(run_event(run, _EVENT, now, told), key=key)])


def _may_pass(session: Session, run_id: int) -> bool:
    """What keeps some of its prices from being taken back."""
    query = select(RuleTargetRow.id).where(
        RuleTargetRow.rule_run_id == run_id,
        RuleTargetRow.status == TargetState.APPLIED,
        RuleTargetRow.error_type.not_in(sorted(LASTING)),
    )
    return session.scalar(query.limit(1)) is not None
