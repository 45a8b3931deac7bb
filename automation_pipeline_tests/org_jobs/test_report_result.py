"""An agent says how its attempt has ended: once, and only of what is its own."""

from datetime import timedelta
from typing import Any

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.agents import report_result
from automation_pipeline.org_jobs.models.jobs import RetryPolicy, attempt_cancelled
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.organisations import update_server
from automation_pipeline.org_jobs.queries.attempts import end_attempts
from automation_pipeline_tests.org_jobs.agent import Agent, an_agent, of
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, SERVICE, Bench

STOP = "stop working on it"
ONCE = RetryPolicy(max_retries=0)


@pytest.fixture
def agent(org_bench: Bench) -> Agent:
    return an_agent(org_bench)


def cancel_at_once(agent: Agent, run_id: int) -> None:
    with agent.bench.database.transaction() as session:
        end_attempts(
            session, {run_id: attempt_cancelled("No need any more.")}, ACTOR, agent.bench.now
        )


def move(agent: Agent, host_id: int) -> None:
    update_server(
        agent.server_id, {"hostId": str(host_id)}, within=OrgScope(ORG), actor=ACTOR, **agent.on
    )


class TestItsOwn:
    def test_a_success_ends_the_job_with_what_came_of_it(self, agent: Agent) -> None:
        bench, job = agent.bench, agent.begun()
        run = agent.result(job, "success", result={"bytes": 7}, logRef="/log/1")
        assert (run.status, run.result, run.log_ref, run.finished_at) == (
            "success",
            {"bytes": 7},
            "/log/1",
            bench.now,
        )
        stored = bench.job_row(job.job_id)
        assert (stored.status, stored.finished_at) == ("success", bench.now)
        (attempt,) = run.attempts
        name = f"agent:{bench.host_row(agent.host_id).name}"
        assert (attempt.attempt_no, attempt.status, attempt.owner) == (1, "success", name)
        assert bench.moves("job run", job.run_id) == [
            ("pending", "running"),
            ("running", "success"),
        ]
        assert len(bench.events("job_run.succeeded")) == 1

    def test_what_was_done_at_once_needs_no_progress_before(self, agent: Agent) -> None:
        job = agent.claimed()
        assert agent.result(job, "success").status == "success"
        assert agent.bench.moves("job run", job.run_id) == [
            ("pending", "running"),
            ("running", "success"),
        ]

    def test_a_failure_is_tried_again_by_policy(self, agent: Agent) -> None:
        job = agent.begun(retry=RetryPolicy(max_retries=1, backoff_ms=60_000))
        run = agent.result(job, "failed", errorCode="DISK_FULL", error="Full.")
        assert (run.status, run.attempt_no) == ("pending", 2)
        assert run.next_attempt_at == agent.bench.now + timedelta(minutes=1)
        assert (run.attempts[0].error_code, run.attempts[0].error) == ("DISK_FULL", "Full.")
        assert agent.claim() == []
        agent.bench.pass_minutes(1)
        (again,) = agent.claim()
        assert (again.run_id, again.attempt_no, again.lease_token) == (job.run_id, 2, 2)
        assert agent.result(again, "failed").status == "failed"

    @pytest.mark.parametrize("code", ["VALIDATION", "NOT_FOUND", "UNSUPPORTED"])
    def test_what_no_other_try_can_help_is_not_tried_again(self, agent: Agent, code: str) -> None:
        run = agent.result(agent.begun(), "failed", errorCode=code)
        assert (run.status, run.attempt_no, run.error_code) == ("failed", 1, code)

    def test_what_runs_is_its_own_until_it_is_given_up(self, agent: Agent) -> None:
        job = agent.begun()
        agent.bench.expire_hold(job.run_id)
        assert agent.result(job, "success").status == "success"

    def test_ends_are_counted_once(self, agent: Agent) -> None:
        job = agent.begun()
        for _ in range(2):
            agent.result(job, "success")
        counted = agent.bench.meter.drain()
        ended = {
            labels: count
            for (name, labels), count in counted.items()
            if name == "job_run_count_total"
        }
        assert ended == {'status="success",type="SERVER_RESTART"': 1}


