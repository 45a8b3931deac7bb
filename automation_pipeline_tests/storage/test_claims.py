"""Claims on keys: single, in bulk, between processes, and with a heartbeat."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from sqlalchemy import delete, event, update

from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.errors import TransientError
from automation_pipeline.storage import claims as claims_module
from automation_pipeline.storage.claims import (
    DatabaseClaims,
    DatabasePermits,
    LeaseRow,
    LostClaimError,
    extend_each,
    take,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes
from automation_pipeline_tests.storage.processes import opened
from automation_pipeline_tests.waiting import (
    advance_time,
    pause,
    run_with_fake_time,
    wait_until_async,
)

SHORT, LONG = 0.15, 30.0


@pytest.fixture
def claims(database: Database) -> DatabaseClaims:
    return DatabaseClaims(database)


def taken(
    claims: DatabaseClaims, key: str = "work", owner: str = "anna", ttl_seconds: float = LONG
) -> Claim:
    claim = claims.take(key, owner, ttl_seconds)
    assert claim is not None
    return claim


def expire(database: Database, *keys: str) -> None:
    """Expires the claims."""
    with database.transaction() as session:
        session.execute(
            update(LeaseRow).where(LeaseRow.key.in_(keys)).values(expires_at=database_now())
        )


def test_a_held_key_is_refused_to_every_owner_including_its_holder(claims: DatabaseClaims) -> None:
    first = taken(claims)
    assert (first.key, first.owner) == ("work", "anna")
    assert [claims.take("work", owner, LONG) for owner in ("anna", "berta")] == [None, None]
    holder = claims.holder("work")
    assert holder is not None
    assert (holder.owner, holder.token) == ("anna", first.token)
    assert LONG - 20 < holder.seconds_left <= LONG
    assert taken(claims, "other", "berta")


def test_a_claim_expires_after_its_ttl_and_not_before(claims: DatabaseClaims) -> None:
    started, following = time.monotonic(), None
    first = taken(claims, ttl_seconds=SHORT)
    while following is None:
        following = claims.take("work", "berta", LONG)
        pause(0.01)
    assert time.monotonic() - started > SHORT - 0.01  # some clocks count in milliseconds
    assert following.token > first.token


def test_only_the_current_holder_can_extend_and_release(
    claims: DatabaseClaims, database: Database
) -> None:
    stale = taken(claims)
    assert claims.extend(stale, 2 * LONG)
    expire(database, "work")
    assert (claims.extend(stale, LONG), claims.release(stale), claims.holder("work")) == (
        False,
        False,
        None,
    )
    current = taken(claims, owner="berta")
    assert (claims.extend(stale, LONG), claims.release(stale)) == (False, False)
    assert [claims.release(current) for _ in range(2)] == [True, False]
    assert not claims.release(Claim("nothing", "anna", 1))


def test_tokens_increase_under_rapid_changes_and_after_deleted_rows(
    claims: DatabaseClaims, database: Database
) -> None:
    tokens: list[int] = []
    for number in range(20):
        claim = taken(claims)
        tokens.append(claim.token)
        assert claims.release(claim)
        if number == 10:
            pause(0.05)  # tokens follow the clock, so wait longer than twenty claims take
            with database.transaction() as session:
                session.execute(delete(LeaseRow))
    assert tokens == sorted(set(tokens))


def test_many_claims_are_taken_extended_and_released_in_one_statement_each(
    database: Database,
) -> None:
    seen: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    with database.transaction() as session:
        held = take(session, ["b"], "berta", LONG)
    with database.transaction() as session:
        seen.clear()
        mine = take(session, ["a", "b", "c", "c"], "anna", LONG)
        assert [claim.key for claim in mine] == ["a", "c"]
        others = Claim("b", "anna", 1)
        assert extend_each(session, [(one, LONG) for one in [*mine, others]]) == [True, True, False]
        assert extend_each(session, [(mine[0], 0.0)]) == [True]
        assert extend_each(session, [(one, LONG) for one in mine]) == [False, True]
        assert extend_each(session, [(held[0], LONG)]) == [True]
        assert len([one for one in seen if "leases" in one]) == 5


def test_acquiring_any_permit_takes_one_statement(database: Database) -> None:
    seen: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    permits = DatabasePermits(database)

    async def acquire(times: int) -> list[object]:
        return [await permits.acquire("model", 3, "anna", LONG) for _ in range(times)]

    first = asyncio.run(acquire(3))
    seen.clear()
    assert None not in first
    assert asyncio.run(acquire(2)) == [None, None]
    assert len([one for one in seen if "leases" in one]) == 2
    expire(database, "model:1")
    assert [permit is None for permit in asyncio.run(acquire(2))] == [False, True]


def hold_repeatedly(url: str, owner: str, wins: int, folder: Path) -> int:
    """Takes the claim `wins` times and appends its tokens to a shared file. Returns the number of
    times that another process held the claim as well."""
    overlaps, inside = 0, folder / "inside"
    with opened(url) as database:
        claims = DatabaseClaims(database)
        while wins:
            claim = claims.take("work", owner, LONG)
            if claim is None:
                pause(0.002)
                continue
            wins -= 1
            try:
                os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                with (folder / "book").open("a") as book:
                    book.write(f"{claim.token}\n")
                inside.unlink()
            except FileExistsError:
                overlaps += 1
            assert claims.release(claim)
    return overlaps


def take_slots(url: str, owner: str, rounds: int) -> int:
    """How many of four slots this process got while all processes competed."""
    with opened(url) as database:
        claims, got = DatabaseClaims(database), 0
        for _ in range(rounds):
            got += (
                asyncio.run(claims.take_any([f"place:{place}" for place in range(4)], owner, LONG))
                is not None
            )
        return got


def test_racing_processes_never_hold_the_same_key(database_url: str, tmp_path: Path) -> None:
    wins = 10
    overlaps = run_in_processes(
        hold_repeatedly,
        *((database_url, f"process {n}", wins, tmp_path) for n in range(PROCESS_COUNT)),
    )
    tokens = [int(line) for line in (tmp_path / "book").read_text().split()]
    assert sum(overlaps) == 0
    assert tokens == sorted(set(tokens))
    assert len(tokens) == PROCESS_COUNT * wins


def test_racing_processes_take_no_more_slots_than_available(database_url: str) -> None:
    assert (
        sum(
            run_in_processes(
                take_slots, *((database_url, f"process {n}", 8) for n in range(PROCESS_COUNT))
            )
        )
        == 4
    )


def test_a_held_claim_is_extended_past_its_ttl_and_released_at_the_end(
    claims: DatabaseClaims, database: Database
) -> None:
    async def hold() -> None:
        async with claims.hold("work", "anna", LONG) as claim:
            for _ in range(5):
                # Time passes for the database as well.
                assert await claims.extend_soon(claim, LONG / 4)
                advance_time(LONG / 4)
                await wait_until_async(lambda: seconds_left(claims) > LONG / 2)

    run_with_fake_time(hold())
    assert claims.holder("work") is None


def seconds_left(claims: DatabaseClaims) -> float:
    holder = claims.holder("work")
    return holder.seconds_left if holder else 0.0


@pytest.mark.parametrize("away", [False, True], ids=["passed on", "database away"])
def test_a_body_is_cancelled_when_its_claim_is_lost(
    claims: DatabaseClaims, database: Database, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    async def no_answer(*_given: object) -> bool:
        raise TransientError("The database does not answer.")

    finished: list[bool] = []

    async def outlive() -> None:
        async with claims.hold("work", "anna", 0.4 if away else LONG):
            if away:
                monkeypatch.setattr(claims, "extend_soon", no_answer)
            else:
                await asyncio.to_thread(expire, database, "work")
                advance_time(LONG / 4)
            await asyncio.sleep(60)
            finished.append(True)

    with pytest.raises(LostClaimError, match="The claim on work was lost"):
        run_with_fake_time(outlive())
    assert finished == []


def test_a_waiting_process_takes_over_the_claim_of_a_dead_holder(
    claims: DatabaseClaims, database: Database
) -> None:
    dead = taken(claims, owner="dead")

    async def wait() -> Claim:
        waiting = asyncio.create_task(_hold_once(claims))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(expire, database, "work")
        return await waiting

    assert asyncio.run(wait()).token > dead.token


async def _hold_once(claims: DatabaseClaims) -> Claim:
    async with claims.hold("work", "anna", LONG, poll_seconds=0.01) as claim:
        return claim


def test_an_error_in_the_body_propagates_and_releases_the_claim(
    claims: DatabaseClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(error: type[Exception]) -> None:
        async with claims.hold("work", "anna", LONG):
            raise error

    for error in (LookupError, TimeoutError):
        with pytest.raises(error):
            asyncio.run(fail(error))
        assert claims.holder("work") is None


class ClaimsMachine(RuleBasedStateMachine):
    """Owners, keys and expiry: a key has at most one holder, and only the holder can extend and
    release it."""

    database: Database
    keys = st.sampled_from("abc")

    @initialize()
    def begin(self) -> None:
        self.holders: dict[str, Claim] = {}
        self.stale: list[Claim] = []
        self.highest: dict[str, int] = {}
        with self.database.transaction() as session:
            session.execute(delete(LeaseRow))

    @rule(
        wanted=st.sets(keys, min_size=1),
        owner=st.sampled_from(["anna", "berta"]),
        any_=st.booleans(),
    )
    def take(self, wanted: set[str], owner: str, any_: bool) -> None:
        free = {key for key in wanted if key not in self.holders}
        with self.database.transaction() as session:
            got = take(session, wanted, owner, LONG, 1 if any_ else None)
        assert {claim.key for claim in got} <= free
        assert len(got) == (min(1, len(free)) if any_ else len(free))
        for claim in got:
            assert claim.token > self.highest.get(claim.key, 0)
            self.holders[claim.key], self.highest[claim.key] = claim, claim.token

    @rule(key=keys)
    def end(self, key: str) -> None:
        expire(self.database, key)
        self._forget(key)

    @rule(keys=st.sets(keys), is_release=st.booleans())
    def extend_or_release(self, keys: set[str], is_release: bool) -> None:
        asked = [
            *(self.holders[key] for key in sorted(keys) if key in self.holders),
            *self.stale[-3:],
        ]
        with self.database.transaction() as session:
            seconds = 0.0 if is_release else LONG
            found = extend_each(session, [(claim, seconds) for claim in asked])
            kept = [claim for claim, is_kept in zip(asked, found, strict=True) if is_kept]
        assert kept == [claim for claim in asked if self.holders.get(claim.key) == claim]
        for claim in kept if is_release else []:
            self._forget(claim.key)

    def _forget(self, key: str) -> None:
        if key in self.holders:
            self.stale.append(self.holders.pop(key))


def test_any_sequence_of_operations_leaves_at_most_one_holder_per_key(database: Database) -> None:
    machine = type("OnThisDatabase", (ClaimsMachine,), {"database": database})
    machine.TestCase.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
    machine.TestCase().runTest()


def test_the_poll_interval_grows_up_to_one_second(
    claims: DatabaseClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 6:
            claims.release(held)

    held = taken(claims, owner="another")
    monkeypatch.setattr(claims_module.asyncio, "sleep", sleep)
    monkeypatch.setattr(claims_module, "uniform", lambda _low, _high: 1.0)
    asyncio.run(claims._wait("work", "anna", LONG, 0.1))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
