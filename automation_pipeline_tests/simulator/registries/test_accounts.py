"""INPI's account, with a fake clock."""

import base64
import json

import pytest

from automation_pipeline.simulator.registries.state import Account, LoginResult
from automation_pipeline_tests.simulator.registries.client import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def account(clock: FakeClock) -> Account:
    return Account("user", "right", clock, lambda: 1_800_000_000.5)


def test_five_wrong_passwords_in_a_row_block_the_account(account: Account) -> None:
    tried = [account.log_in("user", password) for password in ("no", "no", "no", "no", "right")]
    assert tried == [LoginResult.WRONG] * 4 + [LoginResult.OPEN]
    tried = [
        account.log_in("user", password) for password in ("no", "no", "no", "no", "é", "right")
    ]
    assert tried == [LoginResult.WRONG] * 5 + [LoginResult.BLOCKED]
    account.reset()
    assert account.log_in("user", "right") is LoginResult.OPEN


def test_an_unknown_account_blocks_no_other(account: Account) -> None:
    assert [account.log_in("stranger", "right") for _ in range(9)] == [LoginResult.WRONG] * 9
    assert account.log_in("user", "right") is LoginResult.OPEN


def test_a_token_expires_after_an_hour_and_contains_that_time(
    account: Account, clock: FakeClock
) -> None:
    token = account.new_token()
    claims = token.split(".")[1]
    document = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert (document["iat"], document["exp"]) == (1_800_000_000, 1_800_003_600)
    clock.now += 3599
    assert account.accepts(token)
    clock.now += 1
    assert not account.accepts(token)
    assert not account.accepts("")


def test_tokens_can_be_revoked(account: Account) -> None:
    first, second = account.new_token(), account.new_token()
    assert first != second
    assert account.expire() == 2
    assert not account.accepts(first)
    assert account.accepts(account.new_token())
