"""`automation db`: the database's revision, a copy of it, and the way back."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress as Bar

from automation_pipeline import bootstrap
from automation_pipeline.cli.desk.chosen import only_here
from automation_pipeline.cli.output import AsJson, print_json, screen
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.storage import backups
from automation_pipeline.storage.engines import DatabaseMissingError

app = typer.Typer(help="Prepare the database, copy it, put a copy back.", no_args_is_help=True)
CopyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The copy.", dir_okay=False)]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


@app.command()
def upgrade(*, as_json: AsJson = False) -> None:
    """Create the tables, or bring those of an earlier version to this one. Safe to repeat."""
    from automation_pipeline import migrations  # noqa: PLC0415  Alembic only where it is used

    only_here("db upgrade")
    database = bootstrap.services().database
    created = database.create_file()
    before = migrations.current(database)
    migrations.upgrade(database)
    after = migrations.current(database)
    if as_json:
        print_json({"before": before, "revision": after})
    elif created:
        screen.print(
            f"Created {Path(str(database.url.database)).absolute()} at {after}.", highlight=False, markup=False
        )
    else:
        screen.print(
            f"The database is at {after}." if before == after else f"Upgraded from {before or 'empty'} to {after}."
        )


@app.command()
def current(*, as_json: AsJson = False) -> None:
    """Show the revision that the database is at. `automation doctor` tells whether it is the newest."""
    from automation_pipeline import migrations  # noqa: PLC0415  Alembic only where it is used

    only_here("db current")
    try:
        revision = migrations.current(bootstrap.services().database)
        sentence = revision or "The database is empty: run `automation db upgrade`."
    except DatabaseMissingError as error:
        revision, sentence = None, str(error)
    if as_json:
        print_json({"revision": revision})
    else:
        screen.print(sentence, highlight=False, markup=False)


@app.command()
def backup(file: CopyFile, *, force: Force = False, as_json: AsJson = False) -> None:
    """Copy the SQLite database into one file, as it is at one moment, while everything works on."""
    only_here("db backup")
    database = bootstrap.services().database
    if file.exists() and not force:
        raise InvalidInputError(f"{file} is there already: say --force to overwrite it.")
    with _progress("Copying") as tell:
        backups.back_up(database, file, tell)
    if as_json:
        print_json({"file": str(file), "bytes": file.stat().st_size})
    else:
        screen.print(f"The database is copied to {file}, {file.stat().st_size:,} bytes.")


@app.command()
def restore(file: CopyFile, *, force: Force = False, as_json: AsJson = False) -> None:
    """Make the SQLite database what a copy holds. Stop the API and Dagster before; see docs/operations.md for
    DAGSTER_HOME. A copy of an earlier version is upgraded by `automation db upgrade` afterwards.
    """
    from automation_pipeline import migrations  # noqa: PLC0415  Alembic only where it is used

    only_here("db restore")
    database = bootstrap.services().database
    if backups.is_filled(database) and not force:
        raise InvalidInputError("The database is not empty: say --force to lose what is in it.")
    with _progress("Restoring") as tell:
        backups.restore(database, file, tell)
    revision = migrations.current(database)
    if as_json:
        print_json({"file": str(file), "revision": revision})
    else:
        screen.print(f"The database is what {file} holds, at {revision}.")


@app.command()
def advance_ids(*, as_json: AsJson = False) -> None:
    """After `pg_restore`: jump over the ids that were given after the dump was made. `restore` does it by itself."""
    only_here("db advance-ids")
    sequences = backups.advance_ids(bootstrap.services().database)
    if as_json:
        print_json({"sequences": sequences, "advancedBy": backups.JUMP})
    else:
        screen.print(f"{sequences} tables count on {backups.JUMP:,} ids higher.")


@contextmanager
def _progress(word: str) -> Generator[backups.Progress]:
    """Drawn for a person at the terminal, on standard error."""
    with Bar(console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal) as bar:
        task = bar.add_task(word)
        yield lambda done, total: bar.update(task, completed=done, total=total)
