"""Registries of the test's own, and those of the running simulator without their limits."""

from collections.abc import Iterator

import pytest

from automation_pipeline_tests.outside import NO_REGISTRY_LIMITS, REGISTRY_LIMITS, set_up_registries
from automation_pipeline_tests.simulator.registries.asking import Asking


@pytest.fixture
def asking() -> Asking:
    return Asking()


@pytest.fixture
def served(simulated: str) -> Iterator[str]:
    set_up_registries(simulated, **NO_REGISTRY_LIMITS)
    yield simulated
    set_up_registries(simulated, **REGISTRY_LIMITS)