class TestCancelled:
    def test_what_was_to_be_cancelled_is(self, agent: Agent) -> None:
        job = agent.begun()
        agent.bench.set_run(job.run_id, cancel_requested_at=agent.bench.now)
        for _ in range(2):
            assert agent.result(job, "cancelled").status == "cancelled"

    def test_what_nobody_wanted_cancelled_has_failed_and_to_repeat_it_changes_nothing(
        self, agent: Agent
    ) -> None:
        job = agent.begun()
        for _ in range(2):
            run = agent.result(job, "cancelled")
            assert (run.status, run.attempt_no, len(run.attempts)) == ("pending", 2, 1)
            assert (run.attempts[0].status, run.attempts[0].error_code) == ("failed", "CANCELLED")

    def test_what_fails_while_it_is_to_be_cancelled_is_not_tried_again(self, agent: Agent) -> None:
        job = agent.begun()
        agent.bench.set_run(job.run_id, cancel_requested_at=agent.bench.now)
        assert agent.result(job, "failed").status == "failed"


class TestAgain:
    @pytest.mark.parametrize("status", ["success", "failed"])
    def test_the_same_again_changes_nothing(self, agent: Agent, status: str) -> None:
        job = agent.begun(retry=ONCE)
        first = agent.result(job, status, result={"a": 1})
        agent.bench.pass_minutes(1)
        assert agent.result(job, status, result={"a": 2}) == first
        assert (
            len(agent.bench.events(f"job_run.{'succeeded' if status == 'success' else 'failed'}"))
            == 1
        )

    def test_the_same_again_is_taken_also_after_the_next_attempt_has_begun(
        self, agent: Agent
    ) -> None:
        job = agent.begun()
        agent.result(job, "failed")
        (again,) = agent.claim()
        agent.progress(again)
        run = agent.result(job, "failed")
        assert (run.status, run.attempt_no, len(run.attempts)) == ("running", 2, 1)

    def test_something_else_is_refused(self, agent: Agent) -> None:
        job = agent.begun()
        agent.result(job, "success")
        for status in ("failed", "cancelled"):
            with pytest.raises(ConflictError, match=f"ended otherwise \\(success\\): {STOP}"):
                agent.result(job, status)
        (attempt,) = agent.bench.attempts(job.run_id)
        assert (attempt.status, attempt.late_report) == ("success", None)


class TestTooLate:
    def test_of_a_lost_attempt_it_is_kept_and_logged_and_the_next_attempt_ends_the_job(
        self, agent: Agent
    ) -> None:
        bench, lost = agent.bench, agent.begun()
        assert agent.reap(lost).status == "pending"
        (job,) = agent.claim()
        with pytest.raises(ConflictError, match=f"was given up \\(STALE\\): {STOP}"):
            agent.result(lost, "success", result={"a": 1})
        run = agent.result(job, "success")
        assert (run.status, [attempt.status for attempt in run.attempts]) == (
            "success",
            ["failed", "success"],
        )
        kept = bench.attempts(lost.run_id)[0].late_report
        assert kept is not None
        assert (kept["status"], kept["result"], kept["leaseToken"]) == ("success", {"a": 1}, 1)
        (logged,) = bench.audit(str(lost.job_id))
        assert (logged.action, logged.entity, logged.org_id) == ("late_report", "job", ORG)
        assert logged.after == {"runId": str(lost.run_id), "attemptNo": 1, "status": "success"}

    def test_the_first_late_word_is_the_one_that_is_kept(self, agent: Agent) -> None:
        lost = agent.begun(retry=ONCE)
        assert agent.reap(lost).status == "failed"
        for status in ("success", "failed"):
            with pytest.raises(ConflictError, match="was given up"):
                agent.result(lost, status)
        kept = agent.bench.attempts(lost.run_id)[0].late_report
        assert kept is not None
        assert kept["status"] == "success"
        assert len(agent.bench.audit(str(lost.job_id))) == 1

    def test_it_is_the_word_of_the_host_that_had_the_attempt_though_the_server_has_moved(
        self, agent: Agent
    ) -> None:
        bench, lost, elsewhere = agent.bench, agent.begun(), agent.bench.host()
        agent.reap(lost)
        move(agent, elsewhere)
        for host_id in (agent.host_id, elsewhere):
            bench.set_host(host_id, last_seen_at=None)
        with pytest.raises(ConflictError, match="was given up"):
            agent.result(lost, "success")
        name = f"agent:{bench.host_row(agent.host_id).name}"
        kept = bench.attempts(lost.run_id)[0].late_report
        late = [one.actor for one in bench.audit(str(lost.job_id)) if one.action == "late_report"]
        assert (late, kept and kept["actor"]) == ([name], name)
        assert bench.host_row(agent.host_id).last_seen_at is not None
        assert bench.host_row(elsewhere).last_seen_at is None

    def test_nobody_is_seen_because_of_an_attempt_that_nobody_has(self, agent: Agent) -> None:
        bench, job, elsewhere = agent.bench, agent.claimed(), agent.bench.host()
        agent.reap(job)
        move(agent, elsewhere)
        bench.set_host(elsewhere, last_seen_at=None)
        with pytest.raises(ConflictError):
            agent.result(job, "success")
        with pytest.raises(ConflictError):
            agent.progress(job)
        assert bench.host_row(elsewhere).last_seen_at is None

    @pytest.mark.parametrize("status", ["success", "cancelled"])
    def test_of_what_was_cancelled_at_once(self, agent: Agent, status: str) -> None:
        job = agent.begun()
        cancel_at_once(agent, job.run_id)
        with pytest.raises(ConflictError, match=r"was given up \(cancelled\)"):
            agent.result(job, status)
        (attempt,) = agent.bench.attempts(job.run_id)
        assert (attempt.status, attempt.late_report is not None) == ("cancelled", True)

    def test_who_ended_which_attempt_is_not_mixed_up(self, agent: Agent) -> None:
        """All at the same instant, and all failed."""
        jobs = [agent.begun(retry=RetryPolicy(max_retries=3, backoff_ms=0))]
        agent.result(jobs[0], "failed")
        jobs += agent.claim()
        agent.progress(jobs[1])
        agent.reap(jobs[1])
        jobs += agent.claim()
        agent.result(jobs[2], "failed")
        for mine in (jobs[0], jobs[2]):
            assert agent.result(mine, "failed").attempt_no == 4
        with pytest.raises(ConflictError, match="was given up"):
            agent.result(jobs[1], "failed")

    def test_what_was_claimed_only_and_is_free_again_is_nobodys(self, agent: Agent) -> None:
        job = agent.claimed()
        agent.bench.expire_hold(job.run_id)
        with pytest.raises(ConflictError, match="is not claimed any more"):
            agent.result(job, "success")
        agent.reap(job)
        with pytest.raises(ConflictError, match="is not claimed any more"):
            agent.result(job, "success")
        (again,) = agent.claim()
        with pytest.raises(ConflictError, match="under another lease token"):
            agent.result(job, "success")
        assert agent.result(again, "success").attempt_no == 1


