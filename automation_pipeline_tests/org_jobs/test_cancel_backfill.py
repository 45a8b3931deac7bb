"""The end of a backfill: what waits is cancelled, what is at work is asked to stop, all else
stays."""

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.org_jobs.fires import backfill_schedule, cancel_backfill
from automation_pipeline.org_jobs.models.jobs import attempt_cancelled
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.attempts import end_attempts
from automation_pipeline.org_jobs.queries.fires import get_backfill
from automation_pipeline.org_jobs.rules.due import Backfill
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench

PERIOD = {"from": "2026-05-01T00:00:00Z", "until": "2026-05-03T12:00:00Z"}


def made(bench: Bench, org_id: str = ORG, **given: object) -> tuple[int, list[int]]:
    """The backfill and its jobs."""
    schedule = bench.schedule(org_id)
    world = {
        "within": ALL_ORGANISATIONS,
        "database": bench.database,
        "clock": bench.clock,
        "actor": ACTOR,
    }
    backfill = backfill_schedule(schedule, PERIOD | given, **world)
    return backfill.id or 0, [job.id for job in bench.jobs(schedule)]


def cancel(
    bench: Bench, batch_id: int, within: OrgScope = ALL_ORGANISATIONS, reason: str | None = None
) -> Backfill:
    world = {"within": within, "database": bench.database, "clock": bench.clock}
    return cancel_backfill(batch_id, **world, actor="user:2", reason=reason)


def test_what_waits_is_cancelled_and_what_runs_is_asked(org_bench: Bench) -> None:
    batch_id, (one, two, three) = made(org_bench)
    running = org_bench.run_row(one).id
    org_bench.set_run(running, status="running", started_at=org_bench.now)
    other = org_bench.job()
    over = cancel(org_bench, batch_id, OrgScope(ORG), "Wrong period.")
    assert (over.status, over.running, over.cancelled, over.finished_at) == (
        "cancelled",
        1,
        2,
        org_bench.now,
    )
    asked = org_bench.run_by_id(running)
    assert (asked.status, asked.cancel_requested_at, asked.cancelled_by) == (
        "running",
        org_bench.now,
        "user:2",
    )
    assert asked.cancel_reason == "Its backfill was cancelled. Wrong period."
    assert {org_bench.run_row(job).status for job in (two, three)} == {"cancelled"}
    assert org_bench.run_row(other).status == "pending"
    [entry] = org_bench.audit(str(batch_id))
    assert (entry.action, entry.entity, entry.reason) == ("cancel", "backfill", "Wrong period.")


def test_it_stays_cancelled_when_its_last_job_ends(org_bench: Bench) -> None:
    batch_id, (one, *_) = made(org_bench)
    running = org_bench.run_row(one).id
    org_bench.set_run(running, status="running", started_at=org_bench.now)
    first = cancel(org_bench, batch_id)
    with org_bench.database.transaction() as session:
        end_attempts(session, {running: attempt_cancelled("Stopped.")}, "test", org_bench.now)
    assert cancel(org_bench, batch_id) == first.model_copy(update={"running": 0, "cancelled": 3})
    assert len(org_bench.audit(str(batch_id))) == 1


def test_one_that_is_over_is_not_cancelled(org_bench: Bench) -> None:
    batch_id, jobs = made(org_bench, until="2026-05-01T00:00:00Z")
    assert jobs == []
    with pytest.raises(ConflictError, match=f"Backfill {batch_id} is over"):
        cancel(org_bench, batch_id)


def test_that_of_another_is_not_there(org_bench: Bench) -> None:
    batch_id, (job, *_) = made(org_bench, OTHER_ORG)
    for missing in (batch_id, batch_id + 99):
        with pytest.raises(NotFoundError, match=f"Backfill {missing} not found"):
            cancel(org_bench, missing, OrgScope(ORG))
        with org_bench.database.reading() as session, pytest.raises(NotFoundError):
            get_backfill(session, missing, OrgScope(ORG))
    assert org_bench.run_row(job).status == "pending"
