"""The bench of organisations' jobs, on each kind of database."""

import pytest

from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.org_jobs.bench import Bench


@pytest.fixture
def org_bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)
