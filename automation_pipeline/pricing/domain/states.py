"""The states of rule runs and their targets, with every legal move; all others are refused."""

from collections.abc import Iterable
from enum import StrEnum

from automation_pipeline.core.state_machine import StateMachine


class RunState(StrEnum):
    PREVIEW = "PREVIEW"
    QUEUED = "QUEUED"
    APPLYING = "APPLYING"
    APPLIED = "APPLIED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED_BACK"


class TargetState(StrEnum):
    PREVIEW = "PREVIEW"
    QUEUED = "QUEUED"
    APPLYING = "APPLYING"
    APPLIED = "APPLIED"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED_BACK"


class RollbackState(StrEnum):
    NONE = "NONE"
    PARTIAL = "PARTIAL"
    DONE = "DONE"


class RunError(StrEnum):
    """Why a run is FAILED."""

    CRITICAL = "CRITICAL"
    ALL_TARGETS_FAILED = "ALL_TARGETS_FAILED"


FIRST_RUN_STATE = RunState.PREVIEW
FIRST_TARGET_STATE = TargetState.PREVIEW

RULE_RUN = StateMachine(
    name="rule run",
    moves={
        RunState.PREVIEW: frozenset({RunState.QUEUED}),
        RunState.QUEUED: frozenset({RunState.APPLYING}),
        RunState.APPLYING: frozenset({RunState.APPLIED, RunState.PARTIAL, RunState.FAILED}),
        RunState.APPLIED: frozenset({RunState.ROLLED_BACK}),
        # Only the worker makes these two moves to APPLYING: asking for a retry leaves a note on the run.
        RunState.PARTIAL: frozenset({RunState.APPLYING, RunState.ROLLED_BACK}),
        RunState.FAILED: frozenset({RunState.APPLYING}),
        RunState.ROLLED_BACK: frozenset(),
    },
)

# A queued target that is given up without a call (cancelled, no variant id, shop closed) goes through APPLYING too.
RULE_TARGET = StateMachine(
    name="rule target",
    moves={
        TargetState.PREVIEW: frozenset({TargetState.QUEUED}),
        TargetState.QUEUED: frozenset({TargetState.APPLYING}),
        TargetState.APPLYING: frozenset({TargetState.APPLIED, TargetState.QUEUED, TargetState.FAILED}),
        TargetState.FAILED: frozenset({TargetState.QUEUED}),
        TargetState.APPLIED: frozenset({TargetState.ROLLED_BACK}),
        TargetState.ROLLED_BACK: frozenset(),
    },
)

ACTIVE_RUN_STATES = frozenset({RunState.QUEUED, RunState.APPLYING})
ENDED_RUN_STATES = frozenset({RunState.APPLIED, RunState.PARTIAL, RunState.FAILED, RunState.ROLLED_BACK})
OPEN_TARGET_STATES = frozenset({TargetState.QUEUED, TargetState.APPLYING})


def verdict(targets: Iterable[TargetState]) -> RunState | None:
    """How a run that is being applied ends; None while a target is open. Without targets there is nothing to fail."""
    states = set(targets)
    if states & OPEN_TARGET_STATES:
        return None
    if TargetState.FAILED not in states:
        return RunState.APPLIED
    return RunState.PARTIAL if TargetState.APPLIED in states else RunState.FAILED


def run_error(state: RunState, *, was_critical: bool) -> RunError | None:
    if state is not RunState.FAILED:
        return None
    return RunError.CRITICAL if was_critical else RunError.ALL_TARGETS_FAILED
