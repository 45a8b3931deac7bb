"""Commands for this installation: database, doctor, worker, outbox, housekeeping, API and simulator."""

import asyncio
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.text import Text

from automation_pipeline import bootstrap
from automation_pipeline.automation.relay import RelayCounts, relay_events
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import Document, operation, require_local_machine
from automation_pipeline.cli.output import (
    AsJson,
    plain_text,
    print_json,
    print_result,
    print_table,
    say,
    screen,
)
from automation_pipeline.core.errors import InvalidInputError, PermanentError
from automation_pipeline.core.settings import load_settings
from automation_pipeline.storage import backups
from automation_pipeline.storage.database import DatabaseMissingError

db_app = command_group("Create, upgrade, back up and restore the database.")
CopyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The copy.", dir_okay=False)]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing data.")]


@db_app.command()
def upgrade(*, as_json: AsJson = False) -> None:
    """Create the tables, or upgrade those of an earlier version. Safe to repeat."""
    from automation_pipeline import migrations  # noqa: PLC0415  Alembic only where it is used

    require_local_machine("db upgrade")
    database = bootstrap.services().database
    created = database.create_file()
    before = migrations.current(database)
    migrations.upgrade(database)
    after = migrations.current(database)
    if created:
        sentence = f"Created {Path(str(database.url.database)).absolute()} at {after}."
    elif before == after:
        sentence = f"The database is at {after}."
    else:
        sentence = f"Upgraded from {before or 'empty'} to {after}."
    print_result({"before": before, "revision": after}, sentence, as_json=as_json)


@db_app.command()
def current(*, as_json: AsJson = False) -> None:
    """Show the revision of the database. `automation doctor` shows whether it is the newest."""
    from automation_pipeline import migrations  # noqa: PLC0415  Alembic only where it is used

    require_local_machine("db current")
    try:
        revision = migrations.current(bootstrap.services().database)
        sentence = revision or "The database is empty: run `automation db upgrade`."
    except DatabaseMissingError as error:
        revision, sentence = None, str(error)
    print_result({"revision": revision}, sentence, as_json=as_json)


@db_app.command()
def backup(file: CopyFile, *, force: Force = False, as_json: AsJson = False) -> None:
    """Copy the SQLite database at one point in time into a file, while other processes keep using
    it."""
    require_local_machine("db backup")
    database = bootstrap.services().database
    if file.exists() and not force:
        raise InvalidInputError(f"{file} exists already: add --force to overwrite it.")
    with _progress_bar("Copying") as report:
        backups.back_up(database, file, report)
    size = file.stat().st_size
    sentence = f"The database is copied to {file}, {size:,} bytes."
    print_result({"file": str(file), "bytes": size}, sentence, as_json=as_json)


@db_app.command()
def restore(file: CopyFile, *, force: Force = False, as_json: AsJson = False) -> None:
    """Replace the SQLite database by a backup. Stop the API and Dagster first; see
    docs/operations.md for DAGSTER_HOME. If the backup is of an earlier version, run `automation db
    upgrade` afterwards."""
    from automation_pipeline import migrations  # noqa: PLC0415  Alembic only where it is used

    require_local_machine("db restore")
    database = bootstrap.services().database
    if backups.is_filled(database) and not force:
        raise InvalidInputError("The database is not empty: add --force to overwrite it.")
    with _progress_bar("Restoring") as report:
        backups.restore(database, file, report)
    revision = migrations.current(database)
    sentence = f"The database is restored from {file}, at {revision}."
    print_result({"file": str(file), "revision": revision}, sentence, as_json=as_json)


@db_app.command()
def advance_ids(*, as_json: AsJson = False) -> None:
    """After `pg_restore`: skip the ids that were assigned after the dump. `restore` does this
    itself."""
    require_local_machine("db advance-ids")
    sequences = backups.advance_ids(bootstrap.services().database)
    document = {"sequences": sequences, "advancedBy": backups.JUMP}
    sentence = f"The ids of {sequences} tables continue {backups.JUMP:,} higher."
    print_result(document, sentence, as_json=as_json)


@contextmanager
def _progress_bar(label: str) -> Generator[backups.Progress]:
    """Show a progress bar on standard error if that is a terminal."""
    with Bar(
        console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal
    ) as bar:
        task = bar.add_task(label)
        yield lambda done, total: bar.update(task, completed=done, total=total)


COLOURS = {"ok": "green", "not set": "dim", "failed": "red", "skipped": "dim"}


@dataclass(frozen=True)
class Diagnostic:
    """The findings of `automation doctor`."""

    checks: Sequence[Document]


