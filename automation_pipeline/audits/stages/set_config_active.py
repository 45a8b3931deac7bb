"""Take a configuration into use, or out of it. Audits that were made by it stay."""

from automation_pipeline.audits.store import configs
from automation_pipeline.audits.store.configs import StoredConfig
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def set_config_active(config_id: int, *, active: bool, database: Database, clock: Clock) -> StoredConfig:
    with database.transaction() as session:
        configs.set_active(session, config_id, active, clock.now())
        return configs.get_config(session, config_id)
