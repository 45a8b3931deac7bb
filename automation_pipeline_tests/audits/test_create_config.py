"""Creating: stored whole or not at all, and names may come twice."""

import pytest
from sqlalchemy import func, select

from automation_pipeline.audits.configs import create_config
from automation_pipeline.audits.models.configs import parse_config
from automation_pipeline.audits.tables import AuditConfigRow, AuditStepRow
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import FULL, document, read, step_document
from automation_pipeline_tests.conftest import StandingClock


def test_what_is_created_is_there_with_its_steps(database: Database, clock: StandingClock) -> None:
    stored = create_config(FULL, database=database, clock=clock)
    assert stored == read(database, stored.id)
    assert (stored.config, stored.created_at, stored.updated_at) == (
        parse_config(FULL),
        clock.now(),
        clock.now(),
    )
    assert create_config(FULL, database=database, clock=clock).id != stored.id


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (document(""), "Invalid create audit config input"),
        (
            document() | {"steps": [step_document(1), step_document(1)]},
            "Step positions must be unique",
        ),
    ],
)
def test_what_is_wrong_is_not_stored(
    database: Database, clock: StandingClock, given: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        create_config(given, database=database, clock=clock)
    assert str(refused.value) == complaint
    with database.reading() as session:
        for table in (AuditConfigRow, AuditStepRow):
            assert session.scalar(select(func.count()).select_from(table)) == 0
