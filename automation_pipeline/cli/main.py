"""Entry point of the console script `automation`. Exit codes: 0 done, 1 failed, 2 wrong usage. An error
is one sentence on standard error."""

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, Exit, TyperException

from automation_pipeline.cli.groups import LazyCommand, lazy_group
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    RequestFailedError,
    TransientError,
    UpstreamError,
    sentence_of,
)
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.core.logs import configure_logs
from automation_pipeline.core.masking import visible
from automation_pipeline.core.settings import load_settings

COMMANDS = (
    LazyCommand(
        "transcribe",
        "transcription.commands",
        "transcribe",
        "Transcribe the recordings of fiches that have no transcript yet.",
    ),
    LazyCommand(
        "audit", "audits.commands.audits", "audit", "Judge the calls of fiches step by step."
    ),
    LazyCommand(
        "enrich",
        "enrichment.commands",
        "enrich",
        "Look up companies.",
    ),
    LazyCommand(
        "doctor",
        "cli.system",
        "doctor",
        "Check the database, Redis, the CRM, speech-to-text, the language model, the shop, the company registries, "
        "the mail server, Pusher, Dagster's definitions and daemon, and who may use the HTTP API.",
    ),
    LazyCommand(
        "housekeeping",
        "cli.system",
        "housekeeping",
        "Delete old rows: logs, delivered events, requests, deliveries, alerts.",
    ),
    LazyCommand("api", "cli.system", "api", "Serve the HTTP API on the database of this machine."),
    LazyCommand(
        "simulator",
        "cli.system",
        "simulator",
        "Simulate the CRM and the other providers: deterministic, with faults and a ledger of calls.",
    ),
    LazyCommand(
        "worker",
        "cli.system",
        "worker",
        "Execute steps of runs from Celery (AUTOMATION_EXECUTOR=celery), in the same environment as Dagster's "
        "processes.",
    ),
    LazyCommand("db", "cli.system", "db_app", "Create, upgrade, back up and restore the database."),
    LazyCommand(
        "schedules",
        "automation.commands.schedules",
        "app",
        "Manage schedules: what runs, and when.",
    ),
    LazyCommand(
        "runs",
        "automation.commands.runs",
        "app",
        "Show runs; cancel one, or retry its failed fiches.",
    ),
    LazyCommand("fiches", "fiches.commands", "app", "Fetch and show the CRM's fiches."),
    LazyCommand(
        "audit-configs",
        "audits.commands.configs",
        "app",
        "Manage audit configurations: the steps for judging calls.",
    ),
    LazyCommand(
        "audits",
        "audits.commands.audits",
        "app",
        "Show audits; overrule a finding, or judge it again.",
    ),
    LazyCommand(
        "pricing",
        "pricing.commands.runs",
        "app",
        "Change prices in the shop by rules: preview, apply, retry, roll back, reconcile.",
    ),
    LazyCommand(
        "org-jobs",
        "org_jobs.commands.app",
        "app",
        "Manage the jobs of organisations: schedules, queues and results.",
    ),
    LazyCommand(
        "tokens",
        "access.commands",
        "app",
        "Manage the tokens of programs that use the HTTP API.",
    ),
    LazyCommand("outbox", "cli.system", "outbox_app", "Deliver waiting events and messages."),
)
# The error codes of the HTTP API, for scripts that read --json. The first matching class applies.
ERROR_CODES: Sequence[tuple[type[AutomationError], str]] = (
    (InvalidInputError, "VALIDATION_ERROR"),
    (NotFoundError, "NOT_FOUND"),
    (ConflictError, "CONFLICT"),
    (RequestFailedError, "REQUEST_FAILED"),
    (UpstreamError, "EXTERNAL_API_ERROR"),
    (TransientError, "SERVICE_UNAVAILABLE"),
    (PermanentError, "CONFIGURATION_ERROR"),
    (AutomationError, "ERROR"),
)
# The HTTP API has longer messages for missing objects than the command line.
_API_NOT_FOUND = re.compile(r"^(.+) with ID '(.+)' not found")
MAX_HELP_WIDTH = 120
DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
# The errors of writing to a full, closed or read-only standard output.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}