class TestNotItsOwn:
    @pytest.mark.parametrize(
        "said", [{"leaseToken": 2}, {"attemptNo": 2}, {"attemptNo": 2, "leaseToken": 2}]
    )
    def test_another_token_or_attempt_is_refused(self, agent: Agent, said: dict[str, int]) -> None:
        job = agent.begun()
        with pytest.raises(ConflictError, match=STOP):
            agent.result(job, "success", **said)
        assert agent.bench.run_by_id(job.run_id).status == "running"
        assert agent.bench.audit() == []

    def test_a_wrong_token_repeats_nothing_either(self, agent: Agent) -> None:
        job = agent.begun()
        agent.result(job, "success")
        with pytest.raises(ConflictError, match="under another lease token"):
            agent.result(job, "success", leaseToken=2)

    def test_a_run_of_another_organisation_of_no_host_or_of_no_agent_does_not_exist(
        self, agent: Agent
    ) -> None:
        bench, job = agent.bench, agent.begun()
        ours, waiting = bench.running_job(of_type=SERVICE, host_id=agent.host_id), bench.job()
        strange = [(job.run_id, OrgScope(OTHER_ORG))]
        strange += [(bench.run_row(one).id, OrgScope(ORG)) for one in (ours, waiting)]
        given = {**of(job), "status": "success"}
        for run_id, within in [*strange, (987654, OrgScope(None))]:
            with pytest.raises(NotFoundError, match=f"Job run {run_id} not found"):
                report_result(run_id, given, within=within, meter=bench.meter, **agent.on)
        assert bench.run_by_id(job.run_id).status == "running"
        assert agent.result(job, "success", within=OrgScope(ORG)).status == "success"

    def test_faults_are_told_by_field_and_end_nothing(self, agent: Agent) -> None:
        job = agent.begun()
        said: dict[str, Any] = {"errorCode": "full", "error": "x" * 2001, "result": []}
        with pytest.raises(InvalidInputError) as refused:
            agent.result(job, "failed", **said)
        assert {field for field, _ in refused.value.fields} == set(said)
        assert agent.bench.run_by_id(job.run_id).status == "running"
