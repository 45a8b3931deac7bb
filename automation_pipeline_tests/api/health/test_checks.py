"""Checks that `cli/test_doctor.py` does not cover: Pusher, shop, language model, registries, daemon, access."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest

from automation_pipeline.access.tokens import create_token, revoke_token
from automation_pipeline.api import health as checks
from automation_pipeline.api.health import Finding
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import DAEMON, record_heartbeat
from automation_pipeline_tests.api.health.conftest import MakeServices
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.simulator_control import (
    ENTREPRISE_TOKEN,
    INPI_PASSWORD,
    INPI_USERNAME,
    LLM_KEY,
    PUBLIC_BODY,
    PUSHER_APP_ID,
    PUSHER_KEY,
    PUSHER_SECRET,
    SHOP_TOKEN,
)

SECRET = "a-secret-that-is-long-enough-for-hs256"
PUSHER = {"PUSHER_APP_ID": PUSHER_APP_ID, "PUSHER_KEY": PUSHER_KEY, "PUSHER_CLUSTER": "eu"}


@pytest.fixture(autouse=True)
def _definitions_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks._definitions, "check", lambda: None)


def found(services: Services) -> Mapping[str, Finding]:
    return {one.name: one for one in checks.examine(services)}


@pytest.mark.parametrize(
    ("variables", "state", "expected"),
    [
        ({}, "not set", "optional, not configured"),
        ({"PUSHER_SECRET": PUSHER_SECRET}, "ok", "answers and accepts the credentials"),
        ({"PUSHER_SECRET": "wr0ng"}, "failed", ""),
        ({"PUSHER_SECRET": PUSHER_SECRET, "PUSHER_KEY": ""}, "failed", "PUSHER_KEY not set"),
        ({"PUSHER_SECRET": "wr0ng", "PUSHER_DRY_RUN": True}, "ok", "written to the log instead"),
    ],
)
def test_the_pusher_check_verifies_the_credentials(
    make_services: MakeServices,
    simulator_url: str,
    variables: Mapping[str, object],
    state: str,
    expected: str,
) -> None:
    given = {**PUSHER, "PUSHER_BASE_URL": simulator_url, **variables} if variables else {}
    pusher = found(make_services(**{name: value for name, value in given.items() if value != ""}))[
        "pusher"
    ]
    assert (pusher.state, expected in pusher.detail, "wr0ng" in pusher.detail) == (
        state,
        True,
        False,
    )
    assert pusher.required is bool(variables)


@pytest.mark.parametrize(
    ("variables", "state", "expected"),
    [
        ({}, "not set", "optional, not configured"),
        ({"SHOP_API_TOKEN": SHOP_TOKEN}, "ok", " answers and accepts the token"),
        ({"SHOP_API_TOKEN": "wr0ng"}, "failed", "(check SHOP_API_TOKEN)"),
        ({"SHOP_API_TOKEN": ""}, "failed", "SHOP_API_TOKEN is not set"),
        (
            {"SHOP_API_TOKEN": SHOP_TOKEN, "SHOP_API_BASE_URL": "http://127.0.0.1:9"},
            "failed",
            "could not be reached",
        ),
    ],
)
def test_the_shop_check_verifies_the_token(
    make_services: MakeServices,
    simulator_url: str,
    variables: Mapping[str, object],
    state: str,
    expected: str,
) -> None:
    given = {"SHOP_API_BASE_URL": simulator_url, **variables} if variables else {}
    shop = found(make_services(**{name: value for name, value in given.items() if value != ""}))[
        "shop"
    ]
    assert (shop.state, expected in shop.detail, "wr0ng" in shop.detail) == (state, True, False)
    assert shop.required is bool(variables)


@pytest.mark.parametrize(
    ("variables", "state", "expected"),
    [
        ({}, "not set", "optional, not configured"),
        ({"LLM_API_KEY": LLM_KEY}, "ok", " answers and has the model gpt"),
        ({"LLM_API_KEY": "wr0ng"}, "failed", "check LLM_API_KEY"),
    ],
)
def test_the_language_model_check_verifies_the_key(
    make_services: MakeServices,
    simulator_url: str,
    variables: Mapping[str, object],
    state: str,
    expected: str,
) -> None:
    given = {"LLM_BASE_URL": f"{simulator_url}/v1", **variables} if variables else {}
    model = found(make_services(**given))["model"]
    assert (model.state, expected in model.detail, "wr0ng" in model.detail) == (state, True, False)
    assert model.required is bool(variables)


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("exit 0", None),
        ("echo First >&2; echo The last line >&2; exit 1", "The last line"),
        ("exit 1", "no output"),
        ("exec sleep 60", "Dagster took longer than 0.5 s"),
    ],
)
def test_definitions_that_fail_to_load_are_reported_on_one_line_and_cached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, fault: str | None
) -> None:
    counted = f"echo once >> {tmp_path / 'looks'}; {command}"
    monkeypatch.setattr(checks, "_COMMAND", ["sh", "-c", counted])
    monkeypatch.setattr(checks, "SECONDS", 0.5 if "sleep" in command else 60.0)
    monkeypatch.setattr(checks, "_definitions", checks._Definitions())
    for _ in range(2):
        with pytest.raises(PermanentError) if fault else nullcontext() as raised:
            checks._definitions.check()
        assert raised is None or str(raised.value) == f"the definitions do not load: {fault}"
    assert (tmp_path / "looks").read_text(encoding="utf-8") == "once\n"


REGISTRIES: Mapping[str, Mapping[str, object]] = {
    "search": {"RECHERCHE_ENTREPRISES_BASE_URL": "/registries/search"},
    "inpi": {
        "INPI_RNE_BASE_URL": "/registries/inpi",
        "INPI_RNE_USERNAME": INPI_USERNAME,
        "INPI_RNE_PASSWORD": INPI_PASSWORD,
    },
    "rcs": {
        "API_ENTREPRISE_BASE_URL": "/registries/entreprise",
        "API_ENTREPRISE_TOKEN": ENTREPRISE_TOKEN,
        "API_ENTREPRISE_RECIPIENT": PUBLIC_BODY,
    },
}


@pytest.mark.parametrize(
    ("name", "changed", "state", "expected"),
    [
        ("search", None, "not set", "optional, not configured"),
        (
            "search",
            {},
            "ok",
            "API_RECHERCHE_ENTREPRISES answers and accepts the credentials; 6 calls in 1 s",
        ),
        ("search", {"RECHERCHE_ENTREPRISES_BASE_URL": "/nothing"}, "failed", "status 404"),
        ("inpi", None, "not set", "optional, not configured"),
        (
            "inpi",
            {},
            "ok",
            "INPI_RNE answers and accepts the credentials; 170 calls in 60 s, at most 9500 a day",
        ),
        (
            "inpi",
            {"INPI_RNE_PASSWORD": "wr0ng"},
            "failed",
            "check INPI_RNE_USERNAME and INPI_RNE_PASSWORD",
        ),
        (
            "inpi",
            {"INPI_RNE_USERNAME": ""},
            "failed",
            "INPI_RNE_USERNAME is not set, though INPI_RNE_BASE_URL is",
        ),
        ("rcs", None, "not set", "optional, not configured"),
        ("rcs", {}, "ok", "API_ENTREPRISE_RCS answers and accepts the credentials; 4 calls in 1 s"),
        ("rcs", {"API_ENTREPRISE_TOKEN": "wr0ng"}, "failed", "check API_ENTREPRISE_TOKEN"),
        ("rcs", {"API_ENTREPRISE_RECIPIENT": ""}, "failed", "API_ENTREPRISE_RECIPIENT is not set"),
    ],
)
def test_each_registry_check_verifies_the_access(
    make_services: MakeServices,
    simulator_url: str,
    name: str,
    changed: Mapping[str, object] | None,
    state: str,
    expected: str,
) -> None:
    given = {} if changed is None else {**REGISTRIES[name], **changed}
    message = {
        key: f"{simulator_url}{value}" if str(value).startswith("/") else value
        for key, value in given.items()
    }
    settings = {key: value for key, value in message.items() if value != ""}
    # Long enough for any machine.
    registry = found(make_services(ENRICHMENT_TIMEOUT_SECONDS=15, **settings))[name]
    assert (registry.state, expected in registry.detail, "wr0ng" in registry.detail) == (
        state,
        True,
        False,
    )
    assert registry.required is bool(given)


def test_the_access_check_counts_tokens(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    assert found(make_services())["access"].state == "not set"
    request = {"name": "robot", "permissions": ["automation"], "scope": "ALL"}
    kept, gone = (create_token(request, database=database, clock=clock) for _ in range(2))
    revoke_token(gone.token.id, database=database, clock=clock)
    access = found(
        make_services(
            API_AUTH_TOKENS="one-token-of-sixteen,another-token-of-sixteen",
            JWT_ACCESS_SECRET=SECRET,
        )
    )["access"]
    assert access.detail == "2 token(s) in the environment, 1 stored; users' tokens are accepted"
    assert found(make_services())["access"].detail.endswith(
        "1 stored; users' tokens are not accepted"
    )
    assert kept.secret not in access.detail


def test_the_daemon_check_succeeds_after_a_heartbeat(
    make_services: MakeServices, database: Database
) -> None:
    silent = found(make_services())["daemon"]
    assert (silent.state, silent.is_problem) == ("failed", False)
    with database.transaction() as session:
        record_heartbeat(session, DAEMON)
    assert found(make_services())["daemon"].state == "ok"


def test_the_database_check_reports_the_revision(
    make_services: MakeServices, database: Database
) -> None:
    result = found(make_services())["database"]
    assert result.state == "ok"
    assert result.detail.startswith(f"{database.dialect} at 0")


def test_an_unconfigured_system_has_a_finding_per_check(
    make_services: MakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "unused_settings", lambda _variables: {})
    findings = checks.examine(make_services())
    required = {one.name for one in findings if one.required}
    assert [(one.name, one.state.value) for one in findings] == [
        ("database", "ok"),
        ("redis", "not set"),
        ("crm", "failed"),
        *((name, "not set") for name in ("speech", "model", "shop", "search", "inpi", "rcs")),
        *((name, "not set") for name in ("smtp", "pusher")),
        ("dagster", "ok"),
        ("daemon", "failed"),
        ("access", "not set"),
    ]
    assert required == {"database", "crm", "dagster"}
    assert findings[11].detail == "definitions load; steps run in_process"

    def fail() -> None:
        raise PermanentError("the definitions do not load: x")

    monkeypatch.setattr(checks._definitions, "check", fail)
    failed = found(make_services())["dagster"]
    assert (failed.state, failed.detail) == ("failed", "the definitions do not load: x")
    monkeypatch.setattr(checks, "unused_settings", lambda _variables: {"A": "no use", "B": "old"})
    assert checks.examine(make_services())[-1] == Finding(
        "settings",
        checks.State.FAILED,
        "A is not used here: no use; B is not used here: old",
        required=False,
    )


def test_the_result_of_loading_the_definitions_is_kept_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = iter(["old", None])
    now = 1000.0
    monkeypatch.setattr(checks, "_definitions_fault", lambda: next(faults))
    monkeypatch.setattr(checks.time, "monotonic", lambda: now)
    definitions = checks._Definitions()
    for seconds in (0.0, 60.0):
        now = 1000.0 + seconds
        with pytest.raises(PermanentError, match="do not load: old"):
            definitions.check()
    now = 1060.1
    definitions.check()


class FakeClient:
    """A client of an external system whose check takes a while, and that can be closed."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.closed = seconds, 0

    async def check(self) -> None:
        await asyncio.sleep(self.seconds)

    async def aclose(self) -> None:
        self.closed += 1


def test_a_client_is_closed_after_its_check_even_if_it_takes_too_long(
    make_services: MakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "ANSWER_SECONDS", 0.01)
    for seconds, state, detail in ((0.0, "ok", "answers"), (60.0, "failed", "within 0.01 s")):
        mail = FakeClient(seconds)
        monkeypatch.setattr(Services, "mail", mail)
        smtp = found(make_services(SMTP_HOST="127.0.0.1", SMTP_FROM="a@example.com"))["smtp"]
        assert (smtp.state.value, detail in smtp.detail, mail.closed) == (state, True, 1)
