"""The shop from the command line: how it stands, and a pause that somebody gives a reason for."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.core.clock import SystemClock
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline_tests.cli.pricing.workshop import Workshop
from automation_pipeline_tests.cli.terminal import Terminal


def test_a_shop_tells_how_it_stands(workshop: Workshop) -> None:
    told = workshop.json("shop", "show")
    assert (told["shop"], told["circuit"]["state"], told["pausedAt"]) == (
        "shop.test",
        "closed",
        None,
    )
    said = workshop.said("shop", "show")
    assert said.startswith(
        "shop shop.test prices are written calls are made points 1000000000 of 1000000000 were left"
    )


def test_a_pause_has_a_reason_and_ends(workshop: Workshop) -> None:
    told = workshop.json("shop", "pause", "--reason", "Stock [count]")
    assert (told["pausedBy"], told["pauseReason"]) == ("cli:ada", "Stock [count]")
    assert "UTC, paused by cli:ada: Stock [count]" in workshop.said("shop", "show")
    resumed = workshop.said("shop", "resume")
    assert "prices are written" in resumed
    assert workshop.json("shop", "show")["pausedAt"] is None


@pytest.mark.parametrize(
    ("circuit", "words"),
    [
        ({"circuit": "open"}, "are not made until "),
        ({"circuit": "half_open"}, "one is made, to see whether the shop is well again"),
        ({"circuit": "closed"}, "the shop asked us to wait until "),
        (
            {"circuit": "closed", "refusals": [1.0, 60.0]},
            "2 calls for coming too fast, last at 1970-01-01 00:01 UTC",
        ),
    ],
)
def test_a_circuit_is_told_in_words(
    workshop: Workshop, circuit: dict[str, object], words: str
) -> None:
    until = SystemClock().now() + timedelta(hours=1)
    with workshop.terminal.database.transaction() as session:
        session.execute(update(ShopRow).values(until=until, **circuit))
    assert words in workshop.said("shop", "show")


def test_without_a_shop_the_setting_is_named(terminal: Terminal) -> None:
    ended = terminal.run("pricing", "shop", "show")
    assert (ended.code, ended.out) == (1, "")
    assert "SHOP_API_BASE_URL" in ended.err
