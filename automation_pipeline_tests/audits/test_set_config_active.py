"""In use, out of use, and in use again: nothing else changes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from automation_pipeline.audits.configs import set_config_active
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import add, add_audit, read
from automation_pipeline_tests.conftest import StandingClock


def test_a_configuration_in_use_is_taken_out_of_use_and_back(
    database: Database, clock: StandingClock
) -> None:
    config_id = add(database)
    with database.transaction() as session:
        add_audit(session, config_id)
    before = read(database, config_id)
    clock.pass_time(timedelta(minutes=1))
    for active in (False, True):
        told = set_config_active(config_id, active=active, database=database, clock=clock)
        config = replace(before.config, is_active=active)
        assert (
            told
            == read(database, config_id)
            == replace(before, config=config, updated_at=clock.now())
        )


def test_what_does_not_exist_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError):
        set_config_active(7, active=True, database=database, clock=clock)
