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
    ClaimedRun,
    claim_for_host,
    claim_run,
    of_host,
    opening_of_run,
    postpone_closed,
)
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.org_jobs import processes
from automation_pipeline_tests.org_jobs.data import (
    CHANGING,
    ORG,
    OTHER_ORG,
    READING,
    SERVICE,
    OrgJobsData,
)
from automation_pipeline_tests.processes import run_in_processes

HOUR = timedelta(hours=1)


def claim(data: OrgJobsData, job_id: int, owner: str = "worker") -> ClaimedRun | None:
    with data.database.transaction() as session:
        return claim_run(session, data.run_row(job_id).id, owner, 60.0, data.now)


def claim_on(data: OrgJobsData, host_id: int, most: int = 20) -> list[int]:
    """Claim runs for the agent of the host; return their jobs."""
    with data.database.transaction() as session:
        claimed = claim_for_host(
            session, data.host_row(host_id), "agent:box", most, 180.0, data.now
        )
    return [one.job.id for one in claimed]


def host_and_server(data: OrgJobsData, org_id: str = ORG) -> tuple[int, int]:
    """Insert a host with a server; return both ids."""
    host_id = data.host(org_id)
    return host_id, data.server(org_id, host_id=host_id)


def test_claim_has_a_lease_and_a_token(data: OrgJobsData) -> None:
    job_id = data.job(of_type=SERVICE, payload={"url": "https://example.com"})
    claimed = claim(data, job_id)
    assert claimed is not None
    run = data.run_row(job_id)
    assert (claimed.hold.run_id, claimed.hold.attempt_no, claimed.hold.token) == (run.id, 1, 1)
    assert (claimed.job.type, claimed.run.lease_until) == (SERVICE.name, run.lease_until)
    assert claimed.job.payload == {"url": "https://example.com"}
    assert (run.status, run.lease_owner) == ("pending", "worker")


def test_held_run_is_not_claimed_before_its_lease_ends(
    data: OrgJobsData,
) -> None:
    job_id = data.job(of_type=SERVICE)
    assert claim(data, job_id) is not None
    assert claim(data, job_id, "another") is None
    data.expire_lease(data.run_row(job_id).id)
    again = claim(data, job_id, "another")
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
def test_run_that_cannot_start_is_not_claimed(data: OrgJobsData, run: dict[str, object]) -> None:
    assert claim(data, data.job(of_type=SERVICE, run=run)) is None


def test_attempt_is_not_claimed_before_it_is_due(data: OrgJobsData) -> None:
    job_id = data.job(of_type=SERVICE, run={"next_attempt_at": data.now + HOUR})
    assert claim(data, job_id) is None
    data.clock.advance(HOUR)
    assert claim(data, job_id) is not None


def test_a_run_that_does_not_exist_is_not_found(data: OrgJobsData) -> None:
    with (
        data.database.transaction() as session,
        pytest.raises(NotFoundError, match="Job run 7 not found"),
    ):
        claim_run(session, 7, "worker", 60.0, data.now)


@pytest.mark.parametrize("closed", ["suspended_at", "maintenance_until"])
def test_nothing_is_claimed_in_a_closed_organisation(data: OrgJobsData, closed: str) -> None:
    host_id, server_id = host_and_server(data)
    agents, service_job = (
        data.job(server_instance_id=server_id),
        data.job(of_type=SERVICE),
    )
    data.organisation(**{closed: data.now + HOUR})
    assert (claim_on(data, host_id), claim(data, service_job)) == ([], None)
    data.organisation(**{closed: None})
    assert claim_on(data, host_id) == [agents]
    assert claim(data, service_job) is not None


def test_nothing_is_claimed_on_a_closed_host_or_server(data: OrgJobsData) -> None:
    host_id, server_id = host_and_server(data)
    agents = data.job(server_instance_id=server_id)
    service_job = data.job(of_type=SERVICE, server_instance_id=server_id)
    data.set_host(host_id, maintenance_until=data.now + HOUR)
    assert (claim_on(data, host_id), claim(data, service_job)) == ([], None)
    data.set_host(host_id, maintenance_until=data.now)
    data.set_server(server_id, is_enabled=False)
    assert (claim_on(data, host_id), claim(data, service_job)) == ([], None)
    data.set_server(server_id, is_enabled=True)
    assert claim_on(data, host_id) == [agents]
    assert claim(data, service_job) is not None


