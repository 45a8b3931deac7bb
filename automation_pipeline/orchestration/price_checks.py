"""Which reconciliation a launch asks for: one check of one run, or the daily pass."""

from collections.abc import Sequence

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.orchestration.config_ids import check_ids
from automation_pipeline.pricing.domain.reconciliation import ReconciliationReport
from automation_pipeline.pricing.stages.reconcile_all import reconcile_all
from automation_pipeline.pricing.stages.reconcile_run import reconcile_run
from automation_pipeline.pricing.store.checks import next_manual_name


async def check_prices(run_id: int | None, check: str | None, our: Services) -> Sequence[ReconciliationReport]:
    check_ids(run_id=run_id)
    front, database, clock = our.storefront, our.database, our.clock
    if run_id is None:
        if check is not None:
            raise InvalidInputError("check names a check of one run: give its run_id too, or neither.")
        return await reconcile_all(front=front, database=database, clock=clock)
    name = _made_up(run_id, our) if check is None else check
    return [await reconcile_run(run_id, front=front, database=database, clock=clock, name=name)]


def _made_up(run_id: int, our: Services) -> str:
    with our.database.reading() as session:
        return next_manual_name(session, run_id)
