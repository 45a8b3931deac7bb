"""Put the steps of a configuration into another order."""

from collections.abc import Sequence

from automation_pipeline.audits.store import configs
from automation_pipeline.audits.store.configs import StoredConfig
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def reorder_steps(config_id: int, step_ids: Sequence[int], *, database: Database, clock: Clock) -> StoredConfig:
    """InvalidInputError unless every step is named once. Audits under way keep the order that they began with."""
    with database.transaction() as session:
        configs.reorder_steps(session, config_id, step_ids, clock.now())
        return configs.get_config(session, config_id)
