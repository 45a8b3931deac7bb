"""Fixtures of automation tests."""

import pytest

from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.harness import AutomationHarness
from automation_pipeline_tests.fakes.clock import FakeClock


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AutomationHarness:
    return AutomationHarness(database, clock)
