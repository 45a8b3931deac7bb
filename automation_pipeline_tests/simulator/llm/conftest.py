"""A simulator for all tests of its model, which is reset before each test."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from automation_pipeline_tests.simulator.llm.client import KEY, client_of
from automation_pipeline_tests.simulator_control import configure_model, reset, running_simulator


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with running_simulator("--exact", "--llm-key", KEY) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    reset(url)
    configure_model(url, inventions=0, per_minute=0, context_characters=1_000_000)
    with client_of(url, KEY) as client:
        yield client
