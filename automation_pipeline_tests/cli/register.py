"""A fake register behind the commands of a test, here and at another machine's API."""

from dataclasses import replace

import pytest

from automation_pipeline.bootstrap import Services
from automation_pipeline.enrichment.models import Registries, SourceApi
from automation_pipeline_tests.fakes.registries import NEVER_WAITS, FakeRegistry, record, registries

DANONE, LVMH, NOBODY = "552032534", "732829320", "356000000"
# Whoever is asked over HTTP is waited for as long as it takes.
PATIENT = replace(NEVER_WAITS, sync_seconds=60.0)


def a_register(monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    """It knows two companies, for all services of the test."""
    search = FakeRegistry(
        record(DANONE, naf_code="70.10Z", naf_label="Sièges sociaux", legal_name="DANONE [SA]"),
        record(LVMH, city="LYON", legal_name="=LVMH"),
    )

    def of(services: Services) -> Registries:
        return registries(services.database, {SourceApi.SEARCH: search}, options=PATIENT)

    monkeypatch.setattr(Services, "registries", property(of))
    return search
