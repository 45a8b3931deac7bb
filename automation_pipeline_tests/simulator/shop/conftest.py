"""The simulated shop as if just opened: 40 products of 3 variants, and a full bucket that nothing
trickles into."""

from collections.abc import Iterator

import pytest

from automation_pipeline_tests.outside import set_up_shop
from automation_pipeline_tests.simulator.shop.asking import Asking


@pytest.fixture
def shop(simulated: str) -> Iterator[Asking]:
    set_up_shop(
        simulated, products=40, variants_per_product=3, currency="EUR", maximum=2000, restore_rate=0
    )
    with Asking(simulated) as asking:
        yield asking
    set_up_shop(
        simulated,
        products=40,
        variants_per_product=3,
        currency="EUR",
        maximum=2000,
        restore_rate=100,
    )
