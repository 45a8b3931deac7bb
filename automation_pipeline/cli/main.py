"""Entry of the console script `automation`: exit 0 done, 1 failed, 2 wrong usage; a complaint is
one sentence."""

import errno
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, Exit, TyperException

from automation_pipeline.access import commands as tokens
from automation_pipeline.audits.commands import audits
from automation_pipeline.audits.commands import audits as audit
from automation_pipeline.audits.commands import configs as audit_configs
from automation_pipeline.automation.commands import runs, schedules
from automation_pipeline.cli import system as api
from automation_pipeline.cli import system as db
from automation_pipeline.cli import system as doctor
from automation_pipeline.cli import system as housekeeping
from automation_pipeline.cli import system as outbox
from automation_pipeline.cli import system as simulator
from automation_pipeline.cli import system as worker
from automation_pipeline.cli.client.base import choose
from automation_pipeline.cli.output import one_line
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OutdatedError,
    PermanentError,
    RequestFailedError,
    TransientError,
    UpstreamError,
    sentence_of,
)
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.core.logs import configure_logs
from automation_pipeline.core.settings import load_settings
from automation_pipeline.enrichment import commands as enrich
from automation_pipeline.fiches import commands as fiches
from automation_pipeline.org_jobs.commands.app import app as org_jobs
from automation_pipeline.pricing.commands.app import app as pricing
from automation_pipeline.transcription import commands as transcribe

# The codes of the HTTP API, for a script that reads --json. The first class that fits decides.
ERROR_CODES: Sequence[tuple[type[AutomationError], str]] = (
    (InvalidInputError, "VALIDATION_ERROR"),
    (NotFoundError, "NOT_FOUND"),
    (OutdatedError, "PRECONDITION_FAILED"),
    (ConflictError, "CONFLICT"),
    (RequestFailedError, "REQUEST_FAILED"),
    (UpstreamError, "EXTERNAL_API_ERROR"),
    (TransientError, "SERVICE_UNAVAILABLE"),
    (PermanentError, "CONFIGURATION_ERROR"),
    (AutomationError, "ERROR"),
)
DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
# What writing to a full, broken or unwritable standard output answers.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}

app = typer.Typer(
    name="automation",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(db.db_app, name="db")
app.add_typer(schedules.app, name="schedules")
app.add_typer(runs.app, name="runs")
app.add_typer(fiches.app, name="fiches")
app.add_typer(audit_configs.app, name="audit-configs")
app.add_typer(audits.app, name="audits")
app.add_typer(pricing, name="pricing")
app.add_typer(org_jobs, name="org-jobs")
app.add_typer(tokens.app, name="tokens")
app.add_typer(outbox.outbox_app, name="outbox")
app.command(name="transcribe")(transcribe.transcribe)
app.command(name="audit")(audit.audit)
app.command(name="enrich")(enrich.enrich)
app.command(name="doctor")(doctor.doctor)
app.command(name="housekeeping")(housekeeping.housekeeping)
app.command(name="api")(api.api)
app.command(name="simulator")(simulator.simulator)
app.command(name="worker")(worker.worker)

ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api",
        metavar="URL",
        help="Work with the HTTP API of another machine instead of the database here. AUTOMATION_API_URL says it for "
        "all commands.",
    ),
]
ApiToken = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="T",
        help="The token for that API. Other users of this machine can see it while the command runs: "
        "AUTOMATION_API_TOKEN is not seen.",
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"automation {version('automation-pipeline')}\n")
        raise typer.Exit


ShowVersion = Annotated[
    bool,
    typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
]


@app.callback()
def _everywhere(
    *, api_url: ApiUrl = None, token: ApiToken = None, show_version: ShowVersion = False
) -> None:
    """Automations over sales records: configure schedules, run them, see what became of every
    fiche.

    Commands print tables for people, or with --json one document for programs. Exit 0: done; 1:
    failed; 2: wrong usage. `automation COMMAND --help` tells more.
    """
    del show_version  # its callback has shown it
    choose(api_url, token)


def main() -> None:
    if sys.stdout is None:
        sys.exit(_complain("Standard output is closed", FAILED))
    _configure_logs()
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        code = _output_is_lost(error)
    sys.exit(code)


def _configure_logs() -> None:
    """A setting that cannot be read is complained about by the commands that need any."""
    with suppress(InvalidInputError):
        settings = load_settings()
        configure_logs(settings.log_level, settings.log_format)


def _output_is_lost(error: OSError) -> int:
    """Throws away what is still unwritten, which Python would try to write once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:  # whoever read has read enough
        return FAILED
    return _complain(f"Standard output cannot be written: {error.strerror}", FAILED)


def run(arguments: Sequence[str]) -> int:
    command = typer.main.get_command(app)
    as_json = "--json" in arguments
    assert isinstance(command, TyperGroup)  # noqa: S101  an app of several commands is a group
    try:
        return (
            command.main(args=list(arguments), prog_name="automation", standalone_mode=False)
            or DONE
        )
    except TyperException as error:
        return _complain(error.format_message(), error.exit_code, as_json=as_json)
    except AutomationError as error:
        return _complain_of(error, as_json=as_json)
    except Exit as end:
        return end.exit_code
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED


def _complain_of(error: AutomationError, *, as_json: bool) -> int:
    code, details = next(code for kind, code in ERROR_CODES if isinstance(error, kind)), {}
    if isinstance(error, NotStartedError):
        code, details = error.code, dict(error.details)
    if isinstance(error, InvalidInputError) and error.fields:
        details = {
            "fields": [{"field": field, "message": message} for field, message in error.fields]
        }
    exit_code = WRONG_USAGE if isinstance(error, InvalidInputError) else FAILED
    return _complain(sentence_of(error), exit_code, as_json=as_json, code=code, details=details)


def _complain(
    sentence: str,
    exit_code: int,
    *,
    as_json: bool = False,
    code: str = "USAGE_ERROR",
    details: Mapping[str, object] | None = None,
) -> int:
    sentence = one_line(sentence)
    if as_json:
        error = {"code": code, "message": sentence, "details": details or {}}
        sys.stderr.write(json.dumps({"error": error}, ensure_ascii=False) + "\n")
    elif sentence:
        sys.stderr.write(sentence if sentence.endswith((".", "?")) else f"{sentence}.")
        sys.stderr.write("\n")
    return exit_code
