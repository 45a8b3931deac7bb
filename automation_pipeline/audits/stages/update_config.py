"""Change what a configuration says, field by field."""

from collections.abc import Mapping

from automation_pipeline.audits.domain.config_changes import changed_config
from automation_pipeline.audits.store import configs
from automation_pipeline.audits.store.configs import StoredConfig
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def update_config(config_id: int, given: Mapping[str, object], *, database: Database, clock: Clock) -> StoredConfig:
    """What is not named stays, null clears. Other steps than before are new ones, with new ids. Audits under way keep
    what they began with."""
    with database.transaction() as session:
        stored, now = configs.hold_config(session, config_id), clock.now()
        config = changed_config(stored.config, given)
        if config == stored.config:
            return stored
        if config.steps == stored.config.steps:
            configs.write_config(session, config_id, config, now)
        else:
            configs.replace_config(session, config_id, config, now)
        return configs.get_config(session, config_id)