def test_limit_of_an_organisation_counts_agents_and_workers(data: OrgJobsData) -> None:
    data.organisation(max_running=3)
    host_id, server_id = host_and_server(data)
    data.running_job(of_type=SERVICE)
    readers = [data.job(of_type=READING, server_instance_id=server_id) for _ in range(4)]
    assert claim_on(data, host_id) == readers[:2]
    assert claim_on(data, host_id) == []
    assert claim(data, data.job(of_type=SERVICE)) is None
    assert claim(data, data.job(OTHER_ORG, SERVICE)) is not None
    data.expire_lease(data.run_row(readers[0]).id)
    assert claim_on(data, host_id) == readers[:1]


def test_requested_worker_has_reserved_capacity(data: OrgJobsData) -> None:
    data.organisation(max_running=2)
    host_id, server_id = host_and_server(data)
    readers = [
        data.job(of_type=READING, server_instance_id=server_id, priority=1) for _ in range(3)
    ]
    service_job = data.job(
        of_type=SERVICE, priority=9, run={"requested_at": data.now, "requests": 1}
    )
    assert claim_on(data, host_id) == readers[:1]
    assert claim_on(data, host_id) == []
    assert claim(data, service_job) is not None


def test_reserved_capacity_expires(data: OrgJobsData) -> None:
    data.organisation(max_running=1)
    host_id, server_id = host_and_server(data)
    data.job(of_type=SERVICE, run={"requested_at": data.now, "requests": 1}, priority=9)
    reader = data.job(of_type=READING, server_instance_id=server_id)
    data.clock.advance(timedelta(minutes=5) - timedelta(seconds=1))
    assert claim_on(data, host_id) == []
    data.clock.advance(timedelta(seconds=1))
    assert claim_on(data, host_id) == [reader]


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
    data: OrgJobsData, priority: int, org_id: str, later: bool, given: int
) -> None:
    data.organisation(max_running=2)
    host_id, server_id = host_and_server(data)
    run = {"next_attempt_at": data.now + HOUR} if later else {}
    for _ in range(3):
        data.job(org_id, SERVICE, priority=priority, run=run)
    readers = [
        data.job(of_type=READING, server_instance_id=server_id, priority=5) for _ in range(3)
    ]
    assert claim_on(data, host_id) == readers[:given]
    assert claim_on(data, host_id) == []


def test_service_job_that_cannot_start_blocks_no_agent(data: OrgJobsData) -> None:
    data.organisation(max_running=1)
    host_id, server_id = host_and_server(data)
    off = data.server(is_enabled=False)
    data.job(of_type=SERVICE, server_instance_id=off, priority=1)
    reader = data.job(of_type=READING, server_instance_id=server_id)
    assert claim_on(data, host_id) == [reader]


def test_host_runs_one_changing_and_eight_reading_jobs(data: OrgJobsData) -> None:
    host_id, server_id = host_and_server(data)
    changers = [data.job(server_instance_id=server_id) for _ in range(2)]
    readers = [data.job(of_type=READING, server_instance_id=server_id) for _ in range(9)]
    assert claim_on(data, host_id) == [changers[0], *readers[:8]]
    assert claim_on(data, host_id) == []
    run_id = data.run_row(changers[0]).id
    data.set_run(run_id, status="running", started_at=data.now, lease_until=database_now(-1.0))
    assert claim_on(data, host_id) == []
    data.set_run(run_id, status="success", finished_at=data.now)
    assert claim_on(data, host_id) == changers[1:]


def test_most_urgent_and_then_oldest_run_comes_first(data: OrgJobsData) -> None:
    host_id, server_id = host_and_server(data)
    jobs = [
        data.job(of_type=READING, server_instance_id=server_id, priority=each)
        for each in (5, 9, 1, 5)
    ]
    given = [claim_on(data, host_id, 2), claim_on(data, host_id, 2)]
    assert given == [[jobs[2], jobs[0]], [jobs[3], jobs[1]]]


