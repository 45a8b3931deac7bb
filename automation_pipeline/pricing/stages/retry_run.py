"""Ask for failed targets of a run to be tried again, all that are worth it or those chosen. Its worker does it."""

from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain.dead_letters import targets_to_retry
from automation_pipeline.pricing.domain.rule_run import RuleRun, Wish
from automation_pipeline.pricing.domain.states import RunState
from automation_pipeline.pricing.store.holds import locked_run
from automation_pipeline.pricing.store.new_runs import file_run_request
from automation_pipeline.pricing.store.rule_activity import active_run_of
from automation_pipeline.pricing.store.run_views import get_run
from automation_pipeline.pricing.store.wishes import failed_letters, wish_for
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.database import Database, Session


def retry_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    actor: str,
    target_ids: Sequence[int] | None = None,
    force: bool = False,
) -> RuleRun:
    """ConflictError: it is at work, waits for something else, is rolled back, or nothing of it is worth another try.
    InvalidInputError names chosen targets that are not failed, or are hopeless unless forced."""
    with database.transaction() as session:
        run, now = locked_run(session, run_id), clock.now()
        _refuse_busy(session, run)
        chosen = None if target_ids is None else [str(id_) for id_ in target_ids]
        wished = targets_to_retry(RunState(run.status), failed_letters(session, run_id), chosen, force=force)
        run.wish, run.wished_by, run.cancel_requested_at = Wish.RETRY, actor, None
        run.updated_at = now
        wish_for(session, run_id, [int(id_) for id_ in wished])
        file_run_request(session, run_id, now)
        return get_run(session, run_id)


def _refuse_busy(session: Session, run: RuleRunRow) -> None:
    if run.promotion_ended_at is not None:
        raise ConflictError(f"The promotion of run {run.id} is over: what is applied now would stay for good.")
    if run.wish is not None:
        raise ConflictError(f"Run {run.id} waits to be worked on already: {run.wish}.")
    other = active_run_of(session, run.rule_id)
    if other is not None and run.status in {RunState.PARTIAL, RunState.FAILED}:
        raise ConflictError(f"Run {other} of the same rule is at work: wait for its end, or cancel it.")
