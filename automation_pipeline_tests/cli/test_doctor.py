"""Tests of `automation doctor`: one line per check, and exit code 1 if a required one fails."""

from collections.abc import Iterator

import pytest

from automation_pipeline.api import health as checks
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal
from automation_pipeline_tests.clients.smtp.mail_server import FakeMailServer, running_mail_server
from automation_pipeline_tests.simulator_control import TOKEN, add_faults

CHECKS = [
    "database",
    "redis",
    "crm",
    "speech",
    "model",
    "shop",
    "search",
    "inpi",
    "rcs",
    "smtp",
    "pusher",
    "dagster",
]
CHECKS += ["daemon", "access"]
# Only the database and the CRM are configured; a stopped daemon does not fail the checks.
HEALTHY = ["ok", "not set", "ok", *["not set"] * 8, "ok", "failed", "not set"]


@pytest.fixture
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    # Loading the definitions takes seconds and a process; only one test below does it.
    if "definitions" not in request.node.name:
        monkeypatch.setattr(checks, "_dagster", lambda _: "definitions load; steps run in_process")
    # Results are cached for a minute, also across the environments of different tests.
    monkeypatch.setattr(checks, "_definitions", checks._Definitions())
    with open_terminal(request) as terminal:
        yield terminal


@pytest.fixture
def healthy(terminal: Terminal, simulator_url: str) -> Terminal:
    terminal.export(FICHE_API_BASE_URL=simulator_url, FICHE_API_AUTH_TOKEN=TOKEN)
    return terminal


def findings(terminal: Terminal, code: int = 0) -> dict[str, tuple[str, str]]:
    checks = terminal.json("doctor", code=code)["checks"]
    return {check["name"]: (check["state"], check["detail"]) for check in checks}


def test_a_missing_database_is_one_failure_and_skips_dependent_checks(
    terminal: Terminal,
) -> None:
    terminal.export(DATABASE_URL="sqlite:////nowhere/automation.db")
    found = findings(terminal, code=1)
    assert [name for name, (state, _) in found.items() if state == "failed"] == ["database", "crm"]
    assert [name for name, (state, _) in found.items() if state == "skipped"] == [
        "daemon",
        "access",
    ]
    assert found["daemon"][1] == "not checked: it needs the database"
    assert "skipped  daemon    not checked" in terminal.run("doctor").out


def test_a_healthy_system_prints_one_line_per_check_and_exits_with_0(
    healthy: Terminal, simulator_url: str
) -> None:
    ended = healthy.run("doctor")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert [line.split()[0] for line in lines] == [state.split()[0] for state in HEALTHY]
    assert lines[0].startswith("ok       database  sqlite at 0")
    assert lines[1] == "not set  redis     optional, not configured"
    assert lines[2] == f"ok       crm       {simulator_url} answers and accepts the token"


def test_checks_can_be_printed_as_json(healthy: Terminal) -> None:
    found = findings(healthy)
    assert dict(zip(found, HEALTHY, strict=True)) == {
        name: state for name, (state, _) in found.items()
    }
    assert list(found) == CHECKS


def test_an_invalid_crm_token_fails_and_is_not_shown(healthy: Terminal) -> None:
    healthy.export(FICHE_API_AUTH_TOKEN="wr0ng")
    state, detail = findings(healthy, code=1)["crm"]
    assert state == "failed"
    assert "refused the token" in detail
    assert "wr0ng" not in healthy.run("doctor").out


def test_a_missing_crm_url_fails(terminal: Terminal) -> None:
    assert findings(terminal, code=1)["crm"] == (
        "failed",
        "FICHE_API_BASE_URL is not set: it is the address of the CRM gateway.",
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"status": 503}, "answered 503"),
        ({"drop": True}, "could not be reached"),
        ({"body": "not_json", "status": 200}, "is not JSON"),
    ],
)
def test_a_crm_error_is_reported(
    healthy: Terminal, simulator_url: str, rule: dict[str, object], expected: str
) -> None:
    add_faults(simulator_url, {"route": "crm.details", **rule})
    state, detail = findings(healthy, code=1)["crm"]
    assert state == "failed"
    assert expected in detail


