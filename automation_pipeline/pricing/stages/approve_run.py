"""Approve a preview: somebody has looked at its prices and says yes to them."""

from functools import partial

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain.preview import approval_fault
from automation_pipeline.pricing.domain.rule_run import RuleRun
from automation_pipeline.pricing.store.holds import locked_run
from automation_pipeline.pricing.store.policies import policy_of
from automation_pipeline.pricing.store.queueing import check_waits
from automation_pipeline.pricing.store.rules import author_of
from automation_pipeline.pricing.store.run_views import get_run
from automation_pipeline.storage.database import Database


def approve_run(run_id: int, *, database: Database, clock: Clock, actor: str) -> RuleRun:
    """Twice by the same person is once. ConflictError: it is no planned preview, where the project wants a second
    person its creator and the author of its rule may not approve it, or somebody else has approved it."""
    with database.transaction() as session:
        row = locked_run(session, run_id)
        check_waits(row)
        policy = policy_of(session, row.project_id)
        auto_apply = policy is None or policy.auto_apply
        author = author_of(session, row.rule_id, row.rule_version)
        fault_of = partial(approval_fault, created_by=row.created_by, written_by=author)
        fault = fault_of(auto_apply=auto_apply, approved_by=actor)
        if fault is not None:
            raise ConflictError(fault)
        is_approved = fault_of(auto_apply=False, approved_by=row.approved_by) is None
        if is_approved and row.approved_by != actor:
            raise ConflictError(f"Rule run {run_id} was approved by {row.approved_by} already.")
        if row.approved_by != actor:
            row.approved_by = actor
            row.approved_at = row.updated_at = clock.now()
            session.flush()
        return get_run(session, run_id)
