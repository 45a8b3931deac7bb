"""`automation api`: the HTTP API in this process, until it is told to stop."""

from typing import Annotated

import typer

from automation_pipeline import bootstrap
from automation_pipeline.cli.desk.chosen import only_here
from automation_pipeline.core.errors import PermanentError


def api(
    *,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on.", show_default="API_HOST, else 127.0.0.1")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.", show_default="API_PORT, else 3002"),
    ] = None,
) -> None:
    """Serve the HTTP API on the database of this machine. Ctrl-C ends it, after the answers under way.

    Programs show a token, which `automation tokens create` makes; /docs describes every call of the API.
    """
    only_here("api")
    services = bootstrap.services()
    _check_revision()
    from automation_pipeline.api.server import serve  # noqa: PLC0415  a web server, only here

    settings = services.settings
    serve(services, host=host or settings.api_host, port=settings.api_port if port is None else port)


def _check_revision() -> None:
    from automation_pipeline.migrations.standing import standing_of  # noqa: PLC0415  Alembic only where it is used

    standing = standing_of(bootstrap.services().database)
    if not standing.is_workable:
        raise PermanentError(f"The database is {standing}: run `automation db upgrade` first.")
