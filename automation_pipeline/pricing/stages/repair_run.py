"""Make a run that puts back the prices which the newest look at a run's prices has found changed."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain.reconciliation import Mismatch, repairable
from automation_pipeline.pricing.domain.rule_run import RuleRun
from automation_pipeline.pricing.store.checks import newest_telling_check
from automation_pipeline.pricing.store.holds import locked_run
from automation_pipeline.pricing.store.repairs import add_repair, still_to_repair
from automation_pipeline.pricing.store.run_views import get_run
from automation_pipeline.storage.database import Database, Session


def repair_run(run_id: int, *, database: Database, clock: Clock, actor: str) -> RuleRun:
    """A preview of its own, which is approved and queued as any other. ConflictError: there is nothing to put back."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        if run.promotion_ended_at is not None:
            raise ConflictError(f"The promotion of run {run_id} is over: its prices are not put back any more.")
        check, mismatches = _newest(session, run_id)
        wrong = still_to_repair(session, run, mismatches)
        if not wrong:
            raise ConflictError(
                f"Nothing of run {run_id} is to be repaired: its last check, {check}, has found no price "
                "that is wrong still and can be put back."
            )
        return get_run(session, add_repair(session, run, check, wrong, actor, clock.now()))


def _newest(session: Session, run_id: int) -> tuple[str, dict[int, Mismatch]]:
    newest = newest_telling_check(session, run_id)
    if newest is None or newest.report is None:
        raise ConflictError(f"No price of run {run_id} was looked up in the shop yet: reconcile it first.")
    return newest.name, {int(one.target_id): one for one in repairable(newest.report)}
