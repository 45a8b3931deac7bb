"""Which applied prices may be taken back, in which order, and what the run is afterwards."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.pricing.domain.states import RULE_RUN, RollbackState, RunState, TargetState
from automation_pipeline.pricing.domain.work import WorkTarget


@dataclass(frozen=True)
class AppliedTarget:
    id: str
    status: TargetState
    applied_at: datetime | None


@dataclass(frozen=True)
class AfterRollback:
    status: RunState
    rollback_state: RollbackState


def targets_to_roll_back(
    run: RunState, targets: Sequence[AppliedTarget], chosen: Iterable[str] | None = None
) -> list[str]:
    """The applied ones, or those chosen of them, the last applied first. Failed ones are left as they are."""
    if not RULE_RUN.can_move(run, RunState.ROLLED_BACK):
        raise IllegalMoveError(RULE_RUN.name, run, RunState.ROLLED_BACK, f"A run that is {run} cannot be rolled back.")
    applied = {target.id: target for target in targets if target.status is TargetState.APPLIED}
    wanted = list(applied) if chosen is None else list(dict.fromkeys(chosen))
    strangers = [target_id for target_id in wanted if target_id not in applied]
    if strangers:
        faults = tuple(("targetIds", f"{target_id} is not an applied target of the run") for target_id in strangers)
        raise InvalidInputError("Only applied targets can be rolled back.", faults)
    return sorted(wanted, key=lambda target_id: _order(applied[target_id]), reverse=True)


def after_rollback(run: RunState, targets: Iterable[TargetState]) -> AfterRollback:
    """A run is rolled back only when nothing of it is applied any more; until then it may be tried again."""
    states = set(targets)
    if TargetState.APPLIED in states:
        taken_back = TargetState.ROLLED_BACK in states
        return AfterRollback(run, RollbackState.PARTIAL if taken_back else RollbackState.NONE)
    return AfterRollback(RULE_RUN.move(run, RunState.ROLLED_BACK), RollbackState.DONE)


def turned_round(target: WorkTarget) -> WorkTarget:
    """To take a price back is to apply the former one on top of the present one."""
    return replace(target, before=target.after, after=target.before)


def _order(target: AppliedTarget) -> tuple[float, str]:
    return (target.applied_at.timestamp() if target.applied_at else 0.0, target.id)
