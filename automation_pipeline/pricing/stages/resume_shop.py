"""Write prices in a shop again: its runs go on where they were. An open circuit is closed with it."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.store.new_runs import file_run_requests
from automation_pipeline.pricing.store.shops import ShopStanding, close_circuit, set_pause
from automation_pipeline.pricing.store.unfinished import left_alone
from automation_pipeline.storage.database import Database


def resume_shop(shop: str, *, database: Database, clock: Clock) -> ShopStanding:
    with database.transaction() as session:
        close_circuit(session, shop)
        standing = set_pause(session, shop, by=None, reason=None)
        session.flush()
        file_run_requests(session, left_alone(session, shop=shop), clock.now())
        return standing
