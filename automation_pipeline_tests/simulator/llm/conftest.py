"""One simulator for all who talk to its model, set up afresh for each test."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from automation_pipeline_tests.outside import forget, set_up_model, simulator
from automation_pipeline_tests.simulator.llm.asking import KEY, client_of


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with simulator("--exact", "--llm-key", KEY) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    forget(url)
    set_up_model(url, inventions=0, per_minute=0, context_characters=1_000_000)
    with client_of(url, KEY) as client:
        yield client
