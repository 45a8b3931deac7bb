"""How a planned preview is queued: what may stand in its way on its row, and the moves of the run and its targets."""

from datetime import datetime

from sqlalchemy import Text, cast, insert, literal, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain.states import FIRST_TARGET_STATE, RULE_TARGET, RunState, TargetState
from automation_pipeline.pricing.store.beginnings import run_event
from automation_pipeline.pricing.store.holds import no_such_run
from automation_pipeline.pricing.store.moves import move_run
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.transitions import TransitionRow
from automation_pipeline.storage.types import UtcDateTime


def rule_of(session: Session, run_id: int) -> int:
    """The rule of the run, which never changes: it is held before the run is."""
    rule_id = session.scalar(select(RuleRunRow.rule_id).where(RuleRunRow.id == run_id))
    if rule_id is None:
        raise no_such_run(run_id)
    return rule_id


def check_waits(run: RuleRunRow) -> datetime:
    """When it was planned. ConflictError, unless it is a planned preview that nobody has cancelled."""
    if run.status != RunState.PREVIEW:
        raise ConflictError(f"Rule run {run.id} is {run.status}: only a preview can be approved or queued.")
    if run.cancel_requested_at is not None:
        raise ConflictError(f"Rule run {run.id} was cancelled: preview the rule again.")
    if run.previewed_at is None:
        raise ConflictError(f"Rule run {run.id} is not planned yet: wait until its preview is there.")
    return run.previewed_at


def move_to_queue(session: Session, run: RuleRunRow, actor: str, now: datetime) -> None:
    """The run and all its targets. ConflictError: another run of the rule is on its way."""
    run.queued_at, run.queued_by, run.wish, run.wished_by, run.error_message = now, actor, None, None, None
    move_run(session, run, RunState.QUEUED, actor, now)
    _move_targets(session, run.id, actor, now)
    enqueue(session, [run_event(run, "rule.apply.queued", now, {"targets": run.total_targets, "queuedBy": actor})])


def _move_targets(session: Session, run_id: int, actor: str, now: datetime) -> None:
    """However many they are, in two statements."""
    frm = FIRST_TARGET_STATE
    to = RULE_TARGET.move(frm, TargetState.QUEUED)
    its = RuleTargetRow.rule_run_id == run_id, RuleTargetRow.status == frm
    said = (literal(RULE_TARGET.name), cast(RuleTargetRow.id, Text), literal(frm.value), literal(to.value))
    moved = select(*said, literal(actor), literal(now, UtcDateTime())).where(*its).order_by(RuleTargetRow.id)
    columns = ["machine", "entity_id", "from_state", "to_state", "actor", "at"]
    session.execute(insert(TransitionRow).from_select(columns, moved))
    session.execute(update(RuleTargetRow).where(*its).values(status=to).execution_options(synchronize_session=False))