@operation("GET /api/automation/diagnostic")
def diagnostic(services: Services) -> Diagnostic:
    from automation_pipeline.api.health import examine  # noqa: PLC0415  imports every package

    return Diagnostic([vars(finding) for finding in examine(services)])


def doctor(*, as_json: AsJson = False) -> None:
    """Check the database, Redis, the CRM, speech-to-text, the language model, the shop, the company
    registries, the mail server, Pusher, Dagster's definitions and daemon, and who may use the HTTP
    API. Exit 1 if a required check fails; the checks of all configured systems are required. With
    --api, the other machine runs the checks."""
    checks = diagnostic().checks
    if as_json:
        print_json({"checks": checks})
    else:
        for check in checks:
            state = str(check["state"])
            line = Text(f"{state:<8}", COLOURS[state]) + f" {check['name']:<9} {check['detail']}"
            screen.print(plain_text(line))
    if any(check["required"] and check["state"] == "failed" for check in checks):
        raise typer.Exit(1)


# A name instead of an import, because this package must not import Dagster and Celery.
CELERY_APP = "automation_pipeline.orchestration.celery"


def worker(
    *,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="Steps at the same time.",
            show_default="AUTOMATION_CELERY_CONCURRENCY, else 2",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="The worker's name; %h is the host.")] = "steps@%h",
) -> None:
    """Execute steps of runs from Celery (AUTOMATION_EXECUTOR=celery), in the same environment as
    Dagster's processes.

    On SIGTERM, the worker finishes its current steps first. Several workers on one host need
    different names.
    """
    require_local_machine("worker")
    settings = load_settings()
    if settings.automation_executor != "celery":
        raise PermanentError(
            f"AUTOMATION_EXECUTOR is {settings.automation_executor}: a worker needs AUTOMATION_EXECUTOR=celery."
        )
    if not (settings.automation_celery_broker_url or settings.redis_url):
        raise PermanentError(
            "AUTOMATION_CELERY_BROKER_URL is not set, nor is REDIS_URL: one of them is the broker."
        )
    steps = concurrency or settings.automation_celery_concurrency
    options = ("--hostname", name, "--concurrency", str(steps), "--loglevel", "WARNING")
    command = [sys.executable, "-m", "celery", "-A", CELERY_APP, "worker", *options]
    os.execv(sys.executable, command)  # noqa: S606  without a shell


outbox_app = command_group("Deliver waiting events and messages.")

RELAY_INTERVAL_SECONDS = 5.0
RELAY_ONCE_SECONDS = 300.0


@outbox_app.callback()
def _outbox() -> None:
    """Keep `relay` a command of the group: Typer merges a group without a callback with its only command."""


