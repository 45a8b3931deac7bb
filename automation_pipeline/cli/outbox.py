"""`automation outbox`: events and messages that wait to be delivered."""

import asyncio
from typing import Annotated

import typer

from automation_pipeline import bootstrap
from automation_pipeline.automation.stages.relay_events import Relayed, relay_events
from automation_pipeline.cli.desk.chosen import only_here
from automation_pipeline.cli.output import AsJson, print_json, screen
from automation_pipeline.core.errors import InvalidInputError

app = typer.Typer(no_args_is_help=True, help="Deliver the events and messages that wait.", rich_markup_mode=None)

EVERY_SECONDS, ONCE_SECONDS = 5.0, 300.0


@app.callback()
def _outbox() -> None:
    """Keep the subcommand's name: Typer would make a lone command the group itself."""


@app.command()
def relay(
    *,
    once: Annotated[bool, typer.Option("--once", help="Deliver what waits now, and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Deliver webhooks, e-mails and realtime events by hand.

    Dagster's sensor relay_outbox does it by itself while a daemon runs, and both may run at the same time. Without
    --once the command looks every five seconds until you interrupt it.
    """
    only_here("outbox relay")
    if as_json and not once:
        raise InvalidInputError("--json prints one document: add --once.")
    services = bootstrap.services()
    services.run(_relay_once(services, as_json=as_json) if once else _relay_on(services))


async def _relay_once(services: bootstrap.Services, *, as_json: bool) -> None:
    relayed = await relay_events(services.post_office, database=services.database, budget_seconds=ONCE_SECONDS)
    if as_json:
        print_json({"events": relayed.events, "messages": relayed.messages})
    else:
        _show(relayed)


async def _relay_on(services: bootstrap.Services) -> None:
    while True:
        relayed = await relay_events(services.post_office, database=services.database)
        if relayed != Relayed(0, 0):
            _show(relayed)
        await asyncio.sleep(EVERY_SECONDS)


def _show(relayed: Relayed) -> None:
    screen.print(f"Relayed {relayed.events} events, tried {relayed.messages} messages.")
