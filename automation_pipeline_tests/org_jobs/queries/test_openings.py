"""Outside of its window nothing begins: what is due waits for the next opening, by whatever way it
would begin."""

from datetime import datetime, timedelta

import pytest

from automation_pipeline.org_jobs.agents import claim_jobs
from automation_pipeline.org_jobs.jobs import release_jobs
from automation_pipeline.org_jobs.models.jobs import opens_at
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.queries.queue import (
    claim_for_host,
    claim_run,
    of_host,
    opening_of_run,
    postpone_closed,
)
from automation_pipeline.storage.clock import database_now
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.org_jobs.bench import (
    CHANGING,
    ORG,
    OTHER_ORG,
    READING,
    SERVICE,
    Bench,
)

HOUR = timedelta(hours=1)


def window(bench: Bench, opens_in: timedelta, zone: str = "UTC") -> dict[str, object]:
    """Of a quarter of an hour."""
    start = bench.now + opens_in
    return {"start": f"{start:%H:%M}", "end": f"{start + HOUR / 4:%H:%M}", "timezone": zone}


def closed(bench: Bench) -> dict[str, object]:
    return window(bench, HOUR)


def opening(bench: Bench) -> datetime:
    """Of the closed one."""
    return (bench.now + HOUR).replace(second=0, microsecond=0)


def place(bench: Bench, org_id: str = ORG) -> tuple[int, int]:
    host_id = bench.host(org_id)
    return host_id, bench.server(org_id, host_id=host_id)


def claim(bench: Bench, host_id: int, most: int = 20, org_id: str = ORG) -> list[int]:
    claimed = claim_jobs(
        host_id, within=OrgScope(org_id), database=bench.database, clock=bench.clock, most=most
    )
    return [one.job_id for one in claimed]


def release(bench: Bench) -> list[int]:
    return list(release_jobs(database=bench.database, clock=bench.clock, limit=20))


def put_off(bench: Bench, host_id: int, org_id: str = ORG) -> None:
    with bench.database.transaction() as session:
        postpone_closed(session, of_host(host_id, org_id), bench.now)


def test_an_agent_is_given_what_is_outside_of_its_window_when_it_opens(org_bench: Bench) -> None:
    host_id, server_id = place(org_bench)
    job_id = org_bench.job(server_instance_id=server_id, start_window=closed(org_bench))
    opens = opening(org_bench)
    assert (claim(org_bench, host_id), org_bench.run_row(job_id).next_attempt_at) == ([], opens)
    org_bench.clock.pass_time(opens - org_bench.now)
    assert claim(org_bench, host_id) == [job_id]


def test_what_is_closed_takes_nobody_s_place(org_bench: Bench) -> None:
    host_id, server_id = place(org_bench)
    for _ in range(3):
        org_bench.job(server_instance_id=server_id, priority=1, start_window=closed(org_bench))
    job_id = org_bench.job(
        server_instance_id=server_id, start_window=window(org_bench, timedelta(0))
    )
    assert claim(org_bench, host_id, most=1) == [job_id]


def test_a_worker_is_asked_for_when_the_window_opens(org_bench: Bench) -> None:
    job_id, open_id = (
        org_bench.job(of_type=SERVICE, start_window=one) for one in (closed(org_bench), None)
    )
    assert release(org_bench) == [org_bench.run_row(open_id).id]
    run = org_bench.run_row(job_id)
    assert run.next_attempt_at == opening(org_bench)
    org_bench.clock.pass_time(run.next_attempt_at - org_bench.now)
    assert run.id in release(org_bench)


def test_a_worker_that_comes_too_late_begins_nothing(org_bench: Bench) -> None:
    job_id = org_bench.job(of_type=SERVICE, start_window=window(org_bench, timedelta(0)))
    [run_id] = release(org_bench)
    opens = org_bench.now.replace(second=0, microsecond=0) + timedelta(days=1)
    org_bench.clock.pass_time(HOUR)
    with org_bench.database.transaction() as session:
        assert claim_run(session, run_id, "worker", 60.0, org_bench.now) is None
    run = org_bench.run_row(job_id)
    assert (run.status, run.next_attempt_at, run.requested_at, run.lease_until) == (
        "pending",
        opens,
        None,
        None,
    )


def test_whoever_chooses_a_closed_one_finds_it_out(org_bench: Bench) -> None:
    host_id, server_id = place(org_bench)
    job_id = org_bench.job(server_instance_id=server_id, start_window=closed(org_bench))
    with org_bench.database.transaction() as session:
        assert (
            claim_for_host(
                session, org_bench.host_row(host_id), "agent:box", 5, 180.0, org_bench.now
            )
            == []
        )
    run = org_bench.run_row(job_id)
    assert (run.next_attempt_at, run.lease_owner) == (opening(org_bench), None)


@pytest.mark.parametrize(
    "run",
    [
        {"status": "running", "started_at": database_now(), "lease_until": database_now(60.0)},
        {"status": "success", "finished_at": database_now()},
        {"lease_until": database_now(60.0)},
        {"cancel_requested_at": database_now()},
        {"performer": "service"},
    ],
)
def test_what_somebody_has_or_nobody_would_begin_is_left_as_it_is(
    org_bench: Bench, run: dict[str, object]
) -> None:
    host_id, server_id = place(org_bench)
    job_id = org_bench.job(server_instance_id=server_id, start_window=closed(org_bench), run=run)
    put_off(org_bench, host_id)
    assert org_bench.run_row(job_id).next_attempt_at is None


def test_jobs_of_another_host_or_organisation_are_left_as_they_are(org_bench: Bench) -> None:
    host_id, server_id = place(org_bench)
    other_id, _ = place(org_bench, OTHER_ORG)
    job_id = org_bench.job(server_instance_id=server_id, start_window=closed(org_bench))
    put_off(org_bench, other_id, OTHER_ORG)
    put_off(org_bench, host_id, OTHER_ORG)
    put_off(org_bench, org_bench.host())
    assert org_bench.run_row(job_id).next_attempt_at is None
    put_off(org_bench, host_id)
    assert org_bench.run_row(job_id).next_attempt_at is not None


def test_the_number_of_queries_does_not_grow_with_runs_and_windows(org_bench: Bench) -> None:
    host_id, server_id = place(org_bench)
    org_bench.job(server_instance_id=server_id, start_window=closed(org_bench))
    with statements(org_bench.database) as of_one:
        put_off(org_bench, host_id)
    for of_type, hours in ((CHANGING, 2), (CHANGING, 3), (READING, 4)):
        org_bench.job(
            of_type=of_type,
            server_instance_id=server_id,
            start_window=window(org_bench, hours * HOUR),
        )
    with statements(org_bench.database) as of_many:
        put_off(org_bench, host_id)
    assert len(of_many) == len(of_one)
    times = [org_bench.run_row(job.id).next_attempt_at for job in org_bench.jobs()]
    assert times == [opening(org_bench) + hours * HOUR for hours in range(4)]


@pytest.mark.parametrize(
    "start_window", [None, {"start": "01:00", "end": "02:00", "timezone": "Atlantis/Capital"}]
)
def test_without_a_window_that_can_be_read_a_job_begins_whenever(
    org_bench: Bench, start_window: dict[str, object] | None
) -> None:
    assert opens_at(start_window, org_bench.now) == org_bench.now
    job_id = org_bench.job(of_type=SERVICE, start_window=start_window)
    assert release(org_bench) == [org_bench.run_row(job_id).id]
    with org_bench.database.reading() as session:
        assert opening_of_run(session, org_bench.run_row(job_id).id, org_bench.now) == org_bench.now
