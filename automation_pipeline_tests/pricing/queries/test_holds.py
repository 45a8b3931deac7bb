"""Who works on a run: one at a time, and who comes later has the higher token."""

import pytest
from sqlalchemy import update

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.pricing.models.runs import LostRunClaimError
from automation_pipeline.pricing.queries.runs import (
    RunClaim,
    claim_run,
    claimed_run,
    extend_claim,
    release_claim,
    seconds_until_free,
)
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.pricing.calling import take
from automation_pipeline_tests.pricing.kept import a_rule, a_run, run_row
from automation_pipeline_tests.processes import CREW, at_once


@pytest.fixture
def run_id(database: Database, clock: Clock) -> int:
    return a_run(database, a_rule(database, clock), "QUEUED", clock.now())


def took(database: Database, run_id: int, owner: str = "one") -> RunClaim | None:
    with database.transaction() as session:
        return claim_run(session, run_id, owner, 60.0)


def expire(database: Database, run_id: int) -> None:
    with database.transaction() as session:
        session.execute(
            update(RuleRunRow).where(RuleRunRow.id == run_id).values(lease_until=database_now(-1.0))
        )


def test_of_several_processes_that_take_a_run_at_once_one_gets_it(
    database: Database, database_url: str, run_id: int
) -> None:
    tokens = at_once(take, *[(database_url, run_id, str(number)) for number in range(CREW)])
    assert sorted(tokens) == [0] * (CREW - 1) + [1]
    assert run_row(database, run_id).lease_owner == str(tokens.index(1))


def test_tokens_rise_with_every_holder(database: Database, run_id: int) -> None:
    first = took(database, run_id)
    assert took(database, run_id, "two") is None
    expire(database, run_id)
    second = took(database, run_id, "two")
    with database.transaction() as session:
        release_claim(session, RunClaim(run_id, 2))
    third = took(database, run_id, "three")
    assert [hold and hold.token for hold in (first, second, third)] == [1, 2, 3]


def test_a_hold_that_is_kept_up_lasts(database: Database, run_id: int) -> None:
    hold = took(database, run_id)
    assert hold is not None
    with database.transaction() as session:
        extend_claim(session, hold, 3600.0)
    with database.reading() as session:
        assert 3500 < seconds_until_free(session, run_id) < 3601
    with database.transaction() as session:
        assert claimed_run(session, hold).id == run_id


@pytest.mark.parametrize("taken_by_another", [True, False])
def test_who_has_lost_a_run_can_neither_keep_it_nor_give_it_back(
    database: Database, run_id: int, taken_by_another: bool
) -> None:
    lost = took(database, run_id)
    assert lost is not None
    expire(database, run_id)
    if taken_by_another:
        took(database, run_id, "two")
    before = run_row(database, run_id)
    for use in (
        lambda session: extend_claim(session, lost, 60.0),
        lambda session: claimed_run(session, lost),
    ):
        with (
            pytest.raises(
                LostRunClaimError, match=f"Rule run {run_id} is worked on by another process"
            ),
            database.transaction() as session,
        ):
            use(session)
    after = run_row(database, run_id)
    assert (after.lease_owner, after.lease_until) == (before.lease_owner, before.lease_until)
    if taken_by_another:
        with database.transaction() as session:
            release_claim(session, lost)
        assert run_row(database, run_id).lease_owner == "two"


def test_a_run_that_is_not_there_is_not_found(database: Database) -> None:
    assert took(database, 99) is None
    with (
        pytest.raises(NotFoundError, match="Rule run 99 not found"),
        database.transaction() as session,
    ):
        claimed_run(session, RunClaim(99, 1))
    with database.reading() as session:
        assert seconds_until_free(session, 99) == 0.0
