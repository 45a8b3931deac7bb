"""Delete a configuration that nothing was ever audited by."""

from automation_pipeline.audits.store import configs
from automation_pipeline.storage.database import Database


def delete_config(config_id: int, *, database: Database) -> None:
    """ConflictError when audits or batches of it are kept: then it can only be deactivated."""
    with database.transaction() as session:
        configs.delete_config(session, config_id)
