"""Actions on an organisation schedule: pause, skip, run now, backfill."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import delete

from automation_pipeline.storage.idempotency import IdempotencyKeyRow
from automation_pipeline_tests.api.conftest import Login, Member
from automation_pipeline_tests.org_jobs.data import OrgJobsData

PATH = "/api/org-schedules"
PERIOD = {"from": "2026-05-01T00:00:00Z", "until": "2026-05-03T23:59:59Z"}
KEY = {"Idempotency-Key": "once"}


def post_action(
    client: TestClient, schedule_id: str, what: str, body: Any = None, **more: Any
) -> Any:
    return client.post(f"{PATH}/{schedule_id}/{what}", json=body, **more)


class TestPause:
    def test_a_schedule_can_be_paused_and_resumed(
        self, operator: TestClient, orgs: OrgJobsData
    ) -> None:
        schedule_id = orgs.schedule()
        paused = post_action(
            operator, schedule_id, "pause", {"reason": "Moving", "until": "2026-05-06T00:00:00Z"}
        ).json()
        document = paused["data"]
        assert (document["state"], document["pauseReason"], document["nextRunAt"]) == (
            "PAUSED",
            "Moving",
            None,
        )
        assert document["pausedUntil"] == "2026-05-06T00:00:00.000Z"
        orgs.advance_minutes(24 * 60)
        resumed = post_action(operator, schedule_id, "resume").json()["data"]
        assert (resumed["state"], resumed["nextRunAt"]) == ("ACTIVE", "2026-05-06T02:00:00.000Z")
        assert [entry.action for entry in orgs.audit(schedule_id)] == ["pause", "resume"]

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"until": "tomorrow"}, "until"),
            ({"reason": "x" * 1001}, "reason"),
            ({"why": "x"}, "why"),
        ],
    )
    def test_an_invalid_body_names_the_field(
        self, operator: TestClient, orgs: OrgJobsData, body: Any, field: str
    ) -> None:
        refused = post_action(operator, orgs.schedule(), "pause", body)
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, field)


class TestSkipNext:
    def test_skip_next_can_be_set_and_removed(
        self, operator: TestClient, orgs: OrgJobsData
    ) -> None:
        schedule_id = orgs.schedule()
        for _ in range(2):
            skipping = post_action(
                operator, schedule_id, "skip-next", {"reason": "Tournament"}
            ).json()["data"]
            assert (skipping["skipNextRun"], skipping["skipNextRunReason"]) == (True, "Tournament")
        kept = operator.delete(f"{PATH}/{schedule_id}/skip-next")
        assert (kept.status_code, kept.json()["data"]["skipNextRun"]) == (200, False)


class TestRunNow:
    def test_run_now_creates_a_job_and_keeps_the_next_run(
        self, operator: TestClient, orgs: OrgJobsData
    ) -> None:
        schedule_id = orgs.schedule(payload={})
        planned = orgs.schedule_row(schedule_id).next_run_at
        answered = post_action(operator, schedule_id, "run-now", {"ignoreWindow": True})
        (job,) = orgs.jobs(schedule_id)
        assert (answered.status_code, answered.json()["data"]["jobId"]) == (202, str(job.id))
        assert (job.created_by, orgs.fires(schedule_id)[0].trigger) == (
            "machine:environment",
            "MANUAL",
        )
        assert orgs.schedule_row(schedule_id).next_run_at == planned

    def test_an_idempotency_key_creates_one_job_and_conflicts_with_another_body(
        self, operator: TestClient, orgs: OrgJobsData
    ) -> None:
        schedule_id = orgs.schedule(overlap_policy="ALLOW_ALL")
        first, second = (
            post_action(operator, schedule_id, "run-now", headers=KEY) for _ in range(2)
        )
        assert (first.json(), second.headers["Idempotent-Replay"]) == (second.json(), "true")
        later = post_action(operator, schedule_id, "run-now", {"ignoreWindow": True}, headers=KEY)
        assert later.status_code == 409
        assert len(orgs.jobs(schedule_id)) == 1

    def test_an_idempotency_key_can_have_255_characters(
        self, operator: TestClient, orgs: OrgJobsData
    ) -> None:
        key = {"Idempotency-Key": "k" * 255}
        assert post_action(operator, orgs.schedule(), "run-now", headers=key).status_code == 202

    def test_run_now_outside_the_execution_window_needs_ignore_window(
        self, operator: TestClient, orgs: OrgJobsData
    ) -> None:
        schedule_id = orgs.schedule(execution_window_start="02:00", execution_window_end="03:00")
        assert post_action(operator, schedule_id, "run-now").status_code == 409
        assert (
            post_action(operator, schedule_id, "run-now", {"ignoreWindow": True}).status_code == 202
        )

    def test_idempotency_keys_are_separate_per_caller(
        self, operator: TestClient, member: Member, orgs: OrgJobsData
    ) -> None:
        schedule_id = orgs.schedule(overlap_policy="ALLOW_ALL")
        jobs = {
            post_action(client, schedule_id, "run-now", headers=KEY).text
            for client in (operator, member("acme"))
        }
        assert len(jobs) == 2

    @pytest.mark.parametrize(
        ("body", "field"),
        [({"ignoreWindow": "yes"}, "ignoreWindow"), ({"payload": []}, "payload"), ({"x": 1}, "x")],
    )
    def test_an_invalid_body_names_the_field(
        self, operator: TestClient, orgs: OrgJobsData, body: Any, field: str
    ) -> None:
        refused = post_action(operator, orgs.schedule(), "run-now", body)
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, field)
        assert orgs.jobs() == []

    def test_run_now_refuses_a_payload_invalid_for_the_type(
        self, operator: TestClient, orgs: OrgJobsData
    ) -> None:
        schedule_id = orgs.schedule(job_type="HTTPS_CALL", payload={"url": "https://example.com/"})
        refused = post_action(operator, schedule_id, "run-now", {"payload": {"method": "GET"}})
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "payload.url")


class TestBackfill:
    def test_a_dry_run_backfill_lists_times_and_creates_no_jobs(
        self, operator: TestClient, orgs: OrgJobsData
    ) -> None:
        schedule_id = orgs.schedule()
        answered = post_action(operator, schedule_id, "backfill", {**PERIOD, "dryRun": True})
        document = answered.json()["data"]
        assert (
            answered.status_code,
            document["id"],
            document["total"],
            len(document["times"]),
        ) == (
            200,
            None,
            3,
            3,
        )
        assert orgs.jobs() == []

    def test_a_backfill_creates_the_jobs_of_the_period_once_per_key(
        self, operator: TestClient, orgs: OrgJobsData
    ) -> None:
        schedule_id = orgs.schedule()
        answers = [
            post_action(operator, schedule_id, "backfill", PERIOD, headers=KEY) for _ in range(2)
        ]
        assert [answered.status_code for answered in answers] == [202, 202]
        assert answers[0].json() == answers[1].json()
        assert len(orgs.jobs(schedule_id)) == 3

    @pytest.mark.parametrize(
        ("more", "field"),
        [
            ({"until": "2026-04-01T00:00:00Z"}, "until"),
            ({"behaviour": "all"}, "behaviour"),
            ({"limit": 2}, "limit"),
        ],
    )
    def test_an_invalid_body_names_the_field(
        self, operator: TestClient, orgs: OrgJobsData, more: Any, field: str
    ) -> None:
        refused = post_action(operator, orgs.schedule(), "backfill", {**PERIOD, **more})
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, field)
        assert orgs.jobs() == []


@pytest.mark.parametrize(
    ("method", "what", "allowed"),
    [
        ("POST", "run-now", False),
        ("POST", "backfill", False),
        ("POST", "resume", False),
        ("DELETE", "skip-next", False),
        ("POST", "pause", True),
        ("POST", "skip-next", True),
    ],
)
def test_actions_that_run_a_restricted_type_need_its_permission(
    login: Login, member: Member, orgs: OrgJobsData, method: str, what: str, allowed: bool
) -> None:
    body = PERIOD if what == "backfill" else {}
    for client in (member("acme"), login({"org-jobs.write": "ALL"})):
        schedule_id = orgs.schedule(job_type="PRICING_RULE_APPLY", payload={"ruleId": "1"})
        answered = client.request(method, f"{PATH}/{schedule_id}/{what}", json=body)
        assert answered.status_code == (200 if allowed else 403), answered.text
    assert orgs.jobs() == []


@pytest.mark.parametrize(
    "paused", [{}, {"state": "PAUSED", "enabled": False, "pause_reason": "Frozen"}]
)
def test_a_pause_with_an_end_needs_the_permission_to_resume(
    login: Login, member: Member, orgs: OrgJobsData, paused: dict[str, Any]
) -> None:
    schedule_id = orgs.schedule(job_type="PRICING_RULE_APPLY", payload={"ruleId": "1"}, **paused)
    before = orgs.schedule_row(schedule_id)
    request = {"until": "2026-05-06T00:00:00Z"}
    for client in (member("acme"), login({"org-jobs.write": "ALL"})):
        assert post_action(client, schedule_id, "pause", request).status_code == 403
    after = orgs.schedule_row(schedule_id)
    assert (after.state, after.pause_reason, after.paused_until) == (
        before.state,
        before.pause_reason,
        None,
    )
    assert orgs.audit(schedule_id) == []
    permitted = login({"org-jobs.write": "ALL", "pricing.runs.write": "ALL"})
    assert (
        post_action(permitted, schedule_id, "pause", request).json()["data"]["pausedUntil"]
        == "2026-05-06T00:00:00.000Z"
    )
    without_end = post_action(member("acme"), schedule_id, "pause", {"reason": "For good"}).json()[
        "data"
    ]
    assert (without_end["pauseReason"], without_end["pausedUntil"]) == ("For good", None)


def test_the_jobs_permission_allows_a_timed_pause_of_unrestricted_types(
    member: Member, orgs: OrgJobsData
) -> None:
    paused = post_action(
        member("acme"), orgs.schedule(), "pause", {"until": "2026-05-06T00:00:00Z"}
    )
    assert (paused.status_code, paused.json()["data"]["pausedUntil"]) == (
        200,
        "2026-05-06T00:00:00.000Z",
    )
    hidden = post_action(
        member("acme"), orgs.schedule("globex"), "pause", {"until": "2026-05-06T00:00:00Z"}
    )
    assert hidden.status_code == 404


def test_an_idempotency_key_still_applies_after_its_response_is_deleted(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    schedule_id = orgs.schedule(overlap_policy="ALLOW_ALL")
    first = post_action(operator, schedule_id, "run-now", headers=KEY)
    with orgs.database.transaction() as session:
        session.execute(delete(IdempotencyKeyRow))
    again = post_action(operator, schedule_id, "run-now", headers=KEY)
    assert (again.json(), "Idempotent-Replay" in again.headers) == (first.json(), False)
    assert len(orgs.jobs(schedule_id)) == 1
