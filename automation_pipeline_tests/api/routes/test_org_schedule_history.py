"""History of an organisation schedule: next occurrences, fires and log."""

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from automation_pipeline_tests.org_jobs.data import OrgJobsData

PATH = "/api/org-schedules"


def test_the_next_occurrences_are_listed(operator: TestClient, orgs: OrgJobsData) -> None:
    schedule_id = orgs.schedule()
    document = operator.get(f"{PATH}/{schedule_id}/next", params={"count": 2}).json()["data"]
    assert [run["scheduledFor"] for run in document["runs"]] == [
        "2026-05-05T02:00:00.000Z",
        "2026-05-06T02:00:00.000Z",
    ]
    later = operator.get(
        f"{PATH}/{schedule_id}/next", params={"after": "2026-06-01T00:00:00Z", "count": 1}
    ).json()
    assert later["data"]["runs"][0]["scheduledFor"] == "2026-06-01T02:00:00.000Z"


def test_fires_can_be_paged_forwards_and_backwards(operator: TestClient, orgs: OrgJobsData) -> None:
    schedule_id = orgs.schedule()
    ids = [str(orgs.fire(schedule_id, orgs.now - timedelta(days=days))) for days in (3, 2, 1)]
    job_id = orgs.job(schedule_id=schedule_id, fire_id=int(ids[1]))
    path = f"{PATH}/{schedule_id}/fires"
    first = operator.get(path, params={"limit": 2}).json()
    assert ([one["id"] for one in first["data"]], first["count"], first["limit"]) == (ids[:2], 2, 2)
    assert (first["data"][1]["jobId"], first["data"][1]["jobStatus"]) == (str(job_id), "pending")
    assert [
        one["id"] for one in operator.get(path, params={"after": ids[1]}).json()["data"]
    ] == ids[2:]
    backwards = operator.get(path, params={"newest": True, "limit": 1}).json()["data"]
    assert [one["id"] for one in backwards] == [ids[2]]
    before = operator.get(path, params={"newest": True, "after": ids[2]}).json()["data"]
    assert [one["id"] for one in before] == [ids[1], ids[0]]


def test_the_log_shows_actions_actors_and_reasons(operator: TestClient, orgs: OrgJobsData) -> None:
    schedule_id = orgs.schedule()
    operator.patch(f"{PATH}/{schedule_id}", json={"name": "Renamed"})
    operator.post(f"{PATH}/{schedule_id}/pause", json={"reason": "Moving"})
    entries = operator.get(f"{PATH}/{schedule_id}/log").json()["data"]
    assert [(entry["action"], entry["actor"]) for entry in entries] == [
        ("update", "machine:environment"),
        ("pause", "machine:environment"),
    ]
    assert (entries[0]["after"]["name"], entries[1]["reason"]) == ("Renamed", "Moving")
    newest = operator.get(f"{PATH}/{schedule_id}/log", params={"newest": True, "limit": 1}).json()[
        "data"
    ]
    assert newest == entries[1:]


@pytest.mark.parametrize(
    ("what", "name", "value"),
    [
        ("next", "count", "1001"),
        ("next", "after", "soon"),
        ("fires", "after", "x"),
        ("log", "limit", "0"),
    ],
)
def test_an_invalid_query_parameter_is_named(
    operator: TestClient, orgs: OrgJobsData, what: str, name: str, value: str
) -> None:
    refused = operator.get(f"{PATH}/{orgs.schedule()}/{what}", params={name: value})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, name)
