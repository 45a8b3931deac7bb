"""Every change of state of runs and targets: legal or refused, from the state that was expected, and logged."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from sqlalchemy import Table, bindparam, insert, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.states import RULE_RUN, RULE_TARGET, RunState, TargetState
from automation_pipeline.pricing.store.holds import LostHoldError
from automation_pipeline.pricing.store.rule_activity import RuleBusyError
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.transitions import Transition, TransitionRow, record_transitions

_TARGETS = cast("Table", RuleTargetRow.__table__)


def move_run(
    session: Session, row: RuleRunRow, to: RunState, actor: str, now: datetime, reason: str | None = None
) -> None:
    """Of a run that is locked. RuleBusyError: another run of its rule is queued or being applied."""
    frm, rule_id = RunState(row.status), row.rule_id
    row.status = RULE_RUN.move(frm, to)
    row.updated_at = now
    record_transitions(session, [Transition(RULE_RUN.name, str(row.id), frm, to, actor, now, reason)])
    try:
        session.flush()
    except IntegrityError:
        raise RuleBusyError(f"Another run of rule {rule_id} is queued or being applied.") from None


def move_targets(
    session: Session,
    frm: TargetState,
    changes: Mapping[int, Mapping[str, object]],
    actor: str,
    now: datetime,
) -> None:
    """By target the columns that change, `status` among them; all name the same columns. LostHoldError, and nothing is
    kept, if one of them is not in the state expected."""
    if not changes:
        return
    for change in changes.values():
        RULE_TARGET.move(frm, TargetState(str(change["status"])))
    columns = next(iter(changes.values()))
    statement = (
        update(_TARGETS)
        .where(_TARGETS.c.id == bindparam("its_id"), _TARGETS.c.status == bindparam("its_status"))
        .values({name: bindparam(name) for name in columns})
    )
    rows = [{"its_id": id_, "its_status": frm, **change} for id_, change in changes.items()]
    if session.connection().execute(statement, rows).rowcount != len(rows):
        raise LostHoldError(f"Targets that were {frm} are not any more: somebody else moved them.")
    log_target_moves(session, frm, changes, actor, now)


def log_target_moves(
    session: Session, frm: TargetState, changes: Mapping[int, Mapping[str, object]], actor: str, now: datetime
) -> None:
    said = {"machine": RULE_TARGET.name, "from_state": frm, "actor": actor, "at": now}
    moves = [
        {**said, "entity_id": str(id_), "to_state": change["status"], "reason": _reason(change)}
        for id_, change in changes.items()
    ]
    if moves:
        session.execute(insert(TransitionRow), moves)


def give_up_queued(
    session: Session, targets: Sequence[int], failure: Mapping[str, object], actor: str, now: datetime
) -> None:
    """Targets that are given up without a call go through APPLYING all the same."""
    move_targets(session, TargetState.QUEUED, {id_: {"status": TargetState.APPLYING} for id_ in targets}, actor, now)
    failed = {"status": TargetState.FAILED, **failure}
    move_targets(session, TargetState.APPLYING, dict.fromkeys(targets, failed), actor, now)


def _reason(change: Mapping[str, object]) -> str | None:
    said = change.get("error_message")
    return None if said is None else str(said)
