"""Services over a migrated database with a fixed clock."""

from collections.abc import Callable

import pytest

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock

MakeServices = Callable[..., Services]


@pytest.fixture
def make_services(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> MakeServices:
    """Creates services with the given settings, independent of the environment."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)

    def make(**variables: object) -> Services:
        url = database.url.render_as_string(hide_password=False)
        services = Services(Settings(**{"DATABASE_URL": url, **variables}), clock)  # type: ignore[arg-type]
        if "DATABASE_URL" not in variables:
            services.__dict__["database"] = database
        return services

    return make