def test_serial_runs_start_one_at_a_time(data: OrgJobsData) -> None:
    host_id, server_id = host_and_server(data)
    first, second = (
        data.job(of_type=READING, server_instance_id=server_id, line="a") for _ in range(2)
    )
    other_line = data.job(of_type=READING, server_instance_id=server_id, line="b", priority=9)
    data.set_run(data.run_row(first).id, next_attempt_at=data.now + HOUR, attempt_no=2)
    assert claim_on(data, host_id) == [other_line]
    data.set_run(data.run_row(first).id, status="cancelled", finished_at=data.now)
    assert claim_on(data, host_id) == [second]


def test_lines_of_organisations_are_separate(data: OrgJobsData) -> None:
    data.job(OTHER_ORG, SERVICE, line="a")
    assert claim(data, data.job(of_type=SERVICE, line="a")) is not None


def test_agent_claims_jobs_of_its_own_servers(data: OrgJobsData) -> None:
    host_id, server_id = host_and_server(data)
    other_host, other_server = host_and_server(data)
    _, foreign_server = host_and_server(data, OTHER_ORG)
    data.job(OTHER_ORG, server_instance_id=foreign_server)
    data.job(of_type=SERVICE, server_instance_id=server_id)
    mine = data.job(server_instance_id=server_id)
    moved = data.job(server_instance_id=other_server, host_id=other_host, of_type=READING)
    data.set_server(other_server, host_id=host_id)
    assert claim_on(data, other_host) == []
    assert claim_on(data, host_id) == [mine, moved]
    assert {data.run_row(job_id).host_id for job_id in (mine, moved)} == {host_id}


def test_server_of_another_organisation_gives_no_jobs(data: OrgJobsData) -> None:
    host_id, _ = host_and_server(data)
    foreign_server = data.server(OTHER_ORG, host_id=host_id)
    data.job(OTHER_ORG, server_instance_id=foreign_server)
    assert claim_on(data, host_id) == []


def test_concurrent_claims_take_each_run_once_within_all_limits(data: OrgJobsData) -> None:
    data.organisation(max_running=7)
    host_id, server_id = host_and_server(data)
    for _ in range(3):
        data.job(of_type=CHANGING, server_instance_id=server_id)
    for _ in range(6):
        data.job(of_type=READING, server_instance_id=server_id)
    service_job = [data.run_row(data.job(of_type=SERVICE)).id for _ in range(4)]
    url = data.database.url.render_as_string(hide_password=False)
    calls = [(url, data.now, host_id, service_job, seed) for seed in range(4)]
    claimed: list[Sequence[int]] = run_in_processes(processes.claim_all, *calls)
    run_ids = [run_id for each in claimed for run_id in each]
    rows = [data.run_by_id(run_id) for run_id in run_ids]
    assert len(run_ids) == len(set(run_ids)) == 7
    assert [row.lease_token for row in rows] == [1] * 7
    assert sum(row.performer == "agent" and row.is_mutation for row in rows) <= 1


def window(data: OrgJobsData, opens_in: timedelta, zone: str = "UTC") -> dict[str, object]:
    """An execution window of 15 minutes."""
    start = data.now + opens_in
    return {"start": f"{start:%H:%M}", "end": f"{start + HOUR / 4:%H:%M}", "timezone": zone}


def closed(data: OrgJobsData) -> dict[str, object]:
    return window(data, HOUR)


def opening(data: OrgJobsData) -> datetime:
    """When the window of `closed` opens."""
    return (data.now + HOUR).replace(second=0, microsecond=0)


def claim_jobs_of(data: OrgJobsData, host_id: int, most: int = 20, org_id: str = ORG) -> list[int]:
    claimed = claim_jobs(
        host_id, within=OrgScope(org_id), database=data.database, clock=data.clock, most=most
    )
    return [one.job_id for one in claimed]


def release(data: OrgJobsData) -> list[int]:
    return list(release_jobs(database=data.database, clock=data.clock, limit=20))


def postpone_agent_jobs(data: OrgJobsData, host_id: int, org_id: str = ORG) -> None:
    with data.database.transaction() as session:
        postpone_closed(session, of_host(host_id, org_id), data.now)


def test_agent_claims_a_run_when_its_window_opens(data: OrgJobsData) -> None:
    host_id, server_id = host_and_server(data)
    job_id = data.job(server_instance_id=server_id, start_window=closed(data))
    opens = opening(data)
    assert (claim_jobs_of(data, host_id), data.run_row(job_id).next_attempt_at) == (
        [],
        opens,
    )
    data.clock.advance(opens - data.now)
    assert claim_jobs_of(data, host_id) == [job_id]