@outbox_app.command()
def relay(
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Deliver what is waiting now, and exit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Deliver webhooks, e-mails and realtime events manually.

    While a daemon runs, Dagster's sensor relay_outbox delivers them; both may run at the same time.
    Without --once, the command checks every five seconds until you interrupt it.
    """
    require_local_machine("outbox relay")
    if as_json and not once:
        raise InvalidInputError("--json prints one document: add --once.")
    services = bootstrap.services()
    services.run(_relay_once(services, as_json=as_json) if once else _relay_forever(services))


async def _relay_once(services: Services, *, as_json: bool) -> None:
    relayed = await relay_events(
        services.delivery_services, database=services.database, budget_seconds=RELAY_ONCE_SECONDS
    )
    document = {"events": relayed.events, "messages": relayed.messages}
    print_result(document, _relayed(relayed), as_json=as_json)


async def _relay_forever(services: Services) -> None:
    while True:
        relayed = await relay_events(services.delivery_services, database=services.database)
        if relayed != RelayCounts(0, 0):
            say(_relayed(relayed))
        await asyncio.sleep(RELAY_INTERVAL_SECONDS)


def _relayed(counts: RelayCounts) -> str:
    return f"Relayed {counts.events} events, tried {counts.messages} messages."


DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")]
InDagster = Annotated[
    bool,
    typer.Option(
        "--in-dagster",
        help="Request it from Dagster's daemon, including Dagster's own events and runs, and return.",
    ),
]


def housekeeping(
    *, dry_run: DryRun = False, in_dagster: InDagster = False, as_json: AsJson = False
) -> None:
    """Delete old rows: logs, delivered events, requests, deliveries, alerts.

    The variables ending in _KEEP_DAYS set the retention periods. Results stay: runs, outcomes,
    transcripts, audits, prices, companies. You can run and interrupt the command at any time. It
    does not delete Dagster's own events and runs: Dagster's schedule nightly_housekeeping deletes
    both kinds, and so does --in-dagster.
    """
    from automation_pipeline.retention import purge_all, request_housekeeping  # noqa: PLC0415  imports every package

    require_local_machine("housekeeping")
    if in_dagster and dry_run:
        raise InvalidInputError("--dry-run does not combine with --in-dagster.")
    services = bootstrap.services()
    if in_dagster:
        key = request_housekeeping(services)
        print_result(
            {"request_key": key}, f"Requested housekeeping from Dagster as {key}.", as_json=as_json
        )
        return
    removed = services.run(purge_all(services, is_dry=dry_run))
    total = sum(removed.values())
    if as_json:
        print_json({"dry_run": dry_run, "rows": dict(removed), "total": total})
        return
    rows = [(f"{count:,}", name) for name, count in sorted(removed.items()) if count]
    print_table(("rows", "table"), rows)
    say(f"{total:,} rows {'would be deleted' if dry_run else 'deleted'}.")


def api(
    *,
    host: Annotated[
        str | None,
        typer.Option(help="The address to listen on.", show_default="API_HOST, else 127.0.0.1"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="The port; 0 takes a free one.",
            show_default="API_PORT, else 3002",
        ),
    ] = None,
) -> None:
    """Serve the HTTP API on the database of this machine. Ctrl-C ends it after the current
    requests.

    Programs authenticate with a token from `automation tokens create`; /docs describes every
    endpoint.
    """
    from automation_pipeline.api.app import serve  # noqa: PLC0415  a web server, only needed here
    from automation_pipeline.migrations.schema_version import schema_version  # noqa: PLC0415  Alembic only where it is used

    require_local_machine("api")
    services = bootstrap.services()
    version = schema_version(services.database)
    if not version.is_workable:
        raise PermanentError(f"The database is {version}: run `automation db upgrade` first.")

    settings = services.settings
    serve(
        services, host=host or settings.api_host, port=settings.api_port if port is None else port
    )


def simulator(
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")
    ] = 4010,
    seed: Annotated[int, typer.Option(help="The seed of the generated data.")] = 7,
    fiches_per_day: Annotated[
        int, typer.Option(min=0, max=50_000, help="Sales on a full working day.")
    ] = 24,
    exact: Annotated[
        bool, typer.Option("--exact", help="Exactly this number of sales on every day.")
    ] = False,
    latency: Annotated[
        float, typer.Option(min=0, max=600, help="Seconds before every answer.")
    ] = 0.0,
    speech_key: Annotated[str, typer.Option(help="The key of speech-to-text.")] = "sim-speech-key",
    speech_per_minute: Annotated[
        int, typer.Option(min=0, help="Calls of speech-to-text per minute; 0 is no limit.")
    ] = 0,
    llm_key: Annotated[str, typer.Option(help="The key of the language model.")] = "sim-llm-key",
    llm_per_minute: Annotated[
        int, typer.Option(min=0, help="Calls of the language model per minute; 0 is no limit.")
    ] = 0,
    pusher_app_id: Annotated[
        str, typer.Option(help="The application of realtime events.")
    ] = "4010",
    pusher_key: Annotated[str, typer.Option(help="Its key.")] = "sim-pusher-key",
    pusher_secret: Annotated[str, typer.Option(help="Its secret.")] = "sim-pusher-secret",  # noqa: S107  a simulator has no secrets
    shop_token: Annotated[
        str, typer.Option(help="The access token of the shop.")
    ] = "sim-shop-token",  # noqa: S107  a simulator has no secrets
    shop_products: Annotated[int, typer.Option(min=0, help="Products that the shop sells.")] = 40,
    shop_variants: Annotated[int, typer.Option(min=1, help="Variants of each of them.")] = 3,
    inpi_username: Annotated[
        str, typer.Option(help="The account at INPI's register.")
    ] = "sim-inpi@exemple.test",
    inpi_password: Annotated[str, typer.Option(help="Its password.")] = "sim-inpi-password",  # noqa: S107  a simulator has no secrets
    entreprise_token: Annotated[
        str, typer.Option(help="The token of API Entreprise.")
    ] = "sim-entreprise-token",  # noqa: S107  a simulator has no secrets
    token: Annotated[str, typer.Option(help="The bearer token of the CRM.")] = "sim-token",  # noqa: S107  a simulator has no secrets
) -> None:
    """Simulate the CRM and the other providers: deterministic, with faults and a ledger of
    calls."""
    from automation_pipeline.simulator import SimulatorStartError, serve  # noqa: PLC0415  a web server, only needed here

    require_local_machine("simulator")
    try:
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
    except SimulatorStartError as error:
        raise PermanentError(str(error)) from None
