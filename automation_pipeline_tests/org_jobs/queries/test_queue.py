"""Claims of runs: order, limits and execution windows."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.agents import claim_jobs
from automation_pipeline.org_jobs.jobs import release_jobs
from automation_pipeline.org_jobs.models.jobs import opens_at
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.queries.queue import (
    STARTS_WITHIN,
    ClaimedRun,
    claim_for_host,
    claim_run,
    of_host,
    opening_of_run,
    postpone_closed,
)
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.org_jobs import processes as crew
from automation_pipeline_tests.org_jobs.bench import (
    CHANGING,
    ORG,
    OTHER_ORG,
    READING,
    SERVICE,
    Bench,
)
from automation_pipeline_tests.processes import at_once

LATER = timedelta(hours=1)


def claim(bench: Bench, job_id: int, owner: str = "worker") -> ClaimedRun | None:
    with bench.database.transaction() as session:
        return claim_run(session, bench.run_row(job_id).id, owner, 60.0, bench.now)


def claim_on(bench: Bench, host_id: int, most: int = 20) -> list[int]:
    """The jobs that the agent of the host claims."""
    with bench.database.transaction() as session:
        claimed = claim_for_host(
            session, bench.host_row(host_id), "agent:box", most, 180.0, bench.now
        )
    return [one.job.id for one in claimed]


def host_and_server(bench: Bench, org_id: str = ORG) -> tuple[int, int]:
    """Insert a host with a server; return both ids."""
    host_id = bench.host(org_id)
    return host_id, bench.server(org_id, host_id=host_id)


def test_claim_has_a_lease_and_a_token(org_bench: Bench) -> None:
    job_id = org_bench.job(of_type=SERVICE, payload={"url": "https://example.com"})
    claimed = claim(org_bench, job_id)
    assert claimed is not None
    run = org_bench.run_row(job_id)
    assert (claimed.hold.run_id, claimed.hold.attempt_no, claimed.hold.token) == (run.id, 1, 1)
    assert (claimed.job.type, claimed.run.lease_until) == (SERVICE.name, run.lease_until)
    assert claimed.job.payload == {"url": "https://example.com"}
    assert (run.status, run.lease_owner) == ("pending", "worker")


def test_held_run_is_not_claimed_before_its_lease_ends(
    org_bench: Bench,
) -> None:
    job_id = org_bench.job(of_type=SERVICE)
    assert claim(org_bench, job_id) is not None
    assert claim(org_bench, job_id, "another") is None
    org_bench.expire_hold(org_bench.run_row(job_id).id)
    again = claim(org_bench, job_id, "another")
    assert again is not None
    assert (again.hold.token, again.hold.attempt_no) == (2, 1)


@pytest.mark.parametrize(
    "run",
    [
        {"status": "running", "started_at": database_now(), "lease_until": database_now(-1.0)},
        {"status": "success", "finished_at": database_now()},
        {"cancel_requested_at": database_now()},
        {"performer": "agent"},
    ],
)
def test_run_that_cannot_start_is_not_claimed(org_bench: Bench, run: dict[str, object]) -> None:
    assert claim(org_bench, org_bench.job(of_type=SERVICE, run=run)) is None


def test_attempt_is_not_claimed_before_it_is_due(org_bench: Bench) -> None:
    job_id = org_bench.job(of_type=SERVICE, run={"next_attempt_at": org_bench.now + LATER})
    assert claim(org_bench, job_id) is None
    org_bench.clock.pass_time(LATER)
    assert claim(org_bench, job_id) is not None


def test_a_run_that_does_not_exist_is_not_found(org_bench: Bench) -> None:
    with (
        org_bench.database.transaction() as session,
        pytest.raises(NotFoundError, match="Job run 7 not found"),
    ):
        claim_run(session, 7, "worker", 60.0, org_bench.now)


@pytest.mark.parametrize("closed", ["suspended_at", "maintenance_until"])
def test_nothing_is_claimed_in_a_closed_organisation(org_bench: Bench, closed: str) -> None:
    host_id, server_id = host_and_server(org_bench)
    agents, service_job = (
        org_bench.job(server_instance_id=server_id),
        org_bench.job(of_type=SERVICE),
    )
    org_bench.organisation(**{closed: org_bench.now + LATER})
    assert (claim_on(org_bench, host_id), claim(org_bench, service_job)) == ([], None)
    org_bench.organisation(**{closed: None})
    assert claim_on(org_bench, host_id) == [agents]
    assert claim(org_bench, service_job) is not None


def test_nothing_is_claimed_on_a_closed_host_or_server(org_bench: Bench) -> None:
    host_id, server_id = host_and_server(org_bench)
    agents = org_bench.job(server_instance_id=server_id)
    service_job = org_bench.job(of_type=SERVICE, server_instance_id=server_id)
    org_bench.set_host(host_id, maintenance_until=org_bench.now + LATER)
    assert (claim_on(org_bench, host_id), claim(org_bench, service_job)) == ([], None)
    org_bench.set_host(host_id, maintenance_until=org_bench.now)
    org_bench.set_server(server_id, is_enabled=False)
    assert (claim_on(org_bench, host_id), claim(org_bench, service_job)) == ([], None)
    org_bench.set_server(server_id, is_enabled=True)
    assert claim_on(org_bench, host_id) == [agents]
    assert claim(org_bench, service_job) is not None


def test_limit_of_an_organisation_counts_agents_and_workers(org_bench: Bench) -> None:
    org_bench.organisation(max_running=3)
    host_id, server_id = host_and_server(org_bench)
    org_bench.running_job(of_type=SERVICE)
    readers = [org_bench.job(of_type=READING, server_instance_id=server_id) for _ in range(4)]
    assert claim_on(org_bench, host_id) == readers[:2]
    assert claim_on(org_bench, host_id) == []
    assert claim(org_bench, org_bench.job(of_type=SERVICE)) is None
    assert claim(org_bench, org_bench.job(OTHER_ORG, SERVICE)) is not None
    org_bench.expire_hold(org_bench.run_row(readers[0]).id)
    assert claim_on(org_bench, host_id) == readers[:1]


def test_requested_worker_has_reserved_capacity(org_bench: Bench) -> None:
    org_bench.organisation(max_running=2)
    host_id, server_id = host_and_server(org_bench)
    readers = [
        org_bench.job(of_type=READING, server_instance_id=server_id, priority=1) for _ in range(3)
    ]
    service_job = org_bench.job(
        of_type=SERVICE, priority=9, run={"requested_at": org_bench.now, "requests": 1}
    )
    assert claim_on(org_bench, host_id) == readers[:1]
    assert claim_on(org_bench, host_id) == []
    assert claim(org_bench, service_job) is not None


def test_reserved_capacity_expires(org_bench: Bench) -> None:
    org_bench.organisation(max_running=1)
    host_id, server_id = host_and_server(org_bench)
    org_bench.job(of_type=SERVICE, run={"requested_at": org_bench.now, "requests": 1}, priority=9)
    reader = org_bench.job(of_type=READING, server_instance_id=server_id)
    assert claim_on(org_bench, host_id) == []
    org_bench.clock.pass_time(STARTS_WITHIN)
    assert claim_on(org_bench, host_id) == [reader]


@pytest.mark.parametrize(
    ("priority", "org_id", "later", "given"),
    [
        (4, ORG, False, 1),
        (5, ORG, False, 1),
        (6, ORG, False, 2),
        (4, OTHER_ORG, False, 2),
        (4, ORG, True, 2),
    ],
)
def test_capacity_is_left_for_more_urgent_service_jobs(
    org_bench: Bench, priority: int, org_id: str, later: bool, given: int
) -> None:
    org_bench.organisation(max_running=2)
    host_id, server_id = host_and_server(org_bench)
    run = {"next_attempt_at": org_bench.now + LATER} if later else {}
    for _ in range(3):
        org_bench.job(org_id, SERVICE, priority=priority, run=run)
    readers = [
        org_bench.job(of_type=READING, server_instance_id=server_id, priority=5) for _ in range(3)
    ]
    assert claim_on(org_bench, host_id) == readers[:given]
    assert claim_on(org_bench, host_id) == []


def test_service_job_that_cannot_start_blocks_no_agent(org_bench: Bench) -> None:
    org_bench.organisation(max_running=1)
    host_id, server_id = host_and_server(org_bench)
    off = org_bench.server(is_enabled=False)
    org_bench.job(of_type=SERVICE, server_instance_id=off, priority=1)
    reader = org_bench.job(of_type=READING, server_instance_id=server_id)
    assert claim_on(org_bench, host_id) == [reader]


def test_host_runs_one_changing_and_eight_reading_jobs(org_bench: Bench) -> None:
    host_id, server_id = host_and_server(org_bench)
    changers = [org_bench.job(server_instance_id=server_id) for _ in range(2)]
    readers = [org_bench.job(of_type=READING, server_instance_id=server_id) for _ in range(9)]
    assert claim_on(org_bench, host_id) == [changers[0], *readers[:8]]
    assert claim_on(org_bench, host_id) == []
    run_id = org_bench.run_row(changers[0]).id
    org_bench.set_run(
        run_id, status="running", started_at=org_bench.now, lease_until=database_now(-1.0)
    )
    assert claim_on(org_bench, host_id) == []
    org_bench.set_run(run_id, status="success", finished_at=org_bench.now)
    assert claim_on(org_bench, host_id) == changers[1:]


def test_most_urgent_and_then_oldest_run_comes_first(org_bench: Bench) -> None:
    host_id, server_id = host_and_server(org_bench)
    jobs = [
        org_bench.job(of_type=READING, server_instance_id=server_id, priority=each)
        for each in (5, 9, 1, 5)
    ]
    given = [claim_on(org_bench, host_id, 2), claim_on(org_bench, host_id, 2)]
    assert given == [[jobs[2], jobs[0]], [jobs[3], jobs[1]]]


def test_serial_runs_start_one_at_a_time(org_bench: Bench) -> None:
    host_id, server_id = host_and_server(org_bench)
    first, second = (
        org_bench.job(of_type=READING, server_instance_id=server_id, line="a") for _ in range(2)
    )
    other_line = org_bench.job(of_type=READING, server_instance_id=server_id, line="b", priority=9)
    org_bench.set_run(
        org_bench.run_row(first).id, next_attempt_at=org_bench.now + LATER, attempt_no=2
    )
    assert claim_on(org_bench, host_id) == [other_line]
    org_bench.set_run(org_bench.run_row(first).id, status="cancelled", finished_at=org_bench.now)
    assert claim_on(org_bench, host_id) == [second]


def test_lines_of_organisations_are_separate(org_bench: Bench) -> None:
    org_bench.job(OTHER_ORG, SERVICE, line="a")
    assert claim(org_bench, org_bench.job(of_type=SERVICE, line="a")) is not None


def test_agent_claims_jobs_of_its_own_servers(org_bench: Bench) -> None:
    host_id, server_id = host_and_server(org_bench)
    other_host, other_server = host_and_server(org_bench)
    _, strange_server = host_and_server(org_bench, OTHER_ORG)
    org_bench.job(OTHER_ORG, server_instance_id=strange_server)
    org_bench.job(of_type=SERVICE, server_instance_id=server_id)
    mine = org_bench.job(server_instance_id=server_id)
    moved = org_bench.job(server_instance_id=other_server, host_id=other_host, of_type=READING)
    org_bench.set_server(other_server, host_id=host_id)
    assert claim_on(org_bench, other_host) == []
    assert claim_on(org_bench, host_id) == [mine, moved]
    assert {org_bench.run_row(job_id).host_id for job_id in (mine, moved)} == {host_id}


def test_server_of_another_organisation_gives_no_jobs(org_bench: Bench) -> None:
    host_id, _ = host_and_server(org_bench)
    strange = org_bench.server(OTHER_ORG, host_id=host_id)
    org_bench.job(OTHER_ORG, server_instance_id=strange)
    assert claim_on(org_bench, host_id) == []


def test_concurrent_claims_take_each_run_once_within_all_limits(org_bench: Bench) -> None:
    org_bench.organisation(max_running=7)
    host_id, server_id = host_and_server(org_bench)
    for _ in range(3):
        org_bench.job(of_type=CHANGING, server_instance_id=server_id)
    for _ in range(6):
        org_bench.job(of_type=READING, server_instance_id=server_id)
    service_job = [org_bench.run_row(org_bench.job(of_type=SERVICE)).id for _ in range(4)]
    url = org_bench.database.url.render_as_string(hide_password=False)
    calls = [(url, org_bench.now, host_id, service_job, seed) for seed in range(4)]
    claimed: list[Sequence[int]] = at_once(crew.claim_all, *calls)
    run_ids = [run_id for each in claimed for run_id in each]
    rows = [org_bench.run_by_id(run_id) for run_id in run_ids]
    assert len(run_ids) == len(set(run_ids)) == 7
    assert [row.lease_token for row in rows] == [1] * 7
    assert sum(row.performer == "agent" and row.is_mutation for row in rows) <= 1


HOUR = timedelta(hours=1)


def window(bench: Bench, opens_in: timedelta, zone: str = "UTC") -> dict[str, object]:
    """An execution window of 15 minutes."""
    start = bench.now + opens_in
    return {"start": f"{start:%H:%M}", "end": f"{start + HOUR / 4:%H:%M}", "timezone": zone}


def closed(bench: Bench) -> dict[str, object]:
    return window(bench, HOUR)


def opening(bench: Bench) -> datetime:
    """When the window of `closed` opens."""
    return (bench.now + HOUR).replace(second=0, microsecond=0)


def a_host_with_a_server(bench: Bench, org_id: str = ORG) -> tuple[int, int]:
    host_id = bench.host(org_id)
    return host_id, bench.server(org_id, host_id=host_id)


def claim_jobs_of(bench: Bench, host_id: int, most: int = 20, org_id: str = ORG) -> list[int]:
    claimed = claim_jobs(
        host_id, within=OrgScope(org_id), database=bench.database, clock=bench.clock, most=most
    )
    return [one.job_id for one in claimed]


def release(bench: Bench) -> list[int]:
    return list(release_jobs(database=bench.database, clock=bench.clock, limit=20))


def postpone_agent_jobs(bench: Bench, host_id: int, org_id: str = ORG) -> None:
    with bench.database.transaction() as session:
        postpone_closed(session, of_host(host_id, org_id), bench.now)


def test_agent_claims_a_run_when_its_window_opens(org_bench: Bench) -> None:
    host_id, server_id = a_host_with_a_server(org_bench)
    job_id = org_bench.job(server_instance_id=server_id, start_window=closed(org_bench))
    opens = opening(org_bench)
    assert (claim_jobs_of(org_bench, host_id), org_bench.run_row(job_id).next_attempt_at) == (
        [],
        opens,
    )
    org_bench.clock.pass_time(opens - org_bench.now)
    assert claim_jobs_of(org_bench, host_id) == [job_id]


def test_run_outside_its_window_takes_no_capacity(org_bench: Bench) -> None:
    host_id, server_id = a_host_with_a_server(org_bench)
    for _ in range(3):
        org_bench.job(server_instance_id=server_id, priority=1, start_window=closed(org_bench))
    job_id = org_bench.job(
        server_instance_id=server_id, start_window=window(org_bench, timedelta(0))
    )
    assert claim_jobs_of(org_bench, host_id, most=1) == [job_id]


def test_worker_is_requested_when_the_window_opens(org_bench: Bench) -> None:
    job_id, open_id = (
        org_bench.job(of_type=SERVICE, start_window=one) for one in (closed(org_bench), None)
    )
    assert release(org_bench) == [org_bench.run_row(open_id).id]
    run = org_bench.run_row(job_id)
    assert run.next_attempt_at == opening(org_bench)
    org_bench.clock.pass_time(run.next_attempt_at - org_bench.now)
    assert run.id in release(org_bench)


def test_worker_after_the_window_claims_nothing(org_bench: Bench) -> None:
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


def test_claiming_a_run_outside_its_window_postpones_it_to_the_opening(org_bench: Bench) -> None:
    host_id, server_id = a_host_with_a_server(org_bench)
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
def test_claimed_ended_and_cancelled_runs_are_not_postponed_to_the_window(
    org_bench: Bench, run: dict[str, object]
) -> None:
    host_id, server_id = a_host_with_a_server(org_bench)
    job_id = org_bench.job(server_instance_id=server_id, start_window=closed(org_bench), run=run)
    postpone_agent_jobs(org_bench, host_id)
    assert org_bench.run_row(job_id).next_attempt_at is None


def test_jobs_of_another_host_or_organisation_are_not_postponed(org_bench: Bench) -> None:
    host_id, server_id = a_host_with_a_server(org_bench)
    other_id, _ = a_host_with_a_server(org_bench, OTHER_ORG)
    job_id = org_bench.job(server_instance_id=server_id, start_window=closed(org_bench))
    postpone_agent_jobs(org_bench, other_id, OTHER_ORG)
    postpone_agent_jobs(org_bench, host_id, OTHER_ORG)
    postpone_agent_jobs(org_bench, org_bench.host())
    assert org_bench.run_row(job_id).next_attempt_at is None
    postpone_agent_jobs(org_bench, host_id)
    assert org_bench.run_row(job_id).next_attempt_at is not None


def test_the_number_of_queries_does_not_grow_with_runs_and_windows(org_bench: Bench) -> None:
    host_id, server_id = a_host_with_a_server(org_bench)
    org_bench.job(server_instance_id=server_id, start_window=closed(org_bench))
    with statements(org_bench.database) as of_one:
        postpone_agent_jobs(org_bench, host_id)
    for of_type, hours in ((CHANGING, 2), (CHANGING, 3), (READING, 4)):
        org_bench.job(
            of_type=of_type,
            server_instance_id=server_id,
            start_window=window(org_bench, hours * HOUR),
        )
    with statements(org_bench.database) as of_many:
        postpone_agent_jobs(org_bench, host_id)
    assert len(of_many) == len(of_one)
    times = [org_bench.run_row(job.id).next_attempt_at for job in org_bench.jobs()]
    assert times == [opening(org_bench) + hours * HOUR for hours in range(4)]


@pytest.mark.parametrize(
    "start_window", [None, {"start": "01:00", "end": "02:00", "timezone": "Atlantis/Capital"}]
)
def test_job_without_a_valid_window_starts_at_any_time(
    org_bench: Bench, start_window: dict[str, object] | None
) -> None:
    assert opens_at(start_window, org_bench.now) == org_bench.now
    job_id = org_bench.job(of_type=SERVICE, start_window=start_window)
    assert release(org_bench) == [org_bench.run_row(job_id).id]
    with org_bench.database.reading() as session:
        assert opening_of_run(session, org_bench.run_row(job_id).id, org_bench.now) == org_bench.now
