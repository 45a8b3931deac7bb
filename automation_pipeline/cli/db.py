"""`automation db`: the database's revision."""

import typer

from automation_pipeline import bootstrap
from automation_pipeline.cli.desk.chosen import only_here
from automation_pipeline.cli.output import AsJson, print_json, screen

app = typer.Typer(help="Prepare the database.", no_args_is_help=True)


@app.command()
def upgrade(*, as_json: AsJson = False) -> None:
    """Create the tables, or bring those of an earlier version to this one. Safe to repeat."""
    from automation_pipeline import migrations  # noqa: PLC0415  Alembic only where it is used

    only_here("db upgrade")
    database = bootstrap.services().database
    before = migrations.current(database)
    migrations.upgrade(database)
    after = migrations.current(database)
    if as_json:
        print_json({"before": before, "revision": after})
    else:
        screen.print(
            f"The database is at {after}." if before == after else f"Upgraded from {before or 'empty'} to {after}."
        )


@app.command()
def current(*, as_json: AsJson = False) -> None:
    """Show the revision that the database is at. `automation doctor` tells whether it is the newest."""
    from automation_pipeline import migrations  # noqa: PLC0415  Alembic only where it is used

    only_here("db current")
    revision = migrations.current(bootstrap.services().database)
    if as_json:
        print_json({"revision": revision})
    else:
        screen.print(revision or "The database is empty: run `automation db upgrade`.")
