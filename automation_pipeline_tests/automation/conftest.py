"""Fixtures of automation tests."""

import pytest

from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.bench import Bench
from automation_pipeline_tests.fakes.clock import FakeClock


@pytest.fixture
def bench(database: Database, clock: FakeClock) -> Bench:
    return Bench(database, clock)
