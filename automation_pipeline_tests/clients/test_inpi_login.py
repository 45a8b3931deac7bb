"""The INPI login that processes share: one process logs in and the others use its token."""

import asyncio
import logging
import os
import socket
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from automation_pipeline.bootstrap import Services
from automation_pipeline.clients import inpi as subject
from automation_pipeline.clients.inpi import LOGIN_CLAIM, Account, InpiRegister
from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.models import SharedLogin, SourceApi, SourceError, SourceRecord
from automation_pipeline.enrichment.sources import DatabaseLoginTokens
from automation_pipeline.storage.claims import DatabaseClaims
from automation_pipeline.storage.database import Database
from automation_pipeline_tests import simulator_control
from automation_pipeline_tests.clients.mock_answers import with_client
from automation_pipeline_tests.clients.registry_clients import SIREN, fetch, formality, inpi
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.registries import UnlimitedRate

LONG = 60.0  # long enough for a slow machine
PROCESSES = 5


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "WAIT_FOR_OTHERS_SECONDS", LONG)
    monkeypatch.setattr(subject, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(subject, "REFUSAL_BLOCKS_OTHERS_SECONDS", 3600.0)


@pytest.fixture
def shared(database: Database, clock: FakeClock) -> SharedLogin:
    return SharedLogin(
        DatabaseLoginTokens(database, clock, SourceApi.INPI), DatabaseClaims(database)
    )


def register(url: str, shared: SharedLogin, clock: FakeClock, password: str) -> InpiRegister:
    """A register as a separate process has it, with its own state."""
    account = Account(simulator_control.INPI_USERNAME, password)
    options: Any = {
        "now": clock.now,
        "limiter": UnlimitedRate(),
        "timeout_seconds": LONG,
        "shared": replace(shared),
    }
    return InpiRegister(f"{url}/registries/inpi", account, **options)


async def fetch_all(registers: list[InpiRegister]) -> list[SourceRecord | SourceError]:
    return await asyncio.gather(*(one.fetch(SIREN, None) for one in registers))


def fetch_concurrently(registers: list[InpiRegister]) -> list[SourceRecord | SourceError]:
    async def ask() -> list[SourceRecord | SourceError]:
        try:
            return await fetch_all(registers)
        finally:
            for one in registers:
                await one.aclose()

    return asyncio.run(ask())


def logins(url: str) -> int:
    """Login attempts, successful or not."""
    return simulator_control.registry_totals(url)["sources"]["inpi.login"]["calls"]


def test_processes_share_one_login(
    simulator_url: str, shared: SharedLogin, clock: FakeClock
) -> None:
    for _ in range(2):  # the second round uses the stored token
        registers = [
            register(simulator_url, shared, clock, simulator_control.INPI_PASSWORD)
            for _ in range(PROCESSES)
        ]
        assert all(isinstance(result, SourceRecord) for result in fetch_concurrently(registers))
    assert logins(simulator_url) == 1


def test_processes_renew_an_expired_token_once(
    simulator_url: str, shared: SharedLogin, clock: FakeClock
) -> None:
    registers = [
        register(simulator_url, shared, clock, simulator_control.INPI_PASSWORD)
        for _ in range(PROCESSES)
    ]
    fetch_concurrently(registers)
    simulator_control.expire_inpi_tokens(simulator_url)
    assert all(isinstance(result, SourceRecord) for result in fetch_concurrently(registers))
    assert logins(simulator_url) == 2


def test_a_token_past_its_lifetime_is_not_used(
    simulator_url: str, shared: SharedLogin, clock: FakeClock
) -> None:
    fetch_concurrently([register(simulator_url, shared, clock, simulator_control.INPI_PASSWORD)])
    clock.advance(subject.TOKEN_LIFETIME)
    fetch_concurrently([register(simulator_url, shared, clock, simulator_control.INPI_PASSWORD)])
    totals = simulator_control.registry_totals(simulator_url)["sources"]
    assert (totals["inpi.login"]["calls"], totals["inpi"]["statuses"]) == (2, {"200": 4})


def test_a_wrong_password_is_tried_once_across_processes(
    simulator_url: str, shared: SharedLogin, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "WAIT_FOR_OTHERS_SECONDS", 0.0)
    registers = [register(simulator_url, shared, clock, "wr0ng") for _ in range(PROCESSES)]
    for _ in range(2):
        errors = [
            result for result in fetch_concurrently(registers) if isinstance(result, SourceError)
        ]
        assert Counter((one.error_code, one.is_local) for one in errors) == {
            ("AUTH_ERROR", False): 1,
            ("RATE_LIMIT", True): PROCESSES - 1,
        }
    assert logins(simulator_url) == 1
    holder = shared.claims.holder(LOGIN_CLAIM)
    assert holder is not None
    assert holder.seconds_left > subject.REFUSAL_BLOCKS_OTHERS_SECONDS - 600


def test_a_token_of_a_faster_process_is_used(shared: SharedLogin) -> None:
    class Tokens:
        """Has a token from the second look on."""

        looks = 0

        def current(self) -> str | None:
            self.looks += 1
            return None if self.looks == 1 else "jwt.s3cret"

        def keep(self, token: str, until: datetime) -> None:
            raise AssertionError(token)

        def forget(self, token: str) -> None:
            raise AssertionError(token)

    login = FailingLogin()
    assert isinstance(fetch(inpi(login, shared=replace(shared, tokens=Tokens()))), SourceRecord)
    assert login.calls == {"GET": 1}
    assert shared.claims.holder(LOGIN_CLAIM) is None


def test_a_call_without_the_login_claim_is_not_sent(
    shared: SharedLogin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "WAIT_FOR_OTHERS_SECONDS", 0.05)
    monkeypatch.setattr(subject, "POLL_SECONDS", 0.1)
    assert shared.claims.take(LOGIN_CLAIM, "another process", 3600.0)
    attempts: list[str] = []
    take = shared.claims.take

    def counted(key: str, owner: str, ttl_seconds: float) -> Claim | None:
        attempts.append(owner)
        return take(key, owner, ttl_seconds)

    monkeypatch.setattr(shared.claims, "take", counted)
    calls: list[str] = []
    error = fetch(inpi(lambda request: calls.append(request.method), shared=shared))
    assert (error.error_code, error.http_status, error.retryable, error.is_local) == (
        "RATE_LIMIT",
        None,
        True,
        True,
    )
    assert error.message == (
        "The login at INPI's register has to wait: another process is logging in, or was refused just now."
    )
    assert set(attempts) == {f"{socket.gethostname()}:{os.getpid()}"}
    assert len(attempts) <= 2
    assert calls == []


class FailingLogin:
    """INPI with a login that first fails with these statuses."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.calls = list(statuses), Counter[str]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.calls[request.method] += 1
        if request.method == "GET":
            return httpx.Response(200, json=formality())
        status = self.statuses.pop(0) if self.statuses else 200
        return httpx.Response(status, json={"token": "jwt.s3cret"} if status == 200 else {})


@pytest.mark.parametrize("status", [403, 429, 503])
def test_a_failed_login_other_than_401_releases_the_login_claim(
    shared: SharedLogin, status: int
) -> None:
    failing_login = FailingLogin(status)
    assert fetch(inpi(failing_login, shared=shared)).http_status == status
    assert isinstance(fetch(inpi(failing_login, shared=shared)), SourceRecord)


def test_a_cancelled_login_releases_the_login_claim(shared: SharedLogin) -> None:
    async def give_up(one: InpiRegister) -> None:
        asking = asyncio.create_task(one.fetch(SIREN, None))
        await login_started.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    async def never(_request: httpx.Request) -> httpx.Response:
        login_started.set()
        await asyncio.Event().wait()
        raise AssertionError

    login_started = asyncio.Event()
    with_client(inpi(never, shared=shared), give_up)
    assert shared.claims.holder(LOGIN_CLAIM) is None
    assert isinstance(fetch(inpi(FailingLogin(), shared=shared)), SourceRecord)


def test_the_token_appears_in_no_log_or_repr(
    shared: SharedLogin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    one = inpi(FailingLogin(), shared=shared)
    result = fetch(one)
    assert shared.tokens.current() == "jwt.s3cret"
    assert "s3cret" not in caplog.text
    assert "s3cret" not in repr((one, vars(one), shared, result))


def services(url: str, database_url: str, clock: FakeClock, password: str) -> Services:
    account = {
        "inpi_rne_username": simulator_control.INPI_USERNAME,
        "inpi_rne_password": SecretStr(password),
    }
    addresses = {
        "database_url": database_url,
        "inpi_rne_base_url": f"{url}/registries/inpi",
        "redis_url": None,
    }
    timeouts = {"enrichment_timeout_seconds": LONG}
    return Services(Settings().model_copy(update={**account, **addresses, **timeouts}), clock)


def test_the_services_of_every_process_share_the_login(
    simulator_url: str, database_url: str, clock: FakeClock
) -> None:
    for _ in range(2):
        one = services(simulator_url, database_url, clock, simulator_control.INPI_PASSWORD)
        result = fetch(one.registries.sources[SourceApi.INPI].registry)
        one.database.dispose()
        assert isinstance(result, SourceRecord)
    assert logins(simulator_url) == 1


def test_the_check_tests_the_password_despite_a_shared_token(
    simulator_url: str, shared: SharedLogin, database_url: str, clock: FakeClock
) -> None:
    fetch_concurrently([register(simulator_url, shared, clock, simulator_control.INPI_PASSWORD)])
    one = services(simulator_url, database_url, clock, "wr0ng")
    separate = one.registry(SourceApi.INPI)
    assert separate is not None
    with pytest.raises(PermanentError, match="INPI_RNE_PASSWORD"):
        with_client(separate.registry, lambda registry: registry.check())
    one.database.dispose()
    assert shared.tokens.current() is not None
