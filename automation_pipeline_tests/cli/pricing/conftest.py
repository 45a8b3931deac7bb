"""Fixtures: a terminal, a fake shop, and the pricing commands."""

from collections.abc import Iterator

import pytest

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.output import screen
from automation_pipeline.core.clock import SystemClock
from automation_pipeline_tests.cli.pricing.commands import PricingCommands, make_shop
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal
from automation_pipeline_tests.fakes.shop import FakeShop, storefront
from automation_pipeline_tests.pricing.harness import PricingHarness


@pytest.fixture
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setattr(screen, "_width", 250)  # pytest-xdist sets COLUMNS before this fixture runs
    with open_terminal(request) as terminal:
        terminal.export(LOGNAME="ada")
        yield terminal


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> FakeShop:
    shop = make_shop()
    monkeypatch.setattr(Services, "storefront", storefront(shop))
    return shop


@pytest.fixture
def commands(terminal: Terminal, shop: FakeShop) -> PricingCommands:
    return PricingCommands(terminal, PricingHarness(terminal.database, SystemClock(), shop))  # type: ignore[arg-type]  no time is passed
