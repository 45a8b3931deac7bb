"""What is to be typed next about a run, as far as its state tells."""

from automation_pipeline.pricing.domain.policy import Policy
from automation_pipeline.pricing.domain.preview import LIFETIME, approval_fault
from automation_pipeline.pricing.domain.rule_run import RuleRun
from automation_pipeline.pricing.domain.states import RollbackState, RunState

RUNS = "automation pricing runs"


def next_step(run: RuleRun, policy: Policy | None) -> str | None:
    """A sentence; None where nothing is left to be done. A project without a policy needs no approval."""
    if run.wish is not None or run.status in {RunState.QUEUED, RunState.APPLYING}:
        return f"Follow it: `{RUNS} watch {run.id}`."
    if run.status is RunState.PREVIEW:
        return _of_preview(run, policy)
    steps: list[str] = []
    if run.targets.failed:
        steps += [f"See what failed: `{RUNS} targets {run.id} --status FAILED`; try again: `{RUNS} retry {run.id}`."]
    if run.targets.applied:
        rest = "the rest" if run.rollback_state is RollbackState.PARTIAL else "it"
        steps += [f"Take {rest} back: `{RUNS} rollback {run.id}`."]
    return " ".join(steps) or None


def _of_preview(run: RuleRun, policy: Policy | None) -> str | None:
    if run.previewed_at is None or run.cancel_requested_at is not None:
        return None
    if run.total_targets == 0:
        return "There is nothing to apply."
    until = f"until {run.previewed_at + LIFETIME:%H:%M} UTC"
    apply = f"`{RUNS} apply {run.id}`"
    # Who wrote the rule is not told here: it is asked where somebody approves, and again where the run is queued.
    fault = policy and approval_fault(
        auto_apply=policy.auto_apply, created_by=run.created_by, written_by=None, approved_by=run.approved_by
    )
    if fault:
        return f"A second person must approve it, with `{RUNS} approve {run.id}`. Then apply it, {until}: {apply}."
    return f"Apply it, {until}: {apply}."