def test_run_outside_its_window_takes_no_capacity(data: OrgJobsData) -> None:
    host_id, server_id = host_and_server(data)
    for _ in range(3):
        data.job(server_instance_id=server_id, priority=1, start_window=closed(data))
    job_id = data.job(server_instance_id=server_id, start_window=window(data, timedelta(0)))
    assert claim_jobs_of(data, host_id, most=1) == [job_id]


def test_worker_is_requested_when_the_window_opens(data: OrgJobsData) -> None:
    job_id, open_id = (data.job(of_type=SERVICE, start_window=one) for one in (closed(data), None))
    assert release(data) == [data.run_row(open_id).id]
    run = data.run_row(job_id)
    assert run.next_attempt_at == opening(data)
    data.clock.advance(run.next_attempt_at - data.now)
    assert run.id in release(data)


def test_worker_after_the_window_claims_nothing(data: OrgJobsData) -> None:
    job_id = data.job(of_type=SERVICE, start_window=window(data, timedelta(0)))
    [run_id] = release(data)
    opens = data.now.replace(second=0, microsecond=0) + timedelta(days=1)
    data.clock.advance(HOUR)
    with data.database.transaction() as session:
        assert claim_run(session, run_id, "worker", 60.0, data.now) is None
    run = data.run_row(job_id)
    assert (run.status, run.next_attempt_at, run.requested_at, run.lease_until) == (
        "pending",
        opens,
        None,
        None,
    )


def test_claiming_a_run_outside_its_window_postpones_it_to_the_opening(data: OrgJobsData) -> None:
    host_id, server_id = host_and_server(data)
    job_id = data.job(server_instance_id=server_id, start_window=closed(data))
    with data.database.transaction() as session:
        assert (
            claim_for_host(session, data.host_row(host_id), "agent:box", 5, 180.0, data.now) == []
        )
    run = data.run_row(job_id)
    assert (run.next_attempt_at, run.lease_owner) == (opening(data), None)


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
    data: OrgJobsData, run: dict[str, object]
) -> None:
    host_id, server_id = host_and_server(data)
    job_id = data.job(server_instance_id=server_id, start_window=closed(data), run=run)
    postpone_agent_jobs(data, host_id)
    assert data.run_row(job_id).next_attempt_at is None


def test_jobs_of_another_host_or_organisation_are_not_postponed(data: OrgJobsData) -> None:
    host_id, server_id = host_and_server(data)
    other_id, _ = host_and_server(data, OTHER_ORG)
    job_id = data.job(server_instance_id=server_id, start_window=closed(data))
    postpone_agent_jobs(data, other_id, OTHER_ORG)
    postpone_agent_jobs(data, host_id, OTHER_ORG)
    postpone_agent_jobs(data, data.host())
    assert data.run_row(job_id).next_attempt_at is None
    postpone_agent_jobs(data, host_id)
    assert data.run_row(job_id).next_attempt_at is not None


def test_the_number_of_queries_does_not_grow_with_runs_and_windows(data: OrgJobsData) -> None:
    host_id, server_id = host_and_server(data)
    data.job(server_instance_id=server_id, start_window=closed(data))
    with statements(data.database) as for_one:
        postpone_agent_jobs(data, host_id)
    for of_type, hours in ((CHANGING, 2), (CHANGING, 3), (READING, 4)):
        data.job(
            of_type=of_type,
            server_instance_id=server_id,
            start_window=window(data, hours * HOUR),
        )
    with statements(data.database) as for_many:
        postpone_agent_jobs(data, host_id)
    assert len(for_many) == len(for_one)
    times = [data.run_row(job.id).next_attempt_at for job in data.jobs()]
    assert times == [opening(data) + hours * HOUR for hours in range(4)]


@pytest.mark.parametrize(
    "start_window", [None, {"start": "01:00", "end": "02:00", "timezone": "Atlantis/Capital"}]
)
def test_job_without_a_valid_window_starts_at_any_time(
    data: OrgJobsData, start_window: dict[str, object] | None
) -> None:
    assert opens_at(start_window, data.now) == data.now
    job_id = data.job(of_type=SERVICE, start_window=start_window)
    assert release(data) == [data.run_row(job_id).id]
    with data.database.reading() as session:
        assert opening_of_run(session, data.run_row(job_id).id, data.now) == data.now
