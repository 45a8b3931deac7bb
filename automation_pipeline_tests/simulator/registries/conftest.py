"""Registries of the test's own, and those of the running simulator without their limits."""

from collections.abc import Iterator

import pytest

from automation_pipeline_tests.simulator.registries.asking import Asking
from automation_pipeline_tests.simulator_control import (
    NO_REGISTRY_LIMITS,
    REGISTRY_LIMITS,
    configure_registries,
)


@pytest.fixture
def asking() -> Asking:
    return Asking()


@pytest.fixture
def served(simulator_url: str) -> Iterator[str]:
    configure_registries(simulator_url, **NO_REGISTRY_LIMITS)
    yield simulator_url
    configure_registries(simulator_url, **REGISTRY_LIMITS)
