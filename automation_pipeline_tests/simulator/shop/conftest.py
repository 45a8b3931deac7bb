"""A simulated shop with 40 products of 3 variants, and a full bucket that is not refilled."""

from collections.abc import Iterator

import pytest

from automation_pipeline_tests.simulator.shop.client import ShopClient
from automation_pipeline_tests.simulator_control import configure_shop


@pytest.fixture
def shop(simulator_url: str) -> Iterator[ShopClient]:
    configure_shop(
        simulator_url,
        products=40,
        variants_per_product=3,
        currency="EUR",
        maximum=2000,
        restore_rate=0,
    )
    with ShopClient(simulator_url) as client:
        yield client
    configure_shop(
        simulator_url,
        products=40,
        variants_per_product=3,
        currency="EUR",
        maximum=2000,
        restore_rate=100,
    )
