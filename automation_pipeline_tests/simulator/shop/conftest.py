"""The simulated shop as if just opened: 40 products of 3 variants, and a full bucket that nothing
trickles into."""

from collections.abc import Iterator

import pytest

from automation_pipeline_tests.simulator.shop.asking import Asking
from automation_pipeline_tests.simulator_control import configure_shop


@pytest.fixture
def shop(simulator_url: str) -> Iterator[Asking]:
    configure_shop(
        simulator_url,
        products=40,
        variants_per_product=3,
        currency="EUR",
        maximum=2000,
        restore_rate=0,
    )
    with Asking(simulator_url) as asking:
        yield asking
    configure_shop(
        simulator_url,
        products=40,
        variants_per_product=3,
        currency="EUR",
        maximum=2000,
        restore_rate=100,
    )
