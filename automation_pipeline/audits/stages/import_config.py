"""Store a configuration under its name. Importing the same file again changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from automation_pipeline.audits.domain.config import AuditConfig
from automation_pipeline.audits.domain.config_document import config_document, parse_config
from automation_pipeline.audits.store import configs
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database


class Outcome(StrEnum):
    CREATED = "created"
    UNCHANGED = "unchanged"
    UPDATED = "updated"


@dataclass(frozen=True)
class Imported:
    id: int
    outcome: Outcome
    config: AuditConfig


def import_config(given: Mapping[str, object], *, update: bool = False, database: Database, clock: Clock) -> Imported:
    """InvalidInputError names every field at fault. ConflictError: another configuration has the name already, and
    replacing it was not asked for."""
    config, now = parse_config(given), clock.now()
    with database.transaction() as session:
        configs.one_import_at_a_time(session)
        known = configs.find_by_name(session, config.name)
        if known is None:
            return Imported(configs.add_config(session, config, now), Outcome.CREATED, config)
        if known.config == config:
            return Imported(known.id, Outcome.UNCHANGED, config)
        if not update:
            raise ConflictError(
                f"Audit config {known.id} has the name {config.name} and other content "
                f"({_differences(known.config, config)}): add --update to replace it"
            )
        configs.replace_config(session, known.id, config, now)
        return Imported(known.id, Outcome.UPDATED, config)


def _differences(known: AuditConfig, config: AuditConfig) -> str:
    before, after = config_document(known), config_document(config)
    return ", ".join(field for field in before if before[field] != after[field])
