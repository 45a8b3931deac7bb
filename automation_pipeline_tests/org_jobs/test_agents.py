"""Agents: heartbeat, claim, progress and result."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.agents import (
    list_held_jobs,
    report_progress,
    report_result,
    touch_heartbeat,
)
from automation_pipeline.org_jobs.models.jobs import RetryPolicy, attempt_cancelled
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.organisations import update_server
from automation_pipeline.org_jobs.queries.attempts import end_attempts
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.org_jobs.agent import Agent, attempt_of, make_agent
from automation_pipeline_tests.org_jobs.data import (
    ACTOR,
    CHANGING,
    ORG,
    OTHER_ORG,
    READING,
    SERVICE,
    OrgJobsData,
)

LONG_AGO = timedelta(days=400)


def database_time_now(data: OrgJobsData, seconds: float = 0.0) -> datetime:
    """The current time by the database clock."""
    with data.database.reading() as session:
        return session.scalars(select(database_now(seconds))).one()


def send_heartbeat(  # noqa: ANN201  returns what the use case returns
    data: OrgJobsData,
    host_id: int,
    within: OrgScope = ALL_ORGANISATIONS,
    version: str | None = None,
):
    return touch_heartbeat(host_id, within=within, database=data.database, agent_version=version)


@pytest.mark.parametrize("before", [None, LONG_AGO])
def test_heartbeat_uses_the_clock_of_the_database(
    data: OrgJobsData, before: timedelta | None
) -> None:
    earlier = database_time_now(data)
    host_id = data.host(last_seen_at=None if before is None else earlier - before)
    host = send_heartbeat(data, host_id)
    assert host.last_seen_at is not None
    assert earlier <= host.last_seen_at <= database_time_now(data)
    assert data.host_row(host_id).last_seen_at == host.last_seen_at


def test_frequent_heartbeats_are_not_written(data: OrgJobsData) -> None:
    # A time in the future, which stays recent however long the test takes.
    ahead = database_time_now(data, 3600)
    host_id = data.host(last_seen_at=ahead)
    assert send_heartbeat(data, host_id).last_seen_at == ahead
    before = database_time_now(data)
    data.set_host(host_id, last_seen_at=database_time_now(data, -15))
    last_seen_at = send_heartbeat(data, host_id).last_seen_at
    assert last_seen_at is not None
    assert last_seen_at >= before


def test_new_version_is_written_at_once(data: OrgJobsData) -> None:
    host_id = data.host(last_seen_at=database_time_now(data, 3600))
    assert send_heartbeat(data, host_id, version="1.0").agent_version == "1.0"
    assert send_heartbeat(data, host_id, version="1.1").agent_version == "1.1"
    assert send_heartbeat(data, host_id).agent_version == "1.1"


def test_a_heartbeat_for_a_host_of_another_organisation_is_not_found(data: OrgJobsData) -> None:
    host_id = data.host(OTHER_ORG)
    before = data.host_row(host_id).last_seen_at
    with pytest.raises(NotFoundError, match=f"Host {host_id} not found"):
        send_heartbeat(data, host_id, OrgScope("acme"))
    assert data.host_row(host_id).last_seen_at == before
    with pytest.raises(NotFoundError, match=r"Host 987654 not found"):
        send_heartbeat(data, 987654)
    assert send_heartbeat(data, host_id, OrgScope(OTHER_ORG)).org_id == OTHER_ORG


@pytest.fixture
def agent(data: OrgJobsData) -> Agent:
    return make_agent(data)


def test_a_claimed_job_has_all_fields_for_its_agent(agent: Agent) -> None:
    data = agent.data
    payload = {"password": {"secretRef": "RCON_PASSWORD"}, "graceSeconds": 30}
    due = data.now - timedelta(minutes=5)
    job_id = agent.add_job(payload=payload, scheduled_for=due)
    (job,) = agent.claim()
    run = data.run_row(job_id)
    assert (job.run_id, job.job_id, job.type, job.payload) == (
        run.id,
        job_id,
        CHANGING.name,
        payload,
    )
    assert (job.attempt_no, job.max_attempts, job.lease_token, job.status) == (1, 3, 1, "pending")
    assert (job.server_instance_id, job.server_name) == (
        agent.server_id,
        data.server_row(agent.server_id).name,
    )
    assert (job.scheduled_for, job.deadline_at, job.lease_expires_at) == (
        due,
        None,
        run.lease_until,
    )
    assert job.limit_seconds == 86_400
    name = data.host_row(agent.host_id).name
    assert (run.status, run.lease_owner, run.host_id) == ("pending", f"agent:{name}", agent.host_id)


def test_lease_lasts_three_minutes_by_the_clock_of_the_database(agent: Agent) -> None:
    with agent.data.database.reading() as session:
        earlier = session.scalars(select(database_now(180))).one()
    job = agent.claimed()
    with agent.data.database.reading() as session:
        later = session.scalars(select(database_now(180))).one()
    assert earlier <= job.lease_expires_at <= later


def test_a_job_keeps_the_time_limit_of_its_creation(agent: Agent) -> None:
    of_type = READING.__class__(**{**vars(READING), "name": "OF_YESTERDAY", "limit_seconds": 77})
    job = agent.claimed(of_type=of_type)
    assert job.limit_seconds == 77


def test_several_reading_jobs_but_one_changing_job_are_claimed(agent: Agent) -> None:
    for of_type in (READING, READING, CHANGING, CHANGING, READING):
        agent.add_job(of_type)
    assert [job.type for job in agent.claim(20)] == [
        READING.name,
        READING.name,
        CHANGING.name,
        READING.name,
    ]
    assert agent.claim(20) == []


def test_claim_counts_as_a_heartbeat(agent: Agent) -> None:
    agent.data.set_host(agent.host_id, last_seen_at=None)
    assert agent.claim() == []
    assert agent.data.host_row(agent.host_id).last_seen_at is not None


def test_a_claim_for_a_host_of_another_organisation_is_not_found(agent: Agent) -> None:
    agent.add_job()
    with pytest.raises(NotFoundError, match=f"Host {agent.host_id} not found"):
        agent.claim(within=OrgScope(OTHER_ORG))
    assert len(agent.claim(within=OrgScope(ORG))) == 1


def test_jobs_of_another_organisation_or_host_are_not_claimed(data: OrgJobsData) -> None:
    agents = [make_agent(data), make_agent(data), make_agent(data, OTHER_ORG)]
    wanted = [one.add_job() for one in agents]
    assert [[job.job_id for job in one.claim(20)] for one in agents] == [
        [job_id] for job_id in wanted
    ]


def test_restarted_agent_lists_claimed_and_started_jobs(agent: Agent) -> None:
    started, claimed = agent.started(), agent.claimed(of_type=READING)
    agent.add_job(READING)
    held = agent.held()
    assert [(job.run_id, job.status) for job in held] == [
        (started.run_id, "running"),
        (claimed.run_id, "pending"),
    ]
    assert held[1] == claimed
    assert held[0].deadline_at == agent.data.run_by_id(started.run_id).deadline_at
    agent.result(held[0], "success")
    agent.result(held[1], "success")
    assert agent.held() == []


def test_held_jobs_end_with_the_attempt_or_the_lease(
    agent: Agent,
) -> None:
    started, claimed = agent.started(), agent.claimed(of_type=READING)
    agent.data.expire_lease(started.run_id)
    agent.data.expire_lease(claimed.run_id)
    assert [job.run_id for job in agent.held()] == [started.run_id]
    agent.reap(started)
    assert agent.held() == []


def test_jobs_of_other_hosts_and_performers_are_not_listed(agent: Agent) -> None:
    data = agent.data
    make_agent(data).started()
    make_agent(data, OTHER_ORG).started()
    data.running_job(of_type=SERVICE)
    assert agent.held() == []


def test_held_jobs_of_another_organisation_are_not_listed(agent: Agent) -> None:
    agent.claimed()
    with pytest.raises(NotFoundError, match=f"Host {agent.host_id} not found"):
        list_held_jobs(agent.host_id, within=OrgScope(OTHER_ORG), database=agent.data.database)


def test_listing_counts_as_a_heartbeat(agent: Agent) -> None:
    agent.data.set_host(agent.host_id, last_seen_at=None)
    agent.held()
    assert agent.data.host_row(agent.host_id).last_seen_at is not None


STOP = "stop working on it"


def test_first_report_starts_the_attempt(agent: Agent) -> None:
    data, job = agent.data, agent.claimed(of_type=READING)
    orders = agent.progress(job, percent=10, message="Started")
    run = data.run_by_id(job.run_id)
    assert (run.status, run.started_at, data.job_row(job.job_id).status) == (
        "running",
        data.now,
        "running",
    )
    assert (
        run.deadline_at == orders.deadline_at == data.now + timedelta(seconds=READING.limit_seconds)
    )
    assert (orders.cancel_requested, orders.lease_expires_at) == (False, run.lease_until)
    assert (run.progress, run.progress_at) == ({"percent": 10, "message": "Started"}, data.now)
    assert data.transitions("job run", job.run_id) == [("pending", "running")]
    assert [event.payload["attemptNo"] for event in data.events("job_run.started")] == [1]


def test_later_reports_keep_the_deadline(agent: Agent) -> None:
    data, job = agent.data, agent.claimed()
    first = agent.progress(job, percent=10, message="Started")
    data.advance_minutes(2)
    second = agent.progress(job, percent=20)
    run = data.run_by_id(job.run_id)
    assert second.deadline_at == first.deadline_at
    assert (run.progress, run.progress_at) == ({"percent": 20, "message": "Started"}, data.now)
    agent.progress(job, percent=0)
    assert data.run_by_id(job.run_id).progress == {"percent": 0, "message": "Started"}
    assert data.transitions("job run", job.run_id) == [("pending", "running")]
    assert len(data.events("job_run.started")) == 1


def test_each_report_extends_the_lease(agent: Agent) -> None:
    job = agent.started()
    agent.data.set_run(job.run_id, lease_until=database_now(5.0))
    with agent.data.database.reading() as session:
        earlier = session.scalars(select(database_now(180))).one()
    orders = agent.progress(job)
    assert orders.lease_expires_at >= earlier
    assert agent.data.run_by_id(job.run_id).lease_until == orders.lease_expires_at


def test_report_returns_the_cancel_request(agent: Agent) -> None:
    job = agent.started()
    agent.data.set_run(job.run_id, cancel_requested_at=agent.data.now)
    assert agent.progress(job).cancel_requested


def test_running_attempt_is_held_until_it_is_ended(agent: Agent) -> None:
    job = agent.started()
    agent.data.expire_lease(job.run_id)
    assert agent.progress(job).lease_expires_at > job.lease_expires_at
    agent.reap(job)
    with pytest.raises(ConflictError, match=STOP):
        agent.progress(job)


def test_unstarted_claim_ends_with_its_lease(agent: Agent) -> None:
    job = agent.claimed()
    agent.data.expire_lease(job.run_id)
    with pytest.raises(ConflictError, match=STOP):
        agent.progress(job)
    (again,) = agent.claim()
    assert (again.run_id, again.attempt_no, again.lease_token) == (job.run_id, 1, 2)
    with pytest.raises(
        ConflictError, match=f"Attempt 1 of job run {job.run_id} is no longer yours: {STOP}"
    ):
        agent.progress(job)
    assert agent.progress(again).cancel_requested is False


@pytest.mark.parametrize("changed", [{"leaseToken": 2}, {"attemptNo": 2}])
def test_wrong_token_or_attempt_is_refused(agent: Agent, changed: dict[str, int]) -> None:
    job = agent.claimed()
    with pytest.raises(ConflictError, match=STOP):
        agent.progress(job, **changed)
    assert agent.data.run_by_id(job.run_id).status == "pending"


@pytest.mark.parametrize("status", ["success", "failed"])
def test_report_on_an_ended_attempt_is_refused(agent: Agent, status: str) -> None:
    job = agent.started()
    agent.result(job, status)
    before = agent.data.run_by_id(job.run_id)
    with pytest.raises(ConflictError, match=STOP):
        agent.progress(job, percent=99)
    after = agent.data.run_by_id(job.run_id)
    assert (after.progress, after.lease_until, after.status) == (
        before.progress,
        None,
        before.status,
    )


def test_invalid_report_names_its_fields_and_starts_nothing(agent: Agent) -> None:
    job = agent.claimed()
    with pytest.raises(InvalidInputError) as refused:
        agent.progress(job, percent=101)
    assert refused.value.fields == (("percent", "must be at most 100.0"),)
    assert agent.data.run_by_id(job.run_id).status == "pending"


def test_run_without_this_agent_is_not_found(
    agent: Agent,
) -> None:
    data, job = agent.data, agent.claimed()
    of_service, of_none = data.job(of_type=SERVICE, host_id=agent.host_id), data.job()
    inaccessible = [(job.run_id, OrgScope(OTHER_ORG))]
    inaccessible += [(data.run_row(one).id, OrgScope(ORG)) for one in (of_service, of_none)]
    for run_id, within in [*inaccessible, (987654, OrgScope(None))]:
        with pytest.raises(NotFoundError, match=f"Job run {run_id} not found"):
            report_progress(run_id, attempt_of(job), within=within, **agent.services)
    assert data.run_by_id(job.run_id).status == "pending"
    assert agent.progress(job, within=OrgScope(ORG)).cancel_requested is False


def test_refused_report_counts_as_a_heartbeat(agent: Agent) -> None:
    job = agent.claimed()
    agent.data.set_host(agent.host_id, last_seen_at=None)
    agent.data.expire_lease(job.run_id)
    with pytest.raises(ConflictError):
        agent.progress(job)
    assert agent.data.host_row(agent.host_id).last_seen_at is not None


ONCE = RetryPolicy(max_retries=0)


def cancel_at_once(agent: Agent, run_id: int) -> None:
    with agent.data.database.transaction() as session:
        end_attempts(
            session, {run_id: attempt_cancelled("No need any more.")}, ACTOR, agent.data.now
        )


def move(agent: Agent, host_id: int) -> None:
    update_server(
        agent.server_id,
        {"hostId": str(host_id)},
        within=OrgScope(ORG),
        actor=ACTOR,
        **agent.services,
    )


class TestCurrentAttempt:
    def test_success_ends_the_job_with_its_result(self, agent: Agent) -> None:
        data, job = agent.data, agent.started()
        run = agent.result(job, "success", result={"bytes": 7}, logRef="/log/1")
        assert (run.status, run.result, run.log_ref, run.finished_at) == (
            "success",
            {"bytes": 7},
            "/log/1",
            data.now,
        )
        stored = data.job_row(job.job_id)
        assert (stored.status, stored.finished_at) == ("success", data.now)
        (attempt,) = run.attempts
        name = f"agent:{data.host_row(agent.host_id).name}"
        assert (attempt.attempt_no, attempt.status, attempt.owner) == (1, "success", name)
        assert data.transitions("job run", job.run_id) == [
            ("pending", "running"),
            ("running", "success"),
        ]
        assert len(data.events("job_run.succeeded")) == 1

    def test_result_without_earlier_progress_is_accepted(self, agent: Agent) -> None:
        job = agent.claimed()
        assert agent.result(job, "success").status == "success"
        assert agent.data.transitions("job run", job.run_id) == [
            ("pending", "running"),
            ("running", "success"),
        ]

    def test_failure_is_retried_by_the_policy(self, agent: Agent) -> None:
        job = agent.started(retry=RetryPolicy(max_retries=1, backoff_ms=60_000))
        run = agent.result(job, "failed", errorCode="DISK_FULL", error="Full.")
        assert (run.status, run.attempt_no) == ("pending", 2)
        assert run.next_attempt_at == agent.data.now + timedelta(minutes=1)
        assert (run.attempts[0].error_code, run.attempts[0].error) == ("DISK_FULL", "Full.")
        assert agent.claim() == []
        agent.data.advance_minutes(1)
        (again,) = agent.claim()
        assert (again.run_id, again.attempt_no, again.lease_token) == (job.run_id, 2, 2)
        assert agent.result(again, "failed").status == "failed"

    @pytest.mark.parametrize("code", ["VALIDATION", "NOT_FOUND", "UNSUPPORTED"])
    def test_permanent_failure_is_not_retried(self, agent: Agent, code: str) -> None:
        run = agent.result(agent.started(), "failed", errorCode=code)
        assert (run.status, run.attempt_no, run.error_code) == ("failed", 1, code)

    def test_running_attempt_is_held_until_it_is_ended(self, agent: Agent) -> None:
        job = agent.started()
        agent.data.expire_lease(job.run_id)
        assert agent.result(job, "success").status == "success"

    def test_ends_are_counted_once(self, agent: Agent) -> None:
        job = agent.started()
        for _ in range(2):
            agent.result(job, "success")
        counted = agent.data.meter.drain()
        ended = {
            labels: count
            for (name, labels), count in counted.items()
            if name == "job_run_count_total"
        }
        assert ended == {'status="success",type="SERVER_RESTART"': 1}


class TestCancelledResult:
    def test_requested_cancel_is_recorded(self, agent: Agent) -> None:
        job = agent.started()
        agent.data.set_run(job.run_id, cancel_requested_at=agent.data.now)
        for _ in range(2):
            assert agent.result(job, "cancelled").status == "cancelled"

    def test_cancel_without_a_request_is_a_failure(self, agent: Agent) -> None:
        job = agent.started()
        for _ in range(2):
            run = agent.result(job, "cancelled")
            assert (run.status, run.attempt_no, len(run.attempts)) == ("pending", 2, 1)
            assert (run.attempts[0].status, run.attempts[0].error_code) == ("failed", "CANCELLED")

    def test_failure_during_a_cancel_is_not_retried(self, agent: Agent) -> None:
        job = agent.started()
        agent.data.set_run(job.run_id, cancel_requested_at=agent.data.now)
        assert agent.result(job, "failed").status == "failed"


class TestRepeatedResult:
    @pytest.mark.parametrize("status", ["success", "failed"])
    def test_repeated_result_changes_nothing(self, agent: Agent, status: str) -> None:
        job = agent.started(retry=ONCE)
        first = agent.result(job, status, result={"a": 1})
        agent.data.advance_minutes(1)
        assert agent.result(job, status, result={"a": 2}) == first
        assert (
            len(agent.data.events(f"job_run.{'succeeded' if status == 'success' else 'failed'}"))
            == 1
        )

    def test_repeated_result_is_accepted_after_the_next_attempt_has_started(
        self, agent: Agent
    ) -> None:
        job = agent.started()
        agent.result(job, "failed")
        (again,) = agent.claim()
        agent.progress(again)
        run = agent.result(job, "failed")
        assert (run.status, run.attempt_no, len(run.attempts)) == ("running", 2, 1)

    def test_a_different_result_is_refused(self, agent: Agent) -> None:
        job = agent.started()
        agent.result(job, "success")
        for status in ("failed", "cancelled"):
            with pytest.raises(
                ConflictError, match=f"ended with another result \\(success\\): {STOP}"
            ):
                agent.result(job, status)
        (attempt,) = agent.data.attempts(job.run_id)
        assert (attempt.status, attempt.late_report) == ("success", None)


class TestLateResult:
    def test_late_result_of_a_lost_attempt_is_stored_and_logged(self, agent: Agent) -> None:
        data, lost = agent.data, agent.started()
        assert agent.reap(lost).status == "pending"
        (job,) = agent.claim()
        with pytest.raises(ConflictError, match=f"was ended by the system \\(STALE\\): {STOP}"):
            agent.result(lost, "success", result={"a": 1})
        run = agent.result(job, "success")
        assert (run.status, [attempt.status for attempt in run.attempts]) == (
            "success",
            ["failed", "success"],
        )
        kept = data.attempts(lost.run_id)[0].late_report
        assert kept is not None
        assert (kept["status"], kept["result"], kept["leaseToken"]) == ("success", {"a": 1}, 1)
        (logged,) = data.audit(str(lost.job_id))
        assert (logged.action, logged.entity, logged.org_id) == ("late_report", "job", ORG)
        assert logged.after == {"runId": str(lost.run_id), "attemptNo": 1, "status": "success"}

    def test_first_late_result_is_stored(self, agent: Agent) -> None:
        lost = agent.started(retry=ONCE)
        assert agent.reap(lost).status == "failed"
        for status in ("success", "failed"):
            with pytest.raises(ConflictError, match="was ended by the system"):
                agent.result(lost, status)
        kept = agent.data.attempts(lost.run_id)[0].late_report
        assert kept is not None
        assert kept["status"] == "success"
        assert len(agent.data.audit(str(lost.job_id))) == 1

    def test_late_result_belongs_to_the_host_of_the_attempt(self, agent: Agent) -> None:
        data, lost, elsewhere = agent.data, agent.started(), agent.data.host()
        agent.reap(lost)
        move(agent, elsewhere)
        for host_id in (agent.host_id, elsewhere):
            data.set_host(host_id, last_seen_at=None)
        with pytest.raises(ConflictError, match="was ended by the system"):
            agent.result(lost, "success")
        name = f"agent:{data.host_row(agent.host_id).name}"
        kept = data.attempts(lost.run_id)[0].late_report
        late = [one.actor for one in data.audit(str(lost.job_id)) if one.action == "late_report"]
        assert (late, kept and kept["actor"]) == ([name], name)
        assert data.host_row(agent.host_id).last_seen_at is not None
        assert data.host_row(elsewhere).last_seen_at is None

    def test_a_report_on_an_unheld_attempt_is_not_a_heartbeat(self, agent: Agent) -> None:
        data, job, elsewhere = agent.data, agent.claimed(), agent.data.host()
        agent.reap(job)
        move(agent, elsewhere)
        data.set_host(elsewhere, last_seen_at=None)
        with pytest.raises(ConflictError):
            agent.result(job, "success")
        with pytest.raises(ConflictError):
            agent.progress(job)
        assert data.host_row(elsewhere).last_seen_at is None

    @pytest.mark.parametrize("status", ["success", "cancelled"])
    def test_late_result_of_a_job_cancelled_at_once_is_stored(
        self, agent: Agent, status: str
    ) -> None:
        job = agent.started()
        cancel_at_once(agent, job.run_id)
        with pytest.raises(ConflictError, match=r"was ended by the system \(cancelled\)"):
            agent.result(job, status)
        (attempt,) = agent.data.attempts(job.run_id)
        assert (attempt.status, attempt.late_report is not None) == ("cancelled", True)

    def test_each_attempt_stores_who_ended_it(self, agent: Agent) -> None:
        """All attempts end at the same time with the same status."""
        jobs = [agent.started(retry=RetryPolicy(max_retries=3, backoff_ms=0))]
        agent.result(jobs[0], "failed")
        jobs += agent.claim()
        agent.progress(jobs[1])
        agent.reap(jobs[1])
        jobs += agent.claim()
        agent.result(jobs[2], "failed")
        for reported_by_agent in (jobs[0], jobs[2]):
            assert agent.result(reported_by_agent, "failed").attempt_no == 4
        with pytest.raises(ConflictError, match="was ended by the system"):
            agent.result(jobs[1], "failed")

    def test_a_released_claim_accepts_no_result(self, agent: Agent) -> None:
        job = agent.claimed()
        agent.data.expire_lease(job.run_id)
        with pytest.raises(ConflictError, match="is no longer claimed"):
            agent.result(job, "success")
        agent.reap(job)
        with pytest.raises(ConflictError, match="is no longer claimed"):
            agent.result(job, "success")
        (again,) = agent.claim()
        with pytest.raises(ConflictError, match="under another lease token"):
            agent.result(job, "success")
        assert agent.result(again, "success").attempt_no == 1


class TestOtherAttempt:
    @pytest.mark.parametrize(
        "changed", [{"leaseToken": 2}, {"attemptNo": 2}, {"attemptNo": 2, "leaseToken": 2}]
    )
    def test_another_token_or_attempt_is_refused(
        self, agent: Agent, changed: dict[str, int]
    ) -> None:
        job = agent.started()
        with pytest.raises(ConflictError, match=STOP):
            agent.result(job, "success", **changed)
        assert agent.data.run_by_id(job.run_id).status == "running"
        assert agent.data.audit() == []

    def test_wrong_token_does_not_repeat_a_result(self, agent: Agent) -> None:
        job = agent.started()
        agent.result(job, "success")
        with pytest.raises(ConflictError, match="under another lease token"):
            agent.result(job, "success", leaseToken=2)

    def test_run_without_this_agent_is_not_found(self, agent: Agent) -> None:
        data, job = agent.data, agent.started()
        service_job, waiting = (
            data.running_job(of_type=SERVICE, host_id=agent.host_id),
            data.job(),
        )
        inaccessible = [(job.run_id, OrgScope(OTHER_ORG))]
        inaccessible += [(data.run_row(one).id, OrgScope(ORG)) for one in (service_job, waiting)]
        given = {**attempt_of(job), "status": "success"}
        for run_id, within in [*inaccessible, (987654, OrgScope(None))]:
            with pytest.raises(NotFoundError, match=f"Job run {run_id} not found"):
                report_result(run_id, given, within=within, meter=data.meter, **agent.services)
        assert data.run_by_id(job.run_id).status == "running"
        assert agent.result(job, "success", within=OrgScope(ORG)).status == "success"

    def test_invalid_result_names_its_fields_and_ends_nothing(self, agent: Agent) -> None:
        job = agent.started()
        message: dict[str, Any] = {"errorCode": "full", "error": "x" * 2001, "result": []}
        with pytest.raises(InvalidInputError) as refused:
            agent.result(job, "failed", **message)
        assert {field for field, _ in refused.value.fields} == set(message)
        assert agent.data.run_by_id(job.run_id).status == "running"
