"""Leave a run alone for a while whose worker failed for good: another one at once would fail for the same reason."""

from automation_pipeline.pricing.store.put_offs import put_off
from automation_pipeline.storage.database import Database

REST_SECONDS = 300.0


def put_off_run(run_id: int, reason: str, *, database: Database) -> bool:
    """Whether it was. The reason is shown with the run; the sweep asks for another worker when the rest is over."""
    with database.transaction() as session:
        return put_off(session, run_id, REST_SECONDS, reason)