app = typer.Typer(
    name="automation",
    cls=lazy_group(*COMMANDS),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api",
        metavar="URL",
        help="Use the HTTP API of another machine instead of the local database. "
        "AUTOMATION_API_URL sets it for all commands.",
    ),
]
ApiToken = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="T",
        help="The token for that API. Other users of this machine can see it while the command runs, "
        "unlike AUTOMATION_API_TOKEN.",
    ),
]


def _show_version(is_requested: bool) -> None:
    if is_requested:
        sys.stdout.write(f"automation {version('automation-pipeline')}\n")
        raise typer.Exit


ShowVersion = Annotated[
    bool,
    typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
]


@app.callback()
def _global_options(
    *,
    api_url: ApiUrl = None,
    token: ApiToken = None,
    show_version: ShowVersion = False,  # noqa: ARG001  its callback has already handled it
) -> None:
    """Automations over sales records: configure schedules, run them, and see the outcome of every
    fiche.

    Commands print tables for people, or with --json one document for programs. Exit 0: done; 1:
    failed; 2: wrong usage. `automation COMMAND --help` explains a command.
    """
    from automation_pipeline.cli.operations import use_api  # noqa: PLC0415  help needs no database

    use_api(api_url, token)


def main() -> None:
    if sys.stdout is None:
        sys.exit(_print_error("Standard output is closed", FAILED))
    _configure_logs()
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        code = _discard_output(error)
    sys.exit(code)


def _configure_logs() -> None:
    """Ignore invalid settings here; a command that needs one reports it."""
    with suppress(InvalidInputError):
        settings = load_settings()
        configure_logs(settings.log_level, settings.log_format)


def _discard_output(error: OSError) -> int:
    """Discard the buffered output, which Python would try to write again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:  # the reader has closed the pipe
        return FAILED
    return _print_error(f"Standard output cannot be written: {error.strerror}", FAILED)


def run(arguments: Sequence[str]) -> int:
    command = typer.main.get_command(app)
    as_json = "--json" in arguments
    assert isinstance(command, TyperGroup)  # noqa: S101  an app of several commands is a group
    try:
        return (
            command.main(
                args=list(arguments),
                prog_name="automation",
                standalone_mode=False,
                terminal_width=_help_width(),
            )
            or DONE
        )
    except TyperException as error:
        return _print_error(error.format_message(), error.exit_code, as_json=as_json)
    except AutomationError as error:
        return _print_known_error(error, as_json=as_json)
    except Exit as end:
        return end.exit_code
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED


def _help_width() -> int:
    """Return the terminal's width up to a readable maximum, and that maximum without a terminal."""
    columns = shutil.get_terminal_size((MAX_HELP_WIDTH, 24)).columns
    return max(50, min(columns, MAX_HELP_WIDTH) - 2)


def _print_known_error(error: AutomationError, *, as_json: bool) -> int:
    code, details = next(code for kind, code in ERROR_CODES if isinstance(error, kind)), {}
    if isinstance(error, NotStartedError):
        code, details = error.code, dict(error.details)
    if isinstance(error, InvalidInputError) and error.fields:
        details = {
            "fields": [{"field": field, "message": message} for field, message in error.fields]
        }
    exit_code = WRONG_USAGE if isinstance(error, InvalidInputError) else FAILED
    sentence = sentence_of(error)
    if isinstance(error, NotFoundError):
        sentence = _API_NOT_FOUND.sub(r"\1 \2 not found", sentence)
    return _print_error(sentence, exit_code, as_json=as_json, code=code, details=details)


def _print_error(
    sentence: str,
    exit_code: int,
    *,
    as_json: bool = False,
    code: str = "USAGE_ERROR",
    details: Mapping[str, object] | None = None,
) -> int:
    sentence = " ".join(sentence.split())
    if as_json:
        error = {"code": code, "message": sentence, "details": details or {}}
        sys.stderr.write(visible(json.dumps({"error": error}, ensure_ascii=False)) + "\n")
    elif sentence:
        sentence = visible(sentence)
        sys.stderr.write(sentence if sentence.endswith((".", "?")) else f"{sentence}.")
        sys.stderr.write("\n")
    return exit_code
