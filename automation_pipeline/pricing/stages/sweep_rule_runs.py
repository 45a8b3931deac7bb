"""Find the runs that want a worker and have none: theirs was lost, or what they waited for is due. Ask for another."""

from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.store.new_runs import file_run_requests
from automation_pipeline.pricing.store.unfinished import free_variants, left_alone
from automation_pipeline.storage.database import Database


def sweep_rule_runs(*, database: Database, clock: Clock) -> Sequence[int]:
    """The runs. Beside another copy of itself a run may be asked for twice: its second worker finds the first."""
    with database.transaction() as session:
        free_variants(session)
        runs = left_alone(session)
        file_run_requests(session, runs, clock.now())
        return runs
