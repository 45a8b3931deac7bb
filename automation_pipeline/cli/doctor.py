"""`automation doctor`: is everything there that the system needs? One line each."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import typer
from rich.text import Text

from automation_pipeline import bootstrap
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.output import AsJson, print_json, screen
from automation_pipeline.core.errors import AutomationError, PermanentError, sentence_of

# Wanted as soon as there is a key, or an address other than this: some servers need no key.
OPENAI = "https://api.openai.com/v1"

COLOURS = {"ok": "green", "not set": "dim", "failed": "red"}


@dataclass(frozen=True)
class Finding:
    name: str
    state: str
    detail: str


def doctor(*, as_json: AsJson = False) -> None:
    """Check the database, Redis, the CRM, speech-to-text, the language model, the mail server and Dagster. Exit 1 if
    a required one fails."""
    services = bootstrap.services()
    checks: dict[str, Callable[[Services], str | None]] = {
        "database": _database,
        "redis": _redis,
        "crm": _crm,
        "speech": _speech,
        "model": _model,
        "smtp": _smtp,
        "dagster": _dagster,
    }
    findings = [_examine(name, check, services) for name, check in checks.items()]
    if as_json:
        print_json({"checks": [vars(finding) for finding in findings]})
    else:
        for finding in findings:
            screen.print(Text(f"{finding.state:<8}", COLOURS[finding.state]) + f" {finding.name:<9} {finding.detail}")
    if any(finding.state == "failed" for finding in findings):
        raise typer.Exit(1)


def _examine(name: str, check: Callable[[Services], str | None], services: Services) -> Finding:
    try:
        detail = check(services)
    except AutomationError as error:
        return Finding(name, "failed", sentence_of(error))
    return Finding(name, "not set", "optional, not configured") if detail is None else Finding(name, "ok", detail)


def _database(services: Services) -> str:
    from automation_pipeline import migrations  # noqa: PLC0415  Alembic only where it is used

    revision, newest = migrations.current(services.database), migrations.revisions()[-1]
    if revision != newest:
        raise PermanentError(f"at {revision or 'no revision'}, not {newest}: run `automation db upgrade`")
    return f"{services.database.dialect} at {revision}"


def _redis(services: Services) -> str | None:
    if services.settings.redis_url is None:
        return None
    services.leases.holder("doctor")
    return "leases and rate limits are kept here"


def _crm(services: Services) -> str:
    services.run(services.crm.check())
    return f"{services.settings.fiche_api_base_url} answers and accepts the token"


def _speech(services: Services) -> str | None:
    if services.settings.elevenlabs_api_key is None:
        return None
    services.run(services.speech.speech.check())
    return f"{services.settings.elevenlabs_base_url} answers and accepts the key"


def _model(services: Services) -> str | None:
    settings = services.settings
    if settings.llm_api_key is None and settings.llm_base_url == OPENAI:
        return None
    services.run(services.judge.model.check())
    return f"{settings.llm_base_url} answers and knows {settings.llm_model}"


def _smtp(services: Services) -> str | None:
    if services.settings.smtp_host is None:
        return None
    if services.mail is None:
        raise PermanentError("SMTP_HOST is set, but neither SMTP_FROM nor SMTP_USER: no e-mail has a sender")
    services.run(services.mail.check())
    return f"{services.settings.smtp_host}:{services.settings.smtp_port} answers and lets us in"


def _dagster(services: Services) -> str:
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "automation_pipeline.definitions"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own interpreter
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["no output"])[-1]
        raise PermanentError(f"the definitions do not load: {last}")
    return f"definitions load; steps run {services.settings.automation_executor}"
