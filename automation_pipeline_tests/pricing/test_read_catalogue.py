"""The catalogue, page by page, to its end; what a failing page comes to is tested with the plan
that needs it."""

from contextlib import aclosing

import pytest

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.pricing.models.shop import CallResult, CataloguePage
from automation_pipeline.pricing.shop import read_catalogue
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf, variant
from automation_pipeline_tests.pricing.bench import Bench


async def pages(bench: Bench) -> list[list[str]]:
    async with aclosing(read_catalogue(bench.context)) as found:
        return [[one.variant_id for one in page.variants] async for page in found]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (2, [["101", "201"], ["301"]]),
        (3, [["101", "201", "301"]]),
        (1, [["101"], ["201"], ["301"]]),
    ],
)
def test_every_page_comes_once(
    size: int, expected: list[list[str]], database: Database, clock: StandingClock
) -> None:
    bench = Bench(database, clock, FakeShop(*shelf(3), page_size=size))
    assert bench.loop(pages(bench)) == expected


def test_an_empty_shop_has_one_empty_page(database: Database, clock: StandingClock) -> None:
    bench = Bench(database, clock)
    assert bench.loop(pages(bench)) == [[]]


class Turning(FakeShop):
    """Its pages lead through `cursors`, and then to the last of them for ever."""

    def __init__(self, *cursors: str) -> None:
        super().__init__()
        self.cursors = cursors

    async def page(self, after: str | None) -> CallResult[CataloguePage]:
        self.called.append(("page", [after or ""]))
        return CallResult(
            CataloguePage([variant()], self.cursors[min(len(self.called), len(self.cursors)) - 1])
        )


@pytest.mark.parametrize("cursors", [("1",), ("1", "2", "1", "end"), ("1", "2", "3", "2", "end")])
def test_a_catalogue_without_an_end_is_not_read_for_ever(
    cursors: tuple[str, ...], database: Database, clock: StandingClock
) -> None:
    shop = Turning(*cursors)
    bench = Bench(database, clock, shop)
    with pytest.raises(PermanentError, match="the same page of its catalogue again and again"):
        bench.loop(pages(bench))
    assert len(shop.called) == max(len(cursors) - 1, 2)
