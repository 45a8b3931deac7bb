"""`automation simulator`: the outside world in one process, on loopback unless told otherwise."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import only_here
from automation_pipeline.core.errors import PermanentError


def simulator(
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")] = 4010,
    seed: Annotated[int, typer.Option(help="Another seed is another world.")] = 7,
    fiches_per_day: Annotated[int, typer.Option(min=0, max=50_000, help="Sales on a full working day.")] = 24,
    exact: Annotated[bool, typer.Option("--exact", help="Every day has exactly that many.")] = False,
    latency: Annotated[float, typer.Option(min=0, max=600, help="Seconds before every answer.")] = 0.0,
    speech_key: Annotated[str, typer.Option(help="The key of speech-to-text.")] = "sim-speech-key",
    speech_per_minute: Annotated[int, typer.Option(min=0, help="Calls of speech-to-text a minute; 0 is no cap.")] = 0,
    llm_key: Annotated[str, typer.Option(help="The key of the language model.")] = "sim-llm-key",
    llm_per_minute: Annotated[int, typer.Option(min=0, help="Calls of the language model a minute; 0 is no cap.")] = 0,
    pusher_app_id: Annotated[str, typer.Option(help="The application of realtime events.")] = "4010",
    pusher_key: Annotated[str, typer.Option(help="Its key.")] = "sim-pusher-key",
    pusher_secret: Annotated[str, typer.Option(help="Its secret.")] = "sim-pusher-secret",  # noqa: S107  a simulator has no secrets
    shop_token: Annotated[str, typer.Option(help="The access token of the shop.")] = "sim-shop-token",  # noqa: S107  a simulator has no secrets
    shop_products: Annotated[int, typer.Option(min=0, help="Products that the shop sells.")] = 40,
    shop_variants: Annotated[int, typer.Option(min=1, help="Variants of each of them.")] = 3,
    inpi_username: Annotated[str, typer.Option(help="The account at INPI's register.")] = "sim-inpi@exemple.test",
    inpi_password: Annotated[str, typer.Option(help="Its password.")] = "sim-inpi-password",  # noqa: S107  a simulator has no secrets
    entreprise_token: Annotated[str, typer.Option(help="The token of API Entreprise.")] = "sim-entreprise-token",  # noqa: S107  a simulator has no secrets
    token: Annotated[str, typer.Option(help="The bearer token of the CRM.")] = "sim-token",  # noqa: S107  a simulator has no secrets
) -> None:
    """Play the CRM and the other providers: deterministic, with faults and a ledger of calls."""
    from automation_pipeline.simulator import serve  # noqa: PLC0415  a web server, only here

    only_here("simulator")
    with _complaining():
        serve(
            host=host,
            port=port,
            seed=seed,
            fiches_per_day=fiches_per_day,
            vary=not exact,
            latency=latency,
            token=token,
            speech_key=speech_key,
            speech_per_minute=speech_per_minute,
            llm_key=llm_key,
            llm_per_minute=llm_per_minute,
            pusher_app_id=pusher_app_id,
            pusher_key=pusher_key,
            pusher_secret=pusher_secret,
            shop_token=shop_token,
            shop_products=shop_products,
            shop_variants=shop_variants,
            inpi_username=inpi_username,
            inpi_password=inpi_password,
            entreprise_token=entreprise_token,
        )


@contextmanager
def _complaining() -> Generator[None]:
    from automation_pipeline.simulator import SimulatorStartError  # noqa: PLC0415  a web server, only here

    try:
        yield
    except SimulatorStartError as error:
        raise PermanentError(str(error)) from None
