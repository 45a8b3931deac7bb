"""From settings to the storefront: its name, its knobs, and what is said of a setting that is
missing."""

import asyncio

import pytest
from pydantic import SecretStr

from automation_pipeline.bootstrap import Services
from automation_pipeline.clients.factories import host_of
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import Settings
from automation_pipeline.pricing.models.shop import ShopOptions
from automation_pipeline.pricing.ports import Storefront
from automation_pipeline_tests.tables import every_case

TOKEN = SecretStr("shpat_s3cret")


def storefront(**settings: object) -> Storefront:
    both = {"shop_api_base_url": "http://127.0.0.1:9/hidden", "shop_api_token": TOKEN}
    return Services(Settings().model_copy(update={**both, **settings})).storefront


@every_case(
    ("missing", "says"),
    [
        ({"shop_api_base_url": None}, "SHOP_API_BASE_URL is not set"),
        ({"shop_api_token": None}, "SHOP_API_TOKEN is not set"),
        ({"shop_api_token": SecretStr("")}, "SHOP_API_TOKEN is not set"),
    ],
)
def test_a_shop_needs_an_address_and_a_token(missing: dict[str, object], says: str) -> None:
    with pytest.raises(PermanentError, match=f"^{says}: "):
        storefront(**missing)


def test_a_storefront_is_known_by_its_host_and_goes_by_its_settings() -> None:
    settings = {
        "worker_max_concurrency": 7,
        "shop_timeout_seconds": 12.5,
        "pricing_lease_seconds": 60.0,
        "worker_enable_reconciliation": False,
    }
    front = storefront(**settings)
    assert front.name == "127.0.0.1:9"
    assert front.options == ShopOptions(
        calls_at_once=7, call_seconds=12.5, lease_seconds=60.0, reconciles=False
    )


def test_a_shop_is_opened_for_each_loop_and_closed_with_it() -> None:
    front = storefront()

    async def visit() -> bool:
        async with front.open() as shop:
            called = await shop.prices(["1"])
            return called.failure is not None and "ConnectError" in called.failure.message

    assert [asyncio.run(visit()) for _ in range(2)] == [True, True]
    assert front.meter.drain()["provider_calls_total", 'provider="shop",status="ConnectError"'] == 2


@every_case(
    ("address", "host"),
    [
        ("https://Example.MyShopify.com", "example.myshopify.com"),
        ("https://shop.test:8443/", "shop.test:8443"),
        ("http://127.0.0.1:8090/sim/shop", "127.0.0.1:8090"),
        ("http://[::1]:8090", "[::1]:8090"),
        ("http://[::1]", "[::1]"),
    ],
)
def test_a_host_is_told_without_the_rest_of_its_address(address: str, host: str) -> None:
    assert host_of(address) == host