def test_an_unreachable_crm_fails(terminal: Terminal) -> None:
    terminal.export(FICHE_API_BASE_URL="http://127.0.0.1:9")
    ended = terminal.run("doctor")
    assert (ended.code, ended.err) == (1, "")
    assert "failed   crm       The CRM could not be reached" in ended.out


def test_an_unreachable_database_is_one_failure_and_other_checks_run(
    healthy: Terminal,
) -> None:
    healthy.export(DATABASE_URL="postgresql://anna:s3cret@127.0.0.1:9/work")
    found = findings(healthy, code=1)
    failed = {name for name, (state, _) in found.items() if state == "failed"}
    assert failed == {"database"}
    assert found["crm"][0] == "ok"
    assert found["database"][1].startswith("The database does not answer: ")
    assert "s3cret" not in str(found)


def test_a_database_without_tables_fails_and_names_the_remedy(healthy: Terminal) -> None:
    (healthy.folder / "empty.db").touch()
    healthy.export(DATABASE_URL="sqlite:///empty.db")
    state, detail = findings(healthy, code=1)["database"]
    assert (state, detail.split(": ")[1]) == ("failed", "run `automation db upgrade`")


@pytest.mark.services
def test_a_configured_redis_is_checked(healthy: Terminal, redis_url: str) -> None:
    healthy.export(REDIS_URL=redis_url)
    assert findings(healthy)["redis"] == (
        "ok",
        "rate limits and semaphores are kept here, or in the database while it is away",
    )


def test_a_configured_redis_that_does_not_answer_fails(healthy: Terminal) -> None:
    healthy.export(REDIS_URL="redis://:s3cret@127.0.0.1:9/0")
    found = findings(healthy, code=1)
    assert found["redis"][0] == "failed"
    assert "s3cret" not in str(found)


def test_the_dagster_definitions_are_loaded(healthy: Terminal) -> None:
    assert findings(healthy)["dagster"] == ("ok", "definitions load; steps run in_process")


@pytest.mark.parametrize(
    ("key", "code", "state", "expected"),
    [
        ("sim-speech-key", 0, "ok", "answers and accepts the key"),
        ("wr0ng", 1, "failed", "check ELEVENLABS_API_KEY"),
    ],
)
def test_the_speech_to_text_key_is_checked(
    healthy: Terminal, simulator_url: str, key: str, code: int, state: str, expected: str
) -> None:
    healthy.export(ELEVENLABS_BASE_URL=simulator_url, ELEVENLABS_API_KEY=key)
    found = findings(healthy, code)["speech"]
    assert found[0] == state
    assert expected in found[1]
    assert "wr0ng" not in found[1]


@pytest.mark.parametrize(
    ("password", "code", "state", "expected"),
    [
        ("right", 0, "ok", "answers and accepts the login"),
        ("wr0ng", 1, "failed", "check SMTP_USER and SMTP_PASS"),
    ],
)
def test_the_mail_server_login_is_checked(
    healthy: Terminal, password: str, code: int, state: str, expected: str
) -> None:
    with running_mail_server(FakeMailServer(login=("robot@example.com", "right"))) as box:
        healthy.export(
            SMTP_HOST="127.0.0.1", SMTP_PORT=str(box.port), SMTP_USER="robot@example.com"
        )
        healthy.export(SMTP_PASS=password)
        found = findings(healthy, code)["smtp"]
    assert found[0] == state
    assert expected in found[1]
    assert "wr0ng" not in found[1]
    assert box.mails == []


def test_a_mail_server_without_a_sender_address_fails(healthy: Terminal) -> None:
    healthy.export(SMTP_HOST="127.0.0.1")
    assert findings(healthy, code=1)["smtp"] == (
        "failed",
        "SMTP_HOST is set, but neither SMTP_FROM nor SMTP_USER: no e-mail has a sender",
    )
