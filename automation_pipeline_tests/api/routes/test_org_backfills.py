"""Backfill routes. Backfills are created through the schedule routes."""

from fastapi.testclient import TestClient

from automation_pipeline_tests.org_jobs.data import OrgJobsData

PATH = "/api/org-backfills"
PERIOD = {"from": "2026-05-01T00:00:00Z", "until": "2026-05-03T23:59:59Z"}


def start_backfill(client: TestClient, schedule_id: str) -> str:
    return client.post(f"/api/org-schedules/{schedule_id}/backfill", json=PERIOD).json()["data"][
        "id"
    ]


def test_a_backfill_is_shown_with_the_status_of_its_jobs(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    batch_id = start_backfill(operator, orgs.schedule())
    document = operator.get(f"{PATH}/{batch_id}").json()["data"]
    assert (document["status"], document["total"], document["pending"], document["from"]) == (
        "running",
        3,
        3,
        "2026-05-01T00:00:00.000Z",
    )
    assert operator.get("/api/org-jobs", params={"batch": batch_id}).json()["count"] == 3


def test_the_list_is_newest_first_and_can_be_filtered(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    of_acme, of_globex = orgs.schedule(), orgs.schedule("globex")
    first, second = start_backfill(operator, of_acme), start_backfill(operator, of_globex)
    for query, ids in (
        ({}, [second, first]),
        ({"org": "acme"}, [first]),
        ({"schedule": of_globex}, [second]),
        ({"status": "completed"}, []),
        ({"limit": 1, "offset": 1}, [first]),
    ):
        assert [one["id"] for one in operator.get(PATH, params=query).json()["data"]] == ids


def test_cancelling_a_backfill_cancels_its_jobs_and_is_idempotent(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    schedule_id = orgs.schedule()
    batch_id = start_backfill(operator, schedule_id)
    for _ in range(2):
        document = operator.post(
            f"{PATH}/{batch_id}/cancel", json={"reason": "The wrong month"}
        ).json()["data"]
        assert (document["status"], document["cancelled"]) == ("cancelled", 3)
    assert {job.status for job in orgs.jobs(schedule_id)} == {"cancelled"}
    assert operator.post(f"{PATH}/{batch_id}/cancel", json={"why": "x"}).status_code == 400
