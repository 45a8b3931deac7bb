"""The fixture of organisations' test data, on each kind of database."""

import pytest

from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.org_jobs.data import OrgJobsData


@pytest.fixture
def data(database: Database, clock: FakeClock) -> OrgJobsData:
    return OrgJobsData(database, clock)
