"""`automation pricing shop`: status, pause, resume."""

from typing import Annotated

import typer

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import AsJson, minute, print_facts, print_json
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.rules.pacing import CircuitState
from automation_pipeline.pricing.shop import ShopShown

app = command_group("See how the shop takes our calls; pause all writing in it.")


@app.command()
def show(*, as_json: AsJson = False) -> None:
    """Show how the shop stands, without calling it. For example: automation pricing shop show"""
    _show(open_client().pricing.shop.standing(), as_json=as_json)


@app.command()
def pause(
    *,
    reason: Annotated[str | None, typer.Option(help="Why, for whoever looks at it later.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write no more prices until the shop is resumed. Runs wait; previews and reconciliations go
    on.

    For example: automation pricing shop pause --reason "The accountants count the stock"
    """
    _show(open_client().pricing.shop.pause(reason), as_json=as_json)


@app.command()
def resume(*, as_json: AsJson = False) -> None:
    """Write prices again: runs go on where they were. For example: automation pricing shop
    resume"""
    _show(open_client().pricing.shop.resume(), as_json=as_json)


def _show(shop: ShopShown, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(shop))
        return
    print_facts(
        {
            "shop": shop.shop,
            "prices": "are written" if shop.paused_at is None else _paused(shop),
            "calls": _circuit(shop),
            "points": _bucket(shop),
            "refused": f"{len(shop.refusals)} calls for coming too fast, last at {minute(shop.refusals[-1])} UTC"
            if shop.refusals
            else None,
        }
    )


def _paused(shop: ShopShown) -> str:
    why = f": {shop.pause_reason}" if shop.pause_reason else ""
    return f"are not written since {minute(shop.paused_at)} UTC, paused by {shop.paused_by}{why}"


def _circuit(shop: ShopShown) -> str:
    circuit = shop.circuit
    until = f" until {circuit.until:%Y-%m-%d %H:%M:%S} UTC" if circuit.until else ""
    words = {
        CircuitState.CLOSED: f"the shop asked us to wait{until}" if until else "are made",
        CircuitState.OPEN: f"are not made{until}: too many have failed",
        CircuitState.HALF_OPEN: "one is made, to see whether the shop is well again",
    }
    return words[circuit.state]


def _bucket(shop: ShopShown) -> str | None:
    if shop.bucket is None:
        return "unknown: it was never called"
    available, maximum, rate = map(
        round, (shop.bucket.available, shop.bucket.maximum, shop.bucket.restore_rate)
    )
    return f"{available} of {maximum} were left at the last call, {rate} come back a second"
