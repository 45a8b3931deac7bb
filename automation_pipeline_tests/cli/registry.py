"""A fake company registry for local commands and for the API of a remote machine."""

from dataclasses import replace

import pytest

from automation_pipeline.bootstrap import Services
from automation_pipeline.enrichment.models import Registries, SourceApi
from automation_pipeline_tests.fakes.registries import NO_BACKOFF, FakeRegistry, record, registries

DANONE, LVMH, UNKNOWN_COMPANY = "552032534", "732829320", "356000000"
# Requests over HTTP wait until the work is done.
LONG_WAIT = replace(NO_BACKOFF, sync_seconds=60.0)


def fake_registry(monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    """Replace the registries of all services by a fake one with two companies, and return it."""
    search = FakeRegistry(
        record(DANONE, naf_code="70.10Z", naf_label="Sièges sociaux", legal_name="DANONE [SA]"),
        record(LVMH, city="LYON", legal_name="=LVMH"),
    )

    def fake_registries(services: Services) -> Registries:
        return registries(services.database, {SourceApi.SEARCH: search}, options=LONG_WAIT)

    monkeypatch.setattr(Services, "registries", property(fake_registries))
    return search
