"""Store a new configuration. One of the same name is another one; `import_config` knows them by their names."""

from collections.abc import Mapping

from automation_pipeline.audits.domain.config_document import parse_config
from automation_pipeline.audits.store import configs
from automation_pipeline.audits.store.configs import StoredConfig
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def create_config(given: Mapping[str, object], *, database: Database, clock: Clock) -> StoredConfig:
    """InvalidInputError names every field at fault."""
    config = parse_config(given)
    with database.transaction() as session:
        return configs.get_config(session, configs.add_config(session, config, clock.now()))
