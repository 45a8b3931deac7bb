"""Ask for prices that a run has applied to be taken back, all of them or those chosen. Its worker does it."""

from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain.rollback import targets_to_roll_back
from automation_pipeline.pricing.domain.rule_run import RuleRun, Wish
from automation_pipeline.pricing.domain.states import RunState
from automation_pipeline.pricing.store.holds import locked_run
from automation_pipeline.pricing.store.new_runs import file_run_request
from automation_pipeline.pricing.store.rollbacks import rollback_candidates, wish_targets_back
from automation_pipeline.pricing.store.run_views import get_run
from automation_pipeline.storage.database import Database


def roll_back_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    actor: str,
    target_ids: Sequence[int] | None = None,
    force: bool = False,
) -> RuleRun:
    """What was edited in the shop since stays as it is, unless forced. ConflictError: the run is at work, waits for
    something else, or has nothing applied. InvalidInputError names chosen targets that are not applied."""
    with database.transaction() as session:
        run, now = locked_run(session, run_id), clock.now()
        if run.wish is not None:
            raise ConflictError(f"Run {run_id} waits to be worked on already: {run.wish}.")
        chosen = None if target_ids is None else [str(id_) for id_ in target_ids]
        wished = targets_to_roll_back(RunState(run.status), rollback_candidates(session, run_id), chosen)
        if not wished:
            raise ConflictError(f"Run {run_id} has no applied price that could be taken back.")
        run.wish, run.wished_by, run.updated_at = Wish.ROLLBACK, actor, now
        run.rollbacks += 1
        run.rollback_force = force
        wish_targets_back(session, [int(id_) for id_ in wished])
        file_run_request(session, run_id, now)
        return get_run(session, run_id)
