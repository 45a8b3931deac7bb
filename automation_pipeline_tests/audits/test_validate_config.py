"""Looking a stored configuration over: what was stored by our rules is valid, older rows may not
be."""

import pytest
from sqlalchemy import update

from automation_pipeline.audits.configs import validate_config
from automation_pipeline.audits.tables import AuditConfigRow, AuditStepRow
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import add, read


def test_what_we_stored_is_valid(database: Database) -> None:
    assert validate_config(add(database), database=database) == ()


def test_what_others_stored_is_told_by_field(database: Database) -> None:
    config_id = add(database)
    first, _, last = read(database, config_id).step_ids
    with database.transaction() as session:
        session.execute(update(AuditConfigRow).values(name=" "))
        session.execute(
            update(AuditStepRow).where(AuditStepRow.id == first).values(control_points=[])
        )
        session.execute(update(AuditStepRow).where(AuditStepRow.id == last).values(position=9))
    faults = dict(validate_config(config_id, database=database))
    assert set(faults) == {"name", "steps.0.controlPoints", "steps"}
    assert faults["steps"] == "Step positions must be 1 to 3 without gaps: 3 missing"


def test_what_does_not_exist_is_not_found(database: Database) -> None:
    with pytest.raises(NotFoundError):
        validate_config(7, database=database)
