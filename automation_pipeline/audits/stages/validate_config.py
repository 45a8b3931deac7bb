"""Look a stored configuration over by the rules for new ones: rows may be older than the rules."""

from automation_pipeline.audits.domain.config_document import config_document, config_faults
from automation_pipeline.audits.store import configs
from automation_pipeline.storage.database import Database


def validate_config(config_id: int, *, database: Database) -> tuple[tuple[str, str], ...]:
    """What is wrong, by field; none when it could be imported as it is."""
    with database.reading() as session:
        return config_faults(config_document(configs.get_config(session, config_id).config))
