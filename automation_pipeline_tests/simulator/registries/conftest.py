"""Registries in the process of the test, and those of the running simulator without their limits."""

from collections.abc import Iterator

import pytest

from automation_pipeline_tests.simulator.registries.client import RegistriesClient
from automation_pipeline_tests.simulator_control import (
    NO_REGISTRY_LIMITS,
    REGISTRY_LIMITS,
    configure_registries,
)


@pytest.fixture
def registries() -> RegistriesClient:
    return RegistriesClient()


@pytest.fixture
def served(simulator_url: str) -> Iterator[str]:
    configure_registries(simulator_url, **NO_REGISTRY_LIMITS)
    yield simulator_url
    configure_registries(simulator_url, **REGISTRY_LIMITS)
