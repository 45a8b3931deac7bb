"""What the holder of an attempt may do, and that nobody else may."""

from datetime import timedelta

import pytest

from automation_pipeline.org_jobs.queries.attempts import (
    JobRunBusyError,
    LostLeaseError,
    begin_run,
    check_unclaimed,
    extend_lease,
    follow_run,
    held_run,
)
from automation_pipeline.org_jobs.queries.queue import AttemptHold, claim_run
from automation_pipeline.storage.clock import database_now
from automation_pipeline_tests.org_jobs.bench import SERVICE, Bench


def hold(bench: Bench) -> AttemptHold:
    run_id = bench.run_row(bench.job(of_type=SERVICE)).id
    with bench.database.transaction() as session:
        claimed = claim_run(session, run_id, "worker", 60.0, bench.now)
    assert claimed is not None
    return claimed.hold


def begin(bench: Bench, held: AttemptHold) -> None:
    deadline = bench.now + timedelta(minutes=15)
    with bench.database.transaction() as session:
        begin_run(session, held, deadline, bench.now, actor="worker")


def is_held(bench: Bench, held: AttemptHold) -> bool:
    with bench.database.transaction() as session:
        try:
            held_run(session, held)
        except LostLeaseError:
            return False
        return True


def test_an_attempt_begins_once_and_is_told_once(org_bench: Bench) -> None:
    held = hold(org_bench)
    begin(org_bench, held)
    org_bench.pass_minutes(1)
    begin(org_bench, held)
    run = org_bench.run_by_id(held.run_id)
    assert (run.status, org_bench.job_row(run.job_id).status) == ("running", "running")
    assert run.deadline_at - run.started_at == timedelta(minutes=15)
    assert org_bench.moves("job run", held.run_id) == [("pending", "running")]
    [event] = org_bench.events("job_run.started")
    assert event.payload["jobRunId"] == str(held.run_id)


@pytest.mark.parametrize(
    "other",
    [{"token": 2}, {"token": 0}, {"attempt_no": 2}],
    ids=["a later token", "an earlier one", "another attempt"],
)
def test_only_the_holder_of_the_attempt_has_it(org_bench: Bench, other: dict[str, int]) -> None:
    held = hold(org_bench)
    strange = AttemptHold(**(vars(held) | other))
    assert (is_held(org_bench, held), is_held(org_bench, strange)) == (True, False)
    with pytest.raises(LostLeaseError):
        begin(org_bench, strange)
    assert org_bench.run_by_id(held.run_id).status == "pending"


def test_what_was_claimed_and_not_begun_is_lost_with_its_lease(org_bench: Bench) -> None:
    held = hold(org_bench)
    org_bench.expire_hold(held.run_id)
    assert not is_held(org_bench, held)


def test_what_runs_is_its_holders_until_it_is_given_up(org_bench: Bench) -> None:
    held = hold(org_bench)
    begin(org_bench, held)
    org_bench.expire_hold(held.run_id)
    assert is_held(org_bench, held)
    with org_bench.database.transaction() as session:
        assert extend_lease(session, held, 3600.0).lease_until is not None
        follow_run(session, held_run(session, held), {"run": 1})
    run = org_bench.run_by_id(held.run_id)
    assert (run.lease_until, run.following, is_held(org_bench, held)) == (None, {"run": 1}, False)


def test_a_lease_is_extended_by_the_databases_clock(org_bench: Bench) -> None:
    held = hold(org_bench)
    before = org_bench.run_by_id(held.run_id).lease_until
    with org_bench.database.transaction() as session:
        assert extend_lease(session, held, 3600.0).lease_until is not None
    assert org_bench.run_by_id(held.run_id).lease_until - before > timedelta(minutes=50)


def test_who_comes_to_a_run_that_somebody_works_on_is_told_for_how_long(org_bench: Bench) -> None:
    run_id = org_bench.run_row(org_bench.running_job(of_type=SERVICE)).id
    with (
        org_bench.database.reading() as session,
        pytest.raises(JobRunBusyError, match=f"Job run {run_id}") as busy,
    ):
        check_unclaimed(session, run_id)
    assert busy.value.retry_after_seconds is not None
    for gone in (database_now(-1.0), None):
        org_bench.set_run(run_id, lease_until=gone)
        with org_bench.database.reading() as session:
            check_unclaimed(session, run_id)
