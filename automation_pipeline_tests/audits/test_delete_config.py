"""Deleting: only what nothing was ever audited by."""

import pytest

from automation_pipeline.audits.configs import delete_config
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import add, add_audit, read


def test_what_is_deleted_is_gone_and_deleted_once(database: Database) -> None:
    config_id = add(database)
    delete_config(config_id, database=database)
    with pytest.raises(NotFoundError, match=f"Audit config with ID '{config_id}' not found"):
        delete_config(config_id, database=database)


def test_what_is_in_use_is_refused_and_stays(database: Database) -> None:
    config_id = add(database)
    with database.transaction() as session:
        add_audit(session, config_id)
    with pytest.raises(
        ConflictError,
        match=f"deactivate it instead: automation audit-configs deactivate {config_id}$",
    ):
        delete_config(config_id, database=database)
    assert read(database, config_id).config.name == "Sales"
